"""The pair of StyleGAN2, written from its paper: a learnt constant that styles modulate layer by layer, and its judge.

Weights are scaled when they are used (an equal learning rate for all); maps grow and shrink with the filter [1, 3, 3, 1].
"""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sao.core import distributed
from sao.networks.base import centre, check_latents, check_sizes, halvings

SLOPE, GAIN = 0.2, math.sqrt(2)  # of the leaky rectifier, and what keeps the size of its outputs
TAPS = (1, 3, 3, 1)
EPSILON = 1e-8
FULL_WIDTH_UP_TO = 64  # pixels a side; beyond, channels are halved as the side doubles


class StyleGenerator(nn.Module):
    """Latents (n, latent_size) → images (n, channels, size, size), about in [-1, 1]; the authors' network for CIFAR-10.

    An image doubles from a start of 4 to 7 pixels; its border is cut off. Noise is given (n, noise_size), or always the same.
    """

    def __init__(
        self, size: int = 32, channels: int = 3, width: int = 512, latent_size: int = 512, mapping_layers: int = 2
    ) -> None:
        super().__init__()
        check_sizes(size=size, channels=channels, width=width, latent_size=latent_size, mapping_layers=mapping_layers)
        self.size, self.latent_size = size, latent_size
        sides = sides_of(size)
        widths = [width_at(side, width) for side in sides]
        mapped = [latent_size] * mapping_layers + [width]
        self.mapping = nn.Sequential(*[MappingLayer(inputs, outputs) for inputs, outputs in pairwise(mapped)])
        self.constant = nn.Parameter(torch.randn(widths[0], sides[0], sides[0]))
        layers = [StyleLayer(widths[0], widths[0], width, sides[0])]
        for (inputs, outputs), side in zip(pairwise(widths), sides[1:], strict=True):
            layers += [StyleLayer(inputs, outputs, width, side, double=True), StyleLayer(outputs, outputs, width, side)]
        self.layers = nn.ModuleList(layers)
        self.to_images = nn.ModuleList(ToImages(inputs, channels, width) for inputs in widths)
        self.grow = Filter(gain=4)

    @property
    def noise_size(self) -> int:
        return sum(self._noise_sizes)

    @property
    def _noise_sizes(self) -> list[int]:
        return [layer.noise.numel() for layer in self.layers]  # pyright: ignore[reportCallIssue]

    def forward(self, latents: Tensor, noise: Tensor | None = None) -> Tensor:
        check_latents(latents, self.latent_size)
        styles = self.mapping(latents * (latents.square().mean(1, keepdim=True) + EPSILON).rsqrt())
        noises = [None] * len(self.layers) if noise is None else noise.split(self._noise_sizes, dim=1)
        x = self.layers[0](self.constant.expand(latents.shape[0], -1, -1, -1), styles, noises[0])
        images = self.to_images[0](x, styles)
        for index, to_images in enumerate(list(self.to_images)[1:]):
            for layer in (2 * index + 1, 2 * index + 2):
                x = self.layers[layer](x, styles, noises[layer])
            images = self.grow.doubled(images) + to_images(x, styles)
        return centre(images, self.size)


class MappingLayer(nn.Module):
    """Linear, with a hundredth of the learning rate of everything else."""

    def __init__(self, inputs: int, outputs: int, rate: float = 0.01) -> None:
        super().__init__()
        self.linear = EqualLinear(inputs, outputs, rate=rate)

    def forward(self, x: Tensor) -> Tensor:
        return activated(self.linear(x))


class StyleLayer(nn.Module):
    """3x3 convolution under a style, which may double the map; then noise, bias, activation."""

    noise: Tensor

    def __init__(self, inputs: int, outputs: int, style_size: int, side: int, double: bool = False) -> None:
        super().__init__()
        self.convolution = ModulatedConvolution(inputs, outputs, 3, style_size, double=double)
        self.strength = nn.Parameter(torch.zeros(()))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.register_buffer("noise", torch.randn(side, side))

    def forward(self, x: Tensor, styles: Tensor, noise: Tensor | None) -> Tensor:
        noise = self.noise if noise is None else noise.unflatten(1, (1, *self.noise.shape))
        x = self.convolution(x, styles) + self.strength * noise
        return activated(x + self.bias[:, None, None])


class ToImages(nn.Module):
    """1x1 convolution under a style, which may make its outputs as large as it likes."""

    def __init__(self, inputs: int, channels: int, style_size: int) -> None:
        super().__init__()
        self.convolution = ModulatedConvolution(inputs, channels, 1, style_size, demodulate=False)
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor, styles: Tensor) -> Tensor:
        return self.convolution(x, styles) + self.bias[:, None, None]


class ModulatedConvolution(nn.Module):
    """A convolution with weights s_i w_oi of unit length for each output: inputs are scaled by s_i, outputs by 1 / |s w_o|."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, style_size: int, demodulate: bool = True, double: bool = False
    ) -> None:
        super().__init__()
        self.demodulate = demodulate
        self.weight = nn.Parameter(torch.randn(outputs, inputs, kernel, kernel))
        self.scale = 1 / math.sqrt(inputs * kernel**2)
        self.style = EqualLinear(style_size, inputs, bias=1.0)
        self.filter = Filter(gain=4) if double else None

    def forward(self, x: Tensor, styles: Tensor) -> Tensor:
        style, weight = self.style(styles), self.weight * self.scale
        x = x * style[:, :, None, None]
        if self.filter is None:
            x = F.conv2d(x, weight, padding=weight.shape[-1] // 2)
        else:
            x = self.filter(F.conv_transpose2d(x, weight.transpose(0, 1), stride=2), padding=1)
        if not self.demodulate:
            return x
        squares = style.square() @ weight.square().sum((2, 3)).T
        return x * (squares + EPSILON).rsqrt()[:, :, None, None]


class EqualLinear(nn.Module):
    def __init__(self, inputs: int, outputs: int, bias: float = 0.0, rate: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / rate)
        self.bias = nn.Parameter(torch.full((outputs,), bias / rate))
        self.scale, self.rate = rate / math.sqrt(inputs), rate

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight * self.scale, self.bias * self.rate)


class EqualConvolution(nn.Module):
    """With bias and activation; one that halves the map filters it before."""

    def __init__(self, inputs: int, outputs: int, kernel: int, halve: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs, kernel, kernel))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.scale = 1 / math.sqrt(inputs * kernel**2)
        self.filter = Filter(gain=1) if halve else None

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight * self.scale
        if self.filter is None:
            return activated(F.conv2d(x, weight, self.bias, padding=weight.shape[-1] // 2))
        return activated(F.conv2d(self.filter(x, padding=2), weight, self.bias, stride=2))


class Filter(nn.Module):
    """The outer product of the taps with themselves, of a sum that is the gain, on every channel by itself."""

    taps: Tensor

    def __init__(self, gain: float) -> None:
        super().__init__()
        taps = torch.tensor(TAPS, dtype=torch.get_default_dtype())
        taps = torch.outer(taps, taps)
        self.register_buffer("taps", gain * taps / taps.sum(), persistent=False)

    def forward(self, x: Tensor, padding: int) -> Tensor:
        channels = x.shape[1]
        return F.conv2d(x, self.taps.to(x.dtype).expand(channels, 1, -1, -1), padding=padding, groups=channels)

    def doubled(self, x: Tensor) -> Tensor:
        channels = x.shape[1]
        taps = self.taps.to(x.dtype).expand(channels, 1, -1, -1)
        return F.conv_transpose2d(x, taps, stride=2, padding=1, groups=channels)


def activated(x: Tensor) -> Tensor:
    return GAIN * F.leaky_relu(x, SLOPE)


def sides_of(size: int) -> list[int]:
    """Of the maps: the first has 4 to 7 pixels, each other twice as many as the one before, the last enough for the image."""
    doublings = halvings(size)
    return [-(-size // 2**doublings) * 2**index for index in range(doublings + 1)]


def width_at(side: int, width: int) -> int:
    """Channels of a map."""
    return max(1, min(width, width * FULL_WIDTH_UP_TO // side))


class StyleDiscriminator(nn.Module):
    """Images (n, c, h, w) → features (n, width), the averaged last map, and scores (n, 1), which depend on the whole batch."""

    def __init__(self, size: int = 32, channels: int = 3, width: int = 512, group: int = 32) -> None:
        super().__init__()
        check_sizes(size=size, channels=channels, width=width, group=group)
        widths = [width_at(side, width) for side in reversed(sides_of(size))]
        self.first = EqualConvolution(channels, widths[0], 1)
        blocks = [(EqualConvolution(i, i, 3), EqualConvolution(i, o, 3, halve=True)) for i, o in pairwise(widths)]
        self.convolutions = nn.Sequential(*[layer for block in blocks for layer in block])
        self.feature_size = last = widths[-1]
        self.deviation = BatchDeviation(group)
        self.mixed = EqualConvolution(last + 1, last, 3)
        side = size // 2 ** len(blocks)
        self.hidden, self.score = EqualLinear(last * side**2, last), EqualLinear(last, 1)

    def features(self, images: Tensor) -> Tensor:
        return self._map(images).mean((2, 3))

    def forward(self, images: Tensor, batch: int) -> tuple[Tensor, Tensor]:
        """Of this process's rows of a global batch."""
        x = self._map(images)
        with_deviation = torch.cat([x, self.deviation(x, batch)], dim=1)
        hidden = activated(self.hidden(self.mixed(with_deviation).flatten(1)))
        return x.mean((2, 3)), self.score(hidden)

    def _map(self, images: Tensor) -> Tensor:
        return self.convolutions(self.first(images))


class BatchDeviation(nn.Module):
    """(n, c, h, w) → (n, 1, h, w): how much samples of a group differ; sample i is in group i mod (batch / group size)."""

    def __init__(self, group: int) -> None:
        super().__init__()
        self.group = group

    def forward(self, x: Tensor, batch: int) -> Tensor:
        groups = max(1, batch // self.group)
        rows = distributed.local_slice(batch)
        member = torch.arange(rows.start, rows.stop, device=x.device) % groups
        share = F.one_hot(member, groups).to(x.dtype)  # (n, groups)
        sizes = F.one_hot(torch.arange(batch, device=x.device) % groups, groups).sum(0).to(x.dtype)
        values = x.flatten(1)
        mean = distributed.total(share.T @ values) / sizes[:, None]
        variance = distributed.total(share.T @ (values - share @ mean).square()) / sizes[:, None]
        deviation = (variance + EPSILON).sqrt().mean(1)  # (groups,)
        return (share @ deviation)[:, None, None, None].expand(-1, 1, *x.shape[2:])
