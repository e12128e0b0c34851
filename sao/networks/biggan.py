"""The generator of BigGAN-deep without classes: the latent alone conditions every BatchNorm."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sao.networks.batchnorm import BatchNorm
from sao.networks.checks import check_latents, check_sizes
from sao.networks.cpu import use_cpu_operators
from sao.networks.cpu.generator import add_doubled, convolved_or_graph, to_images
from sao.networks.layout import ImageNetwork, arranged
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
    """Latents (n, latent_size) → images (n, channels, size, size) in [-1, 1].

    The defaults are the paper's 32x32 network. Any size from 8 to 256 works: the image doubles from a start of 4 to 8
    pixels, and its border is cut off where it is too large.

    With `recompute` (activation checkpointing) a layer stores its input only and works in chunks of the batch. That takes less
    than half of the memory of a training pass. Images, gradients and statistics are the same.
    """

    recompute = False

    def __init__(
        self,
        size: int = 32,
        channels: int = 3,
        width: int = 128,
        depth: int = 2,
        latent_size: int = 128,
        falling: bool = False,
    ) -> None:
        super().__init__()
        if not 8 <= size <= 256:
            raise ValueError(f"size must be between 8 and 256, got {size}")
        check_sizes(channels=channels, width=width, depth=depth, latent_size=latent_size)
        doublings = max(1, (size // 4).bit_length() - 1)
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
        self.last = ToImages(multipliers[-1][1], channels, 3)
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
        margin = (images.shape[-1] - self.size) // 2
        return images[..., margin : margin + self.size, margin : margin + self.size]


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


class ToImages(Convolution):
    """From many channels to one or three."""

    in_chunks = staticmethod(to_images)

    def forward(self, input: Tensor) -> Tensor:
        return to_images(input, self.weight, self.bias) if use_cpu_operators(input) else super().forward(input)


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
        if self.upsample and use_cpu_operators(x):
            return add_doubled(residual, shortcut)
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
