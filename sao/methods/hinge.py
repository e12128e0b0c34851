"""The GAN that the paper starts from: its networks and its smoothness with the hinge loss on one score for each image."""

from typing import Literal

import torch
from pydantic import Field
from torch import nn

from sao.config.types import NonNegativeFloat, PositiveFloat, PositiveInt
from sao.core import objectives
from sao.core.jacobian import smoothness_penalty
from sao.methods.base import Context, Scalars
from sao.methods.encoders import discriminator_for
from sao.methods.gan import Adversarial, AdversarialOptions, Side
from sao.networks import Discriminator


class Options(AdversarialOptions):
    """A GAN with the hinge loss and the paper's penalty on Jacobian norms."""

    name: Literal["hinge"] = "hinge"
    smoothness_weight: NonNegativeFloat = Field(
        default=5.0, description="λ_s, weight of the penalty on the score's gradient norm"
    )
    lipschitz: PositiveFloat = Field(default=1.0, description="target norm of the score's gradient (Lipschitz target)")
    smooth_every: PositiveInt = Field(default=1, description="steps between two penalties; 1 is the method, more is faster")
    spectral_normalisation: bool = Field(default=False, description="divide D's weights by their spectral norms")

    def build(self, context: Context) -> "HingeGAN":
        discriminator = discriminator_for(
            context.encoder, context.shape, 1, self.spectral_normalisation, jacobians=self.smoothness_weight > 0
        )
        smoothness = self.smoothness_weight, self.lipschitz, self.smooth_every
        return HingeGAN(discriminator, self.generator.build(context.shape), self, context, *smoothness)


class HingeGAN(Adversarial):
    """The score is an embedding of one number."""

    headline = ("discriminator/adversarial_hinge", "generator/adversarial_hinge")

    def __init__(
        self,
        discriminator: Discriminator,
        generator: nn.Module,
        options: AdversarialOptions,
        context: Context,
        smoothness_weight: float = 0.0,
        lipschitz: float = 1.0,
        smooth_every: int = 1,
    ) -> None:
        super().__init__(discriminator, generator, options, context)
        self.smoothness_weight, self.lipschitz, self.smooth_every = smoothness_weight, lipschitz, smooth_every
        self.cycle = smooth_every if smoothness_weight > 0 else 1

    def discriminator_losses(self, real: Side, fake: Side, step: int) -> Scalars:
        losses = {"adversarial_hinge": objectives.adversarial_hinge.unchecked(real.embeddings, fake.embeddings)}
        if len(real.norms) > 0:
            penalty = smoothness_penalty.unchecked(torch.cat([real.norms, fake.norms]), self.lipschitz)
            losses["smoothness"] = self.smoothness_weight * penalty
        return losses

    def generator_losses(self, real: Side, fake: Side, step: int) -> Scalars:
        return {"adversarial_hinge": -fake.embeddings.mean()}

    def penalises(self, step: int) -> bool:
        return self.smoothness_weight > 0 and (step + 1) % self.smooth_every == 0
