"""The ResNet that baselines are usually trained with: BatchNorm, strides and ReLU."""

from collections.abc import Sequence

from torch import Tensor, nn

from sao.networks.batchnorm import BatchNorm
from sao.networks.checks import check_sizes
from sao.networks.layers import Activation, activation_named
from sao.networks.layout import ImageEncoder, arranged


class PlainResNet(ImageEncoder):
    """(n, c, h, w) in [-1, 1] → backbone features (n, widths[-1]).

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
        if not len(widths) == len(blocks) > 0:
            raise ValueError(f"widths and blocks must have one entry for each stage, got {len(widths)} and {len(blocks)}")
        check_sizes(channels=channels, widths=min(widths), blocks=min(blocks), patch=patch)
        self.channels, self.feature_size, self.patch = channels, widths[-1], patch
        self.reduction = patch * 2 ** (len(widths) - 1) * (4 if large else 1)
        kernel, stride = (7, 2) if large else (3, 1)
        self.stem = nn.Conv2d(channels * patch**2, widths[0], kernel, stride, kernel // 2, bias=False)
        self.norm = BatchNorm(widths[0])
        self.activation = activation_named(activation)
        self.pool = nn.MaxPool2d(3, 2, padding=1) if large else nn.Identity()
        stages: list[nn.Module] = []
        inputs = widths[0]
        for stage, (width, count) in enumerate(zip(widths, blocks, strict=True)):
            for index in range(count):
                stages.append(PlainBlock(inputs, width, 2 if stage > 0 and index == 0 else 1, activation))
                inputs = width
        self.stages = nn.Sequential(*stages)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        self.arrange_weights()

    def forward(self, inputs: Tensor) -> Tensor:
        x = self.pool(self.activation(self.norm(self.stem(self.arranged(inputs)))))
        return self.stages(x).mean((2, 3))

    def blocks_of_maps(self) -> nn.Sequential:
        return self.stages


class PlainBlock(nn.Module):
    """Basic residual block; a stage's reduction is a stride of its first convolution and of the shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int, activation: Activation) -> None:
        super().__init__()
        self.stride = stride
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
