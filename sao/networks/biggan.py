"""BigGAN without classes: the generator of BigGAN-deep, and the body of the discriminator for small images."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sao.networks.base import ImageEncoder, ImageNetwork, arranged, centre, check_latents, check_sizes, halvings
from sao.networks.cpu import use_cpu_operators
from sao.networks.cpu.batchnorm import convolved_or_graph
from sao.networks.layers import BatchNorm
from sao.networks.spectral import normalise_spectrally

BOTTLENECK = 4
ATTENTION_RESOLUTION = 64

# Channels in units of the base width, by the number of doublings from the first resolution: (in, out) of each resolution.
_MULTIPLIERS = {
    1: [(4, 4)],
    2: [(4, 4), (4, 4)],
    3: [(4, 4), (4, 4), (4, 4)],
    4: [(16, 16), (16, 8), (8, 4), (4, 2)],
    5: [(16, 16), (16, 8), (8, 4), (4, 2), (2, 1)],
    6: [(16, 16), (16, 8), (8, 8), (8, 4), (4, 2), (2, 1)],
}
# The same for generators whose channels become fewer as the image grows, at small sizes too: the largest maps cost most.
_FALLING = _MULTIPLIERS | {1: [(4, 2)], 2: [(4, 2), (2, 1)], 3: [(4, 4), (4, 2), (2, 1)]}


class Generator(ImageNetwork):
    """Latents (n, latent_size) → images (n, channels, size, size) in [-1, 1]; the defaults are the paper's 32x32 network.

    An image of 8 to 256 pixels doubles from a start of 4 to 8, and what is too much is cut off. With `recompute` (activation
    checkpointing) a layer stores its input only, in chunks of the batch: less than half of the memory, the same numbers.
    """

    recompute = False

    def __init__(
        self, size: int = 32, channels: int = 3, width: int = 128, depth: int = 2, latent_size: int = 128, falling: bool = False
    ) -> None:
        super().__init__()
        if not 8 <= size <= 256:
            raise ValueError(f"size must be between 8 and 256, got {size}")
        check_sizes(channels=channels, width=width, depth=depth, latent_size=latent_size)
        doublings = halvings(size)
        self.size, self.latent_size = size, latent_size
        self.start = -(-size // 2**doublings)
        multipliers = [(i * width, o * width) for i, o in (_FALLING if falling else _MULTIPLIERS)[doublings]]
        self.first_channels = multipliers[0][0]
        self.condition = nn.Linear(latent_size, latent_size)
        self.first = nn.Linear(latent_size, self.first_channels * self.start**2)
        self.blocks = nn.ModuleList()
        resolution = self.start
        for inputs, outputs in multipliers:
            for index in range(depth):
                last = index == depth - 1
                self.blocks.append(Block(inputs, outputs if last else inputs, latent_size, upsample=last))
            resolution *= 2
            if resolution // 2 < ATTENTION_RESOLUTION <= resolution < size:
                self.blocks.append(SelfAttention(outputs))
        self.norm = BatchNorm(multipliers[-1][1])
        self.last = Convolution(multipliers[-1][1], channels, 3)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight)
        self.arrange_weights()
        normalise_spectrally(self)

    def forward(self, latents: Tensor) -> Tensor:
        check_latents(latents, self.latent_size)
        condition = self.condition(latents)
        x = arranged(self.first(latents).reshape(-1, self.first_channels, self.start, self.start))
        for block in self.blocks:
            x = block(x) if isinstance(block, SelfAttention) else block(x, condition, self.recompute)
        images = torch.tanh(_layer(self.norm, self.last, x, None, self.recompute))
        return centre(images, self.size)


def _layer(
    norm: nn.Module, convolution: nn.Module, x: Tensor, condition: Tensor | None, recompute: bool, double: bool = False
) -> Tensor:
    """convolution(relu(norm(x))), with the image doubled in between."""
    if not recompute:
        return convolution(_doubled(F.relu_(norm(x, condition)), double))
    assert isinstance(norm, BatchNorm)
    assert isinstance(convolution, Convolution)
    # The weights are asked for once: spectral normalisation refines its estimate each time.
    weights = convolution.weight, convolution.bias
    function = convolution.in_chunks if use_cpu_operators(x) else convolution._conv_forward
    return norm.then(lambda y, *weights: function(_doubled(y, double), *weights), weights, x, condition)


def _doubled(x: Tensor, wanted: bool) -> Tensor:
    return F.interpolate(x, scale_factor=2) if wanted else x


class Convolution(nn.Conv2d):
    """Stride 1, zero padding that keeps the size."""

    bias: Tensor
    in_chunks = staticmethod(convolved_or_graph)  # the same as a function, for a recomputed layer on the CPU

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__(inputs, outputs, kernel, padding=kernel // 2)


class Block(nn.Module):
    """Bottleneck block: 1x1 down, two 3x3, 1x1 up; the shortcut drops the channels that the output does not have."""

    def __init__(self, inputs: int, outputs: int, condition_size: int, upsample: bool) -> None:
        super().__init__()
        self.outputs, self.upsample = outputs, upsample
        hidden = max(1, inputs // BOTTLENECK)
        sizes = [(inputs, hidden, 1), (hidden, hidden, 3), (hidden, hidden, 3), (hidden, outputs, 1)]
        self.norms = nn.ModuleList(BatchNorm(i, condition_size) for i, _, _ in sizes)
        self.convolutions = nn.ModuleList(Convolution(i, o, kernel) for i, o, kernel in sizes)

    def forward(self, x: Tensor, condition: Tensor, recompute: bool = False) -> Tensor:
        residual = x
        for index, (norm, convolution) in enumerate(zip(self.norms, self.convolutions, strict=True)):
            residual = _layer(norm, convolution, residual, condition, recompute, double=self.upsample and index == 1)
        shortcut = x[:, : self.outputs]
        residual += _doubled(shortcut, self.upsample)
        return residual


class SelfAttention(nn.Module):
    """Attention over all positions against a 2x2-pooled copy, faded in by a learnt scalar that starts at zero."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner, values = max(1, channels // 8), max(1, channels // 2)
        self.query = nn.Conv2d(channels, inner, 1, bias=False)
        self.key = nn.Conv2d(channels, inner, 1, bias=False)
        self.value = nn.Conv2d(channels, values, 1, bias=False)
        self.output = nn.Conv2d(values, channels, 1, bias=False)
        self.strength = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        query = self.query(x).flatten(2)
        key = F.max_pool2d(self.key(x), 2).flatten(2)
        value = F.max_pool2d(self.value(x), 2).flatten(2)
        weights = torch.softmax(query.transpose(1, 2) @ key, dim=-1)
        attended = (value @ weights.transpose(1, 2)).reshape(x.shape[0], -1, *x.shape[2:])
        return x + self.strength * self.output(attended)


REDUCTIONS = (True, True, False, False)  # one block each


class SummedBlocks(ImageEncoder):
    """(n, c, h, w) in [-1, 1] → backbone features (n, feature_size): the last map of the blocks, summed over all positions."""

    blocks: nn.Sequential

    def forward(self, inputs: Tensor) -> Tensor:
        return F.relu(self.blocks(self.arranged(inputs))).sum((2, 3))

    def blocks_of_maps(self) -> nn.Sequential:
        return self.blocks

    def initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.orthogonal_(module.weight)
        self.arrange_weights()


class BigGANEncoder(SummedBlocks):
    """The body of BigGAN's own discriminator for 32x32 images (64 channels times 4): the baseline of the paper's.

    Four residual blocks of one width with ReLU and spectral normalisation; the first two halve the image by average pooling.
    """

    def __init__(self, channels: int = 3, width: int = 256) -> None:
        super().__init__()
        check_sizes(channels=channels, width=width)
        self.channels, self.feature_size = channels, width
        self.reduction = 2 ** sum(REDUCTIONS)
        inputs = [channels] + [width] * (len(REDUCTIONS) - 1)
        blocks = zip(inputs, REDUCTIONS, strict=True)
        self.blocks = nn.Sequential(*[EncoderBlock(i, width, pooled, first=n == 0) for n, (i, pooled) in enumerate(blocks)])
        self.initialise()
        normalise_spectrally(self)


class EncoderBlock(nn.Module):
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
