"""A convolution of the generator whose value is not computed again where only its graph is asked for."""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


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
