"""The paper's encoder: a ResNet whose samples never interact, so that each has a Jacobian of its own."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from sao.networks.checks import check_sizes
from sao.networks.layers import Activation, Convolution, GroupNorm, activation_named
from sao.networks.layout import ImageEncoder


class ResNet(ImageEncoder):
    """(n, c, h, w) in [-1, 1] → backbone features (n, widths[-1]).

    A ResNet-18 with 3x3 stem and no max-pool, average pooling instead of strides, GroupNorm instead of BatchNorm, no first norm
    in a block, ELU instead of ReLU. The defaults are the paper's 32x32 network; `resnet_stages` knows the others. With a
    `patch` the first convolution sees that many pixels a side as one position.
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
        if not len(widths) == len(blocks) == len(downsample) > 0:
            raise ValueError(
                f"widths, blocks and downsample must have one entry for each stage, "
                f"got {len(widths)}, {len(blocks)} and {len(downsample)}"
            )
        check_sizes(channels=channels, widths=min(widths), blocks=min(blocks), patch=patch)
        self.channels, self.patch = channels, patch
        self.reduction = patch * 2 ** sum(downsample)
        self.feature_size = widths[-1]
        self.widths, self.blocks = tuple(widths), tuple(blocks)
        self.stem = Convolution(channels * patch**2, widths[0], 3)
        self.activation = activation_named(activation)
        stages: list[nn.Module] = []
        inputs = widths[0]
        for width, count, pooled in zip(widths, blocks, downsample, strict=True):
            for index in range(count):
                stages.append(Block(inputs, width, pooled and index == 0, activation))
                inputs = width
        self.stages = nn.Sequential(*stages)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        self.arrange_weights()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.stages(self.activation(self.stem(self.arranged(inputs)))).mean((2, 3))

    def blocks_of_maps(self) -> nn.Sequential:
        return self.stages

    def stage_widths(self) -> Sequence[int]:
        return self.widths

    def with_map(self, inputs: Tensor, stage: int) -> tuple[Tensor, Tensor]:
        last = sum(self.blocks[: stage + 1]) - 1
        x = maps = self.activation(self.stem(self.arranged(inputs)))
        for index, block in enumerate(self.stages):
            x = block(x)
            maps = x if index == last else maps
        return x.mean((2, 3)), maps


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

    Up to 63 pixels the first stage keeps the resolution (32: 8-fold reduction); from 64 on the first stage is doubled and
    every stage reduces (128: 32-fold). Stages that would go below 2x2 keep the resolution.
    """
    large = size >= 64
    widths = list(widths or ([64, 64, 128, 256, 512] if large else [64, 128, 256, 512]))
    downsample = [large or index > 0 for index in range(len(widths))]
    for index in range(len(widths)):
        downsample[index] &= size // 2 ** (sum(downsample[:index]) + 1) >= 2
    return widths, downsample
