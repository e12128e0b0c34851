"""Exponential moving averages: a network for use after training (EMA), and one whose outputs are targets (Teacher)."""

import copy
from typing import Any, NamedTuple

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
        # What it follows, and the tensors of both: walks through two networks in every step took a fiftieth of a small one.
        self._followed: tuple[nn.Module, _Places, _Places] | None = None

    def train(self, mode: bool = True) -> "EMA":
        """Stays in evaluation mode: the module that holds it must not make it collect batch statistics."""
        return super().train(False)

    @torch.no_grad()
    def update(self, network: nn.Module) -> None:
        if self._followed is None or self._followed[0] is not network:
            self._followed = network, _Places.of(self.network), _Places.of(network)
        _, own, other = self._followed
        follow(_at(own.averaged), _at(other.averaged), 1 - self.decay)
        if own.copied:
            torch._foreach_copy_(_at(own.copied), _at(other.copied))  # pyright: ignore[reportPrivateImportUsage]


def follow(own: list[Tensor], other: list[Tensor], weight: float) -> None:
    """own ← own + weight · (other − own)."""
    torch._foreach_lerp_(own, other, weight)  # pyright: ignore[reportPrivateImportUsage]


class _Places(NamedTuple):
    """Where a network holds its tensors: which dictionary, and under which name. Those there now may be others tomorrow."""

    averaged: list[tuple[dict[str, Any], str]]
    copied: list[tuple[dict[str, Any], str]]

    @classmethod
    def of(cls, network: nn.Module) -> "_Places":
        averaged: dict[int, tuple[dict[str, Any], str]] = {}  # by identity, because a parameter may be shared
        copied = []
        for module in network.modules():
            averaged |= {
                id(value): (module._parameters, name) for name, value in module._parameters.items() if value is not None
            }
            for name, buffer in module._buffers.items():
                if buffer is None:
                    continue
                if name.startswith("running_"):
                    averaged[id(buffer)] = module._buffers, name
                else:
                    copied.append((module._buffers, name))
        return cls(list(averaged.values()), copied)


def _at(places: list[tuple[dict[str, Any], str]]) -> list[Tensor]:
    return [holder[name] for holder, name in places]


class Teacher(nn.Module):
    """Copies whose parameters follow: copy ← decay · copy + (1 − decay) · network; they train and evaluate as their owner."""

    def __init__(self, *networks: nn.Module) -> None:
        super().__init__()
        self.networks = nn.ModuleList(copy.deepcopy(network).requires_grad_(False) for network in networks)

    @torch.no_grad()
    def update(self, decay: float, *networks: nn.Module) -> None:
        for own, followed in zip(self.networks, networks, strict=True):
            weights: list[Tensor] = list(own.parameters())
            current: list[Tensor] = list(followed.parameters())
            follow(weights, current, 1 - decay)
