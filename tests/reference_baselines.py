"""One whole step of each baseline, as slow as it reads; a loss is a loop over samples, an optimiser is written out."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
from reference_losses import Terms, unit
from reference_step import EMA, AdamW
from torch import Tensor, nn


class SGD:
    """With momentum; what decays a weight is part of its gradient."""

    def __init__(self, learning_rate: float, weight_decay: float, momentum: float = 0.9) -> None:
        self.learning_rate, self.weight_decay, self.momentum = learning_rate, weight_decay, momentum
        self.velocity: dict[str, Tensor] = {}

    @torch.no_grad()
    def step(self, network: nn.Module, gradients: dict[str, Tensor]) -> None:
        for name, weight in network.named_parameters():
            before = self.velocity.get(name, torch.zeros_like(weight))
            self.velocity[name] = self.momentum * before + self.direction(weight, gradients[name])
            weight.copy_(weight - self.learning_rate * self.velocity[name])

    def direction(self, weight: Tensor, gradient: Tensor) -> Tensor:
        return gradient + self.weight_decay * weight


class LARS(SGD):
    """The decayed gradient of a matrix is clipped so that its step is at most 0.02 of the matrix; a vector does not decay."""

    def direction(self, weight: Tensor, gradient: Tensor) -> Tensor:
        if weight.ndim < 2:
            return gradient
        longest = 0.02 * weight.norm() / (gradient.norm() + self.weight_decay * weight.norm())
        return super().direction(weight, gradient) * min(1.0, float(longest) / self.learning_rate)


class Optimiser(Protocol):
    def step(self, network: nn.Module, gradients: dict[str, Tensor]) -> None: ...


@dataclass
class TwoViews:
    """`network` ends in the projection; a step is told the two views of its batch, each of which passes alone."""

    network: nn.Module
    ema: EMA | None
    optimiser: Optimiser
    losses: Callable[[Tensor, Tensor], Terms]  # of the projections of both views
    gradients: dict[str, Tensor] = field(default_factory=dict)  # of the last step

    def step(self, one: Tensor, other: Tensor) -> Terms:
        projections = self.network(one)[1], self.network(other)[1]
        losses = self.losses(*projections)
        self.gradients = gradients(torch.stack(list(losses.values())).sum(), self.network)
        self.optimiser.step(self.network, self.gradients)
        if self.ema is not None:
            self.ema.update(self.network)
        logged = {**losses, "spread": spread(projections[0]), "gradient_norm": length(self.gradients)}
        return {f"network/{name}": value.detach() for name, value in logged.items()}


@dataclass
class Supervised:
    """Cross-entropy of a linear map of the features."""

    classifier: nn.Module
    ema: EMA
    optimiser: AdamW
    gradients: dict[str, Tensor] = field(default_factory=dict)

    def step(self, images: Tensor, labels: Tensor) -> Terms:
        logits = self.classifier(images)[1]
        loss = cross_entropy(logits, labels)
        self.gradients = gradients(loss, self.classifier)
        self.optimiser.step(self.classifier, self.gradients)
        self.ema.update(self.classifier)
        right = [float(row.argmax() == label) for row, label in zip(logits, labels, strict=True)]
        return {
            "classifier/cross_entropy": loss.detach(),
            "classifier/accuracy": torch.tensor(sum(right) / len(right)),
            "classifier/gradient_norm": length(self.gradients),
        }


def nt_xent(one: Tensor, other: Tensor, temperature: float) -> Tensor:
    """−log of the share that an image's other view has among all views but itself, by a loop over all views."""
    views, n = unit(torch.cat([one, other])), len(one)
    losses = []
    for i, view in enumerate(views):
        similar = torch.stack([view @ views[j] / temperature for j in range(2 * n) if j != i])
        positive = view @ views[(i + n) % (2 * n)] / temperature
        losses.append(-torch.log(positive.exp() / similar.exp().sum()))
    return torch.stack(losses).sum() / (2 * n)


def vicreg(one: Tensor, other: Tensor, invariance: float, variance: float, covariance: float) -> Tensor:
    """How far the views are apart, how much deviations lack to 1, and the squared covariances of different features."""
    n, p = one.shape
    apart = (one - other).square().sum() / (n * p)
    lacking, correlated = [], []
    for z in (one, other):
        matrix = (z - z.mean(0)).T @ (z - z.mean(0)) / (n - 1)
        deviations = (torch.diag(matrix) + 1e-4).sqrt()
        lacking.append((1 - deviations).clamp(min=0).sum() / p)
        correlated.append((matrix - torch.diag(torch.diag(matrix))).square().sum() / p)
    return invariance * apart + variance * (lacking[0] + lacking[1]) / 2 + covariance * (correlated[0] + correlated[1])


def spread(projections: Tensor) -> Tensor:
    """The root of the total variance of the directions."""
    directions = unit(projections.detach())
    return (directions - directions.mean(0)).square().sum(1).mean().sqrt()


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    losses = [-torch.log(row.exp()[label] / row.exp().sum()) for row, label in zip(logits, labels, strict=True)]
    return torch.stack(losses).sum() / len(losses)


def gradients(loss: Tensor, network: nn.Module) -> dict[str, Tensor]:
    """Of every parameter that the loss depends on."""
    names, weights = zip(*network.named_parameters(), strict=True)
    found = torch.autograd.grad(loss, weights, allow_unused=True, retain_graph=True)
    return {name: g for name, g in zip(names, found, strict=True) if g is not None}


def length(gradients: dict[str, Tensor]) -> Tensor:
    return torch.cat([g.flatten() for g in gradients.values()]).square().sum().sqrt()
