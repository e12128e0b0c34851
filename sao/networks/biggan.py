"""The generator of BigGAN-deep without classes: the latent alone conditions every BatchNorm."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from sao.networks.batchnorm import ConditionalBatchNorm
from sao.networks.checks import check_latents, check_sizes
from sao.networks.convolution import sum_of_patches
from sao.networks.layout import ImageNetwork
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


class Generator(ImageNetwork):
    """Latents (n, latent_size) → images (n, channels, size, size) in [-1, 1].

    The defaults are the paper's 32x32 network. Any size from 8 to 256 works: the image grows by doublings from a start of
    4 to 8 pixels, and what is too much at the border is cut off.

    A frugal one works through every layer a few samples at a time and remembers the layer's input only, for less than half of
    the memory of a training pass; images, gradients and statistics are the same.
    """

    frugal = False

    def __init__(self, size: int = 32, channels: int = 3, width: int = 128, depth: int = 2, latent_size: int = 128) -> None:
        super().__init__()
        if not 8 <= size <= 256:
            raise ValueError(f"size must be between 8 and 256, got {size}")
        check_sizes(channels=channels, width=width, depth=depth, latent_size=latent_size)
        doublings = max(1, (size // 4).bit_length() - 1)
        self.size, self.latent_size = size, latent_size
        self.start = -(-size // 2**doublings)
        multipliers = [(i * width, o * width) for i, o in _MULTIPLIERS[doublings]]
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
        self.norm = ConditionalBatchNorm(multipliers[-1][1], None)
        self.last = ToImages(multipliers[-1][1], channels)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight)
        self.use_layout(torch.channels_last)
        normalise_spectrally(self)

    def forward(self, latents: Tensor) -> Tensor:
        check_latents(latents, self.latent_size)
        condition = self.condition(latents)
        x = self.first(latents).reshape(-1, self.first_channels, self.start, self.start)
        x = x.contiguous(memory_format=self.layout)
        for block in self.blocks:
            x = block(x, condition, self.frugal)
        images = torch.tanh(_layer(self.norm, self.last, _to_images, x, None, self.frugal))
        margin = (images.shape[-1] - self.size) // 2
        return images[..., margin : margin + self.size, margin : margin + self.size]


def _layer(
    norm: nn.Module,
    convolution: nn.Module,
    function: Callable[[Tensor, Tensor, Tensor], Tensor],
    x: Tensor,
    condition: Tensor | None,
    frugal: bool,
    double: bool = False,
) -> Tensor:
    """convolution(relu(norm(x))), with the image doubled in between; frugally, by the function of the weights that it is."""
    if not frugal:
        return convolution(_doubled(F.relu_(norm(x, condition)), double))
    assert isinstance(norm, ConditionalBatchNorm)
    assert isinstance(convolution, nn.Conv2d)
    assert convolution.bias is not None
    # The weights are asked for once: spectral normalisation refines its estimate each time.
    weights = convolution.weight, convolution.bias
    return norm.then(lambda y, *weights: function(_doubled(y, double), *weights), weights, x, condition)


def _doubled(x: Tensor, wanted: bool) -> Tensor:
    return F.interpolate(x, scale_factor=2) if wanted else x


def _convolved(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    if torch.is_grad_enabled() and not torch.is_autocast_enabled(x.device.type):
        return _GraphOfConvolution.apply(x, weight, bias)  # pyright: ignore[reportReturnType]
    return F.conv2d(x, weight, bias, padding=weight.shape[-1] // 2)


class _GraphOfConvolution(torch.autograd.Function):
    """A convolution to differentiate that is not computed: in its backward pass a layer in parts asks for the graph alone."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(x, weight)
        return x.new_empty(()).expand(len(x), len(weight), *x.shape[2:])

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight = ctx.saved_tensors
        padding, biases = [weight.shape[-1] // 2] * 2, [len(weight)]
        return torch.ops.aten.convolution_backward(
            gradient, x, weight, biases, [1, 1], padding, [1, 1], False, [0, 0], 1, [True, True, True]
        )


class Block(nn.Module):
    """Bottleneck block: 1x1 down, two 3x3, 1x1 up; the shortcut drops the channels that the output does not have."""

    def __init__(self, inputs: int, outputs: int, condition_size: int, upsample: bool) -> None:
        super().__init__()
        self.outputs, self.upsample = outputs, upsample
        hidden = max(1, inputs // BOTTLENECK)
        sizes = [(inputs, hidden, 1), (hidden, hidden, 3), (hidden, hidden, 3), (hidden, outputs, 1)]
        self.norms = nn.ModuleList(ConditionalBatchNorm(i, condition_size) for i, _, _ in sizes)
        self.convolutions = nn.ModuleList(nn.Conv2d(i, o, kernel, padding=kernel // 2) for i, o, kernel in sizes)

    def forward(self, x: Tensor, condition: Tensor, frugal: bool = False) -> Tensor:
        residual = x
        for index, (norm, convolution) in enumerate(zip(self.norms, self.convolutions, strict=True)):
            residual = _layer(norm, convolution, _convolved, residual, condition, frugal, double=self.upsample and index == 1)
        shortcut = x[:, : self.outputs]
        if self.upsample:
            return _PlusDoubled.apply(residual, shortcut)  # pyright: ignore[reportReturnType]
        residual += shortcut
        return residual


class _PlusDoubled(torch.autograd.Function):
    """residual += doubled(shortcut), without ever making what is added: it would be the largest tensor there is."""

    @staticmethod
    def forward(ctx, residual: Tensor, shortcut: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.mark_dirty(residual)
        quarters = residual.unflatten(3, (-1, 2)).unflatten(2, (-1, 2))  # (n, c, h, 2, w, 2)
        quarters += shortcut[:, :, :, None, :, None]
        return residual

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        return gradient, F.avg_pool2d(gradient, 2, divisor_override=1)


class ToImages(nn.Conv2d):
    """3x3 convolution from many channels to one or three."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3, padding=1)

    def forward(self, input: Tensor) -> Tensor:
        return _to_images(input, self.weight, self.bias)  # pyright: ignore[reportArgumentType]


def _to_images(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The convolution of `ToImages`.

    On a CPU the library's kernels waste most of their width on so few outputs; here each position is first multiplied into the
    3x3 patch that it contributes to, and the patches are summed where they overlap.
    """
    if x.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return F.conv2d(x, weight, bias, padding=1)
    rows = weight.flip(2, 3).permute(2, 3, 0, 1).flatten(0, 2)
    return sum_of_patches(x.permute(0, 2, 3, 1).flatten(0, 2) @ rows.T, x) + bias[:, None, None]


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

    def forward(self, x: Tensor, condition: Tensor, frugal: bool = False) -> Tensor:
        query = self.query(x).flatten(2)
        key = F.max_pool2d(self.key(x), 2).flatten(2)
        value = F.max_pool2d(self.value(x), 2).flatten(2)
        weights = torch.softmax(query.transpose(1, 2) @ key, dim=-1)
        attended = (value @ weights.transpose(1, 2)).reshape(len(x), -1, *x.shape[2:])
        return x + self.strength * self.output(attended)
