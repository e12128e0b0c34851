"""A slower copy of networks that learn, whose outputs are what they learn from."""

import copy

import torch
from torch import Tensor, nn

from sao.networks.ema import follow


class Partner(nn.Module):
    """Copies that take no gradient and follow in their parameters alone: copy ← decay · copy + (1 − decay) · network.

    In contrast to an EMA that is used after training, a copy is in the mode of what it belongs to: while that learns,
    a BatchNorm in it takes the moments of its own batch, and keeps running statistics of its own.
    """

    def __init__(self, *networks: nn.Module) -> None:
        super().__init__()
        self.networks = nn.ModuleList(copy.deepcopy(network).requires_grad_(False) for network in networks)

    @torch.no_grad()
    def update(self, decay: float, *networks: nn.Module) -> None:
        for own, followed in zip(self.networks, networks, strict=True):
            weights: list[Tensor] = list(own.parameters())
            current: list[Tensor] = list(followed.parameters())
            follow(weights, current, 1 - decay)
