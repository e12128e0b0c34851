"""One whole step of a diffusion model as slow as it reads; the network is handed in, the draws of a step are inputs."""

from dataclasses import dataclass, field

import torch
from reference_baselines import gradients, length
from reference_losses import Terms
from reference_step import EMA, AdamW
from torch import Tensor, nn


@dataclass
class DDPM:
    """`network` is the UNet; `limit` the longest gradient, `decay` that of the EMA after its first steps."""

    network: nn.Module
    ema: EMA
    optimiser: AdamW
    limit: float | None
    decay: float
    gradients: dict[str, Tensor] = field(default_factory=dict)  # of the last step, before they are clipped

    def step(self, images: Tensor, noise: Tensor, times: list[int], dropped: dict[str, Tensor], number: int) -> Terms:
        """`dropped` has for each layer with dropout the factors of its activations (n, …)."""
        noised = torch.stack([noised_image(*one) for one in zip(images, noise, times, strict=True)])
        with_factors(self.network, dropped)
        predicted = self.network(noised, torch.tensor(times)).sample
        errors = [(one - other).square().sum() / one.numel() for one, other in zip(noise, predicted, strict=True)]
        loss = torch.stack(errors).sum() / len(errors)
        self.gradients = gradients(loss, self.network)
        norm = length(self.gradients)
        shorter = 1.0 if self.limit is None or norm <= self.limit else self.limit / float(norm)
        self.optimiser.step(self.network, {name: shorter * g for name, g in self.gradients.items()})
        self.ema.decay = min(self.decay, (1 + number) / (10 + number))
        self.ema.update(self.network)
        return {"network/noise": loss.detach(), "network/gradient_norm": norm}


def noised_image(image: Tensor, noise: Tensor, time: int) -> Tensor:
    """After steps 0 to `time`, step by step: each keeps √(1 − β) of what was there and adds noise of variance β."""
    kept = 1.0
    for step in range(time + 1):
        kept *= 1 - (1e-4 + (0.02 - 1e-4) * step / 999)
    signal, deviation = (torch.tensor(value**0.5, dtype=torch.float32).double() for value in (kept, 1 - kept))
    return signal * image + deviation * noise


class Factors(nn.Module):
    def __init__(self, factors: Tensor) -> None:
        super().__init__()
        self.factors = factors

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * self.factors


def with_factors(network: nn.Module, dropped: dict[str, Tensor]) -> None:
    for name, factors in dropped.items():
        network.set_submodule(name, Factors(factors))
