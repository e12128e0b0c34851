"""Exponential moving average of a network, buffers included."""

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn


class MovingAverage(nn.Module):
    """A frozen copy of a network that follows it: average ← decay · average + (1 − decay) · network.

    Running statistics are averaged like parameters. Other buffers (power-iteration vectors, counters) are copied, because an
    average of unit vectors is no unit vector.
    """

    skip: Tensor | None = None  # where it is set and true, parameters stay as they are; nobody reads it to find out

    def __init__(self, network: nn.Module, decay: float = 0.99) -> None:
        super().__init__()
        if not 0 <= decay < 1:
            raise ValueError(f"decay must be in [0, 1), got {decay}")
        self.decay = decay
        self.network = copy.deepcopy(network).requires_grad_(False).eval()

    def train(self, mode: bool = True) -> "MovingAverage":
        """Stays in evaluation mode: a module that holds the average must not set it to collecting batch statistics."""
        return super().train(False)

    @torch.no_grad()
    def update(self, network: nn.Module) -> None:
        own, other = _tensors(self.network), _tensors(network)
        follow(own.averaged, other.averaged, 1 - self.decay, self.skip)
        if own.copied:
            torch._foreach_copy_(own.copied, other.copied)  # pyright: ignore[reportPrivateImportUsage]


def follow(own: list[Tensor], other: list[Tensor], weight: float, skip: Tensor | None) -> None:
    """own ← own + weight · (other − own), unless `skip` is true, which nobody reads to find out."""
    weights = weight if skip is None or not own else [own[0].new_full((), weight).masked_fill_(skip, 0)] * len(own)
    torch._foreach_lerp_(own, other, weights)  # pyright: ignore[reportPrivateImportUsage]


class _Tensors(NamedTuple):
    averaged: list[Tensor]
    copied: list[Tensor]


def _tensors(network: nn.Module) -> _Tensors:
    """In one walk through the network: three of torch's own, which also make names, took a hundredth of a small step."""
    averaged: dict[int, Tensor] = {}  # by identity, because a parameter may be shared
    copied: list[Tensor] = []
    for module in network.modules():
        averaged |= {id(weight): weight for weight in module._parameters.values() if weight is not None}
        for name, buffer in module._buffers.items():
            if buffer is None:
                continue
            if name.startswith("running_"):
                averaged[id(buffer)] = buffer
            else:
                copied.append(buffer)
    return _Tensors(list(averaged.values()), copied)
