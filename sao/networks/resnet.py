"""Two ResNets of basic blocks: the paper's, whose samples never interact, and the usual one of the baselines."""

from collections.abc import Callable, Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from sao.networks.base import ImageEncoder, arranged, check_sizes
from sao.networks.layers import Activation, BatchNorm, Convolution, GroupNorm, activation_named


class StagedEncoder(ImageEncoder):
    """A stem, then residual blocks in stages; the features (n, widths[-1]) are the mean of the last map."""

    stem: nn.Conv2d

    def _describe(self, channels: int, widths: Sequence[int], blocks: Sequence[int], patch: int) -> None:
        if not len(widths) == len(blocks) > 0:
            raise ValueError(f"widths and blocks must have one entry for each stage, got {len(widths)} and {len(blocks)}")
        check_sizes(channels=channels, widths=min(widths), blocks=min(blocks), patch=patch)
        self.channels, self.feature_size, self.patch = channels, widths[-1], patch
        self.widths, self.blocks = tuple(widths), tuple(blocks)

    def _add_stages(self, downsample: Sequence[bool], block: Callable[[int, int, bool], nn.Module]) -> None:
        stages: list[nn.Module] = []
        inputs = self.widths[0]
        for width, count, smaller in zip(self.widths, self.blocks, downsample, strict=True):
            for index in range(count):
                stages.append(block(inputs, width, smaller and index == 0))
                inputs = width
        self.stages = nn.Sequential(*stages)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        self.arrange_weights()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.stages(self.first_map(inputs)).mean((2, 3))

    def first_map(self, inputs: Tensor) -> Tensor:
        raise NotImplementedError

    def blocks_of_maps(self) -> nn.Sequential:
        return self.stages

    def stage_widths(self) -> Sequence[int]:
        return self.widths

    def with_map(self, inputs: Tensor, stage: int) -> tuple[Tensor, Tensor]:
        last = sum(self.blocks[: stage + 1]) - 1
        x = maps = self.first_map(inputs)
        for index, block in enumerate(self.stages):
            x = block(x)
            maps = x if index == last else maps
        return x.mean((2, 3)), maps


class ResNet(StagedEncoder):
    """(n, c, h, w) in [-1, 1] → backbone features (n, widths[-1]), of each sample by itself: it has a Jacobian of its own.

    A ResNet-18 with 3x3 stem and no max-pool, average pooling instead of strides, GroupNorm instead of BatchNorm, no first norm
    in a block, ELU instead of ReLU. The defaults are the paper's 32x32 network; `resnet_stages` knows the others.
    """

    def __init__(
        self,
        channels: int = 3,
        widths: Sequence[int] = (64, 128, 256, 512),
        blocks: Sequence[int] = (2, 2, 2, 2),
        downsample: Sequence[bool] = (False, True, True, True),
        activation: Activation = "elu",
        patch: int = 1,
    ) -> None:
        super().__init__()
        self._describe(channels, widths, blocks, patch)
        self.reduction = patch * 2 ** sum(downsample)
        self.stem = Convolution(channels * patch**2, widths[0], 3)
        self.activation = activation_named(activation)
        self._add_stages(downsample, lambda inputs, outputs, smaller: Block(inputs, outputs, smaller, activation))

    def first_map(self, inputs: Tensor) -> Tensor:
        return self.activation(self.stem(self.arranged(inputs)))


class Block(nn.Module):
    """Basic residual block; a stage's reduction is an average pool at the head of both branches."""

    def __init__(self, inputs: int, outputs: int, downsample: bool, activation: Activation = "elu") -> None:
        super().__init__()
        self.downsample = downsample
        self.first = Convolution(inputs, outputs, 3)
        self.second = Convolution(outputs, outputs, 3)
        self.norm = GroupNorm(outputs)
        self.activation = activation_named(activation)
        self.shortcut = nn.Identity()
        if downsample or inputs != outputs:
            self.shortcut = nn.Sequential(Convolution(inputs, outputs, 1), GroupNorm(outputs))

    def forward(self, x: Tensor) -> Tensor:
        if self.downsample:
            x = F.avg_pool2d(x, 2)
        residual = self.norm(self.second(self.activation(self.first(x))))
        return self.activation(residual, self.shortcut(x))


def resnet_stages(size: int, widths: Sequence[int] | None = None) -> tuple[list[int], list[bool]]:
    """Widths and reductions for images of a size: the paper's two networks at 32 and 128, and the same rule elsewhere.

    From 64 pixels on there is one stage more, and every stage reduces, but none below 2x2.
    """
    large = size >= 64
    widths = list(widths or ([64, 64, 128, 256, 512] if large else [64, 128, 256, 512]))
    downsample = [large or index > 0 for index in range(len(widths))]
    for index in range(len(widths)):
        downsample[index] &= size // 2 ** (sum(downsample[:index]) + 1) >= 2
    return widths, downsample


class PlainResNet(StagedEncoder):
    """(n, c, h, w) in [-1, 1] → backbone features (n, widths[-1]), with BatchNorm, strides and ReLU.

    The defaults are torchvision's ResNet-18 for CIFAR, with a 3x3 stem and no max-pool; `large` is its own 7x7 stem with stride
    2 and max-pool. The moments of BatchNorm are those of the global batch, so that in training samples interact.
    """

    def __init__(
        self,
        channels: int = 3,
        widths: Sequence[int] = (64, 128, 256, 512),
        blocks: Sequence[int] = (2, 2, 2, 2),
        large: bool = False,
        activation: Activation = "relu",
        patch: int = 1,
    ) -> None:
        super().__init__()
        self._describe(channels, widths, blocks, patch)
        self.reduction = patch * 2 ** (len(widths) - 1) * (4 if large else 1)
        kernel, stride = (7, 2) if large else (3, 1)
        self.stem = nn.Conv2d(channels * patch**2, widths[0], kernel, stride, kernel // 2, bias=False)
        self.norm = BatchNorm(widths[0])
        self.activation = activation_named(activation)
        self.pool = nn.MaxPool2d(3, 2, padding=1) if large else nn.Identity()
        smaller = [stage > 0 for stage in range(len(widths))]
        self._add_stages(smaller, lambda inputs, outputs, smaller: PlainBlock(inputs, outputs, smaller, activation))

    def first_map(self, inputs: Tensor) -> Tensor:
        return self.pool(self.activation(self.norm(self.stem(self.arranged(inputs)))))


class PlainBlock(nn.Module):
    """Basic residual block; a stage's reduction is a stride of its first convolution and of the shortcut."""

    def __init__(self, inputs: int, outputs: int, downsample: bool, activation: Activation) -> None:
        super().__init__()
        self.stride = stride = 2 if downsample else 1
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.first_norm = BatchNorm(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = BatchNorm(outputs)
        self.activation = activation_named(activation)
        self.shortcut = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, bias=False), BatchNorm(outputs))

    def forward(self, x: Tensor) -> Tensor:
        residual = self.activation(self.first_norm(self.first(x)))
        # A 1x1 convolution with a stride, in channels_last, writes beyond its memory in torch 2.13 on CPUs; this is the same.
        kept = arranged(x[..., :: self.stride, :: self.stride])
        return self.activation(self.second_norm(self.second(residual)), self.shortcut(kept))
