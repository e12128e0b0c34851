"""Optimisers as options: AdamW, and LARS for the two-view methods."""

from collections.abc import Iterable
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.optim import Optimizer

from sao.config.types import Decay, NonNegativeFloat, PositiveFloat, Strict

MOMENTUM = 0.9
TRUST = 0.02  # fraction of a weight's norm by which LARS may move it


class AdamW(Strict):
    """AdamW with the paper's momenta."""

    learning_rate: PositiveFloat = Field(default=2e-4, description="highest learning rate; train.schedule may lower it")
    betas: tuple[Decay, Decay] = Field(default=(0.5, 0.999), description="decay of the first and of the second moment")
    weight_decay: NonNegativeFloat = Field(default=0.0, description="share of a weight taken off, times the learning rate")

    def build(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        options = {"lr": self.learning_rate, "betas": self.betas, "weight_decay": self.weight_decay}
        return torch.optim.AdamW(list(parameters), **options, fused=True)


class DecayedAdamW(AdamW):
    """The discriminator's: with weight decay."""

    weight_decay: NonNegativeFloat = Field(default=0.1, description="share of a weight taken off, times the learning rate")


class ClassifierAdamW(DecayedAdamW):
    learning_rate: PositiveFloat = Field(default=1e-3, description="highest learning rate; train.schedule may lower it")


class ViewsOptimiser(AdamW):
    """AdamW for small runs, LARS or momentum SGD for the published recipes."""

    kind: Literal["adamw", "lars", "sgd"] = Field(
        default="adamw", description="lars: momentum SGD with clipped steps, for large batches; sgd: without the clipping"
    )
    learning_rate: PositiveFloat = Field(default=1e-3, description="highest learning rate; train.schedule may lower it")
    betas: tuple[Decay, Decay] = Field(default=(0.9, 0.999), description="of adamw: decay of the first and second moment")
    weight_decay: NonNegativeFloat = Field(default=1e-4, description="weight decay")

    def build(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        if self.kind == "lars":
            return LARS(parameters, lr=self.learning_rate, weight_decay=self.weight_decay)
        if self.kind == "sgd":
            return MomentumSGD(parameters, lr=self.learning_rate, weight_decay=self.weight_decay)
        return super().build(parameters)


class MomentumSGD(torch.optim.SGD):
    """Torch's, whose step changes nothing where `found_inf` is 1, as that of a fused optimiser; nobody reads it."""

    found_inf: Tensor | None = None

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float, weight_decay: float) -> None:
        super().__init__(list(parameters), lr=lr)
        self.decay = weight_decay

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._change_gradient(weight, weight.grad, group["lr"])
                    self._move(weight, weight.grad, group["lr"])

    def _change_gradient(self, weight: nn.Parameter, gradient: Tensor, lr: float) -> None:
        gradient.add_(weight, alpha=self.decay)

    def _move(self, weight: nn.Parameter, gradient: Tensor, lr: float) -> None:
        velocity = self.state[weight].setdefault("momentum_buffer", torch.zeros_like(weight))
        by = after = MOMENTUM * velocity + gradient
        if self.found_inf is not None:
            by, after = torch.where(self.found_inf == 1, 0, by), torch.where(self.found_inf == 1, velocity, after)
        velocity.copy_(after)
        weight.add_(by, alpha=-lr)


class LARS(MomentumSGD):
    """Momentum SGD with gradients clipped to |lr · g| ≤ TRUST · |w| (solo-learn's); vectors are left as they are."""

    def _change_gradient(self, weight: nn.Parameter, gradient: Tensor, lr: float) -> None:
        if weight.ndim > 1:
            length, slope = weight.norm(), gradient.norm()
            allowed = TRUST * length / (slope + self.decay * length)
            factor = torch.where((length > 0) & (slope > 0), (allowed / lr).clamp(max=1), 1)
            gradient.add_(weight, alpha=self.decay).mul_(factor)
