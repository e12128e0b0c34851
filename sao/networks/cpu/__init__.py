"""Operators written for the CPU, and the one switch in front of them; on any other device torch's own run.

They are equal to torch's own, which define every network, in value, gradient, forward mode and double backward pass.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_portable = False


def use_cpu_operators(tensor: Tensor) -> bool:
    return not _portable and tensor.device.type == "cpu"


def layout_of(images: Tensor) -> torch.memory_format:
    channels_last = images.ndim == 4 and images.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if channels_last else torch.contiguous_format


@contextmanager
def portable(wanted: bool = True) -> Iterator[None]:
    """Inside, torch's own operators run on the CPU too, and networks that are made or moved get weights in its layout."""
    global _portable
    before, _portable = _portable, wanted
    try:
        yield
    finally:
        _portable = before


class Once(torch.autograd.Function):
    """value(*tensors), whose gradients are derivative(*cotangents, *tensors); these are not differentiated again."""

    @staticmethod
    def forward(ctx, value: Callable[..., Any], derivative: Callable[..., Any], *tensors: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.derivative = derivative
        ctx.save_for_backward(*tensors)
        return value(*tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx, *cotangents: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        return None, None, *ctx.derivative(*cotangents, *ctx.saved_tensors)
