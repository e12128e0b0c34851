"""Exponential moving averages: a network for use after training (EMA), and one whose outputs are targets (Teacher)."""

import copy
from collections.abc import Iterable

import torch
from torch import Tensor, nn


class EMA(nn.Module):
    """ema ← decay · ema + (1 − decay) · network, running statistics too; other buffers are copied, as unit vectors are."""

    def __init__(self, network: nn.Module, decay: float = 0.99) -> None:
        super().__init__()
        if not 0 <= decay < 1:
            raise ValueError(f"decay must be in [0, 1), got {decay}")
        self.decay = decay
        self.network = copy.deepcopy(network).requires_grad_(False).eval()

    def train(self, mode: bool = True) -> "EMA":
        """Stays in evaluation mode: the module that holds it must not make it collect batch statistics."""
        return super().train(False)

    @torch.no_grad()
    def update(self, network: nn.Module) -> None:
        (own, copied), (other, current) = _tensors(self.network), _tensors(network)
        follow(own, other, 1 - self.decay)
        if copied:
            torch._foreach_copy_(copied, current)  # pyright: ignore[reportPrivateImportUsage]


def follow(own: Iterable[Tensor], other: Iterable[Tensor], weight: float) -> None:
    """own ← own + weight · (other − own)."""
    torch._foreach_lerp_([*own], [*other], weight)  # pyright: ignore[reportPrivateImportUsage]


def _tensors(network: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """What is averaged, parameters and running statistics, and what is copied, other buffers."""
    averaged: list[Tensor] = list(network.parameters())
    copied: list[Tensor] = []
    for name, buffer in network.named_buffers():
        (averaged if name.rpartition(".")[2].startswith("running_") else copied).append(buffer)
    return averaged, copied


class Teacher(nn.Module):
    """Copies whose parameters follow: copy ← decay · copy + (1 − decay) · network; they train and evaluate as their owner."""

    def __init__(self, *networks: nn.Module) -> None:
        super().__init__()
        self.networks = nn.ModuleList(copy.deepcopy(network).requires_grad_(False) for network in networks)

    @torch.no_grad()
    def update(self, decay: float, *networks: nn.Module) -> None:
        for own, followed in zip(self.networks, networks, strict=True):
            follow(own.parameters(), followed.parameters(), 1 - decay)
