"""The body of BigGAN's own discriminator for 32x32 images, without classes: the baseline of the paper's."""

from torch import Tensor, nn
from torch.nn import functional as F

from sao.networks.checks import check_sizes
from sao.networks.layout import ImageEncoder
from sao.networks.spectral import normalise_spectrally

REDUCTIONS = (True, True, False, False)  # one block each


class BigGANEncoder(ImageEncoder):
    """(n, c, h, w) in [-1, 1] → backbone features (n, width), summed over all positions.

    Four residual blocks of one width with ReLU, of which the first two halve the image by average pooling; every layer is
    normalised spectrally and there is no other norm. The defaults are BigGAN's for CIFAR-10: 64 channels times 4.
    """

    def __init__(self, channels: int = 3, width: int = 256) -> None:
        super().__init__()
        check_sizes(channels=channels, width=width)
        self.channels, self.feature_size = channels, width
        self.reduction = 2 ** sum(REDUCTIONS)
        inputs = [channels] + [width] * (len(REDUCTIONS) - 1)
        blocks = zip(inputs, REDUCTIONS, strict=True)
        self.blocks = nn.Sequential(*[Block(i, width, pooled, first=n == 0) for n, (i, pooled) in enumerate(blocks)])
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.orthogonal_(module.weight)
        self.arrange_weights()
        normalise_spectrally(self)

    def forward(self, inputs: Tensor) -> Tensor:
        return F.relu(self.blocks(self.arranged(inputs))).sum((2, 3))

    def blocks_of_maps(self) -> nn.Sequential:
        return self.blocks


class Block(nn.Module):
    """ReLU before each convolution, but not before the first of all, which sees pixels; pooling at the end."""

    def __init__(self, inputs: int, outputs: int, pooled: bool, first: bool) -> None:
        super().__init__()
        self.pooled, self.of_pixels = pooled, first
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if pooled or inputs != outputs else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        residual = self.second(F.relu(self.first(x if self.of_pixels else F.relu(x))))
        if not self.pooled:
            return residual + self.shortcut(x)
        # A 1x1 convolution and a mean may change places: pooled first, it costs a quarter.
        return F.avg_pool2d(residual, 2) + self.shortcut(F.avg_pool2d(x, 2))
