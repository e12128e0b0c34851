"""Exponential moving average of a network, buffers included."""

import copy

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
        averaged, current = _averaged(self.network), _averaged(network)
        follow(averaged, current, 1 - self.decay, self.skip)
        for (name, own), (_, other) in zip(self.network.named_buffers(), network.named_buffers(), strict=True):
            if not _is_statistic(name):
                own.copy_(other)


def follow(own: list[Tensor], other: list[Tensor], weight: float, skip: Tensor | None) -> None:
    """own ← own + weight · (other − own), unless `skip` is true, which nobody reads to find out."""
    weights = weight if skip is None or not own else [own[0].new_full((), weight).masked_fill_(skip, 0)] * len(own)
    torch._foreach_lerp_(own, other, weights)  # pyright: ignore[reportPrivateImportUsage]


def _averaged(network: nn.Module) -> list[Tensor]:
    statistics = [buffer for name, buffer in network.named_buffers() if _is_statistic(name)]
    return [*network.parameters(), *statistics]


def _is_statistic(name: str) -> bool:
    return "running_" in name
