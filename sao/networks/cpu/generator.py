"""Operators of the generator: what it does where images are largest, without tensors that are not needed."""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from sao.networks.cpu.convolution import sum_of_patches


def to_images(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A 3x3 convolution from many channels to one or three.

    The library's kernels waste most of their width on so few outputs. Here each position is multiplied into its 3x3 patch of
    the result, and overlapping patches are summed.
    """
    if torch.is_autocast_enabled("cpu"):
        return F.conv2d(x, weight, bias, padding=1)
    rows = weight.flip(2, 3).permute(2, 3, 0, 1).flatten(0, 2)
    return sum_of_patches(x.permute(0, 2, 3, 1).flatten(0, 2) @ rows.T, x) + bias[:, None, None]


def convolved_or_graph(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The convolution of a recomputed layer: values where gradients are off, and only the graph where they are on."""
    if torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu"):
        return _GraphOfConvolution.apply(x, weight, bias)  # pyright: ignore[reportReturnType]
    return F.conv2d(x, weight, bias, padding=weight.shape[-1] // 2)


class _GraphOfConvolution(torch.autograd.Function):
    """A convolution to differentiate that is not computed."""

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


def add_doubled(residual: Tensor, shortcut: Tensor) -> Tensor:
    """residual += doubled(shortcut), without ever making what is added: it would be the largest tensor there is."""
    return _AddDoubled.apply(residual, shortcut)  # pyright: ignore[reportReturnType]


class _AddDoubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, residual: Tensor, shortcut: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.mark_dirty(residual)
        return _add_doubled(residual, shortcut)

    @staticmethod
    @torch.no_grad()
    def jvp(ctx, residual_tangent: Tensor, shortcut_tangent: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _add_doubled(residual_tangent, shortcut_tangent)

    @staticmethod
    def backward(ctx, gradient: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        return gradient, F.avg_pool2d(gradient, 2, divisor_override=1)


def _add_doubled(residual: Tensor, shortcut: Tensor) -> Tensor:
    quarters = residual.unflatten(3, (-1, 2)).unflatten(2, (-1, 2))  # (n, c, h, 2, w, 2)
    quarters += shortcut[:, :, :, None, :, None]
    return residual
