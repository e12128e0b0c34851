"""The teacher, or target network: an EMA of networks whose outputs are their training targets."""

import copy

import torch
from torch import Tensor, nn

from sao.networks.ema import follow


class Teacher(nn.Module):
    """Copies without gradients; only parameters follow: copy ← decay · copy + (1 − decay) · network.

    Unlike an EMA for use after training, a copy has the mode of its owner. In training its BatchNorm takes the moments of the
    batch and keeps running statistics of its own.
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
