"""LARS: momentum SGD whose step on each weight is held below a share of that weight's own length."""

from collections.abc import Iterable

import torch
from torch import nn

MOMENTUM = 0.9
TRUST = 0.02  # the share


class LARS(torch.optim.SGD):
    """In the clipped form (solo-learn's for CIFAR): a gradient is only ever shortened, so that |lr · g| ≤ TRUST · |w|.

    Vectors (biases, scales of norms) are neither shortened nor decayed.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float, weight_decay: float) -> None:
        super().__init__(list(parameters), lr=lr, momentum=MOMENTUM)
        self.decay = weight_decay  # part of the shortened gradient, so not for SGD to add

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None and weight.ndim > 1:
                    _shorten(weight, group["lr"], self.decay)
        super().step()


def _shorten(weight: nn.Parameter, lr: float, decay: float) -> None:
    assert weight.grad is not None
    length, slope = weight.norm(), weight.grad.norm()
    allowed = TRUST * length / (slope + decay * length)
    share = torch.where((length > 0) & (slope > 0), (allowed / lr).clamp(max=1), 1)
    weight.grad.add_(weight, alpha=decay).mul_(share)
