"""The GAN that the paper starts from: its networks and its smoothness with the hinge loss on one score for each image."""

from typing import Literal

import torch

from sao.core import objectives
from sao.core.jacobian import smoothness_penalty
from sao.methods.base import Context, Scalars
from sao.methods.encoders import discriminator_for
from sao.methods.gan import Adversarial, Side, SmoothOptions


class Options(SmoothOptions):
    """A GAN with the hinge loss and the paper's penalty on Jacobian norms, here of the score's gradient."""

    name: Literal["hinge"] = "hinge"

    def build(self, context: Context) -> "HingeGAN":
        discriminator = discriminator_for(
            context.encoder, context.shape, 1, self.spectral_normalisation, jacobians=self.smoothness_weight > 0
        )
        return HingeGAN(discriminator, self.generator.build(context.shape), self, context)


class HingeGAN(Adversarial):
    """The score is an embedding of one number."""

    headline = ("discriminator/adversarial_hinge", "generator/adversarial_hinge")

    def discriminator_losses(self, real: Side, fake: Side, step: int) -> Scalars:
        losses = {"adversarial_hinge": objectives.adversarial_hinge.unchecked(real.embeddings, fake.embeddings)}
        if len(real.norms) > 0:
            penalty = smoothness_penalty.unchecked(torch.cat([real.norms, fake.norms]), self.lipschitz)
            losses["smoothness"] = self.smoothness_weight * penalty
        return losses

    def generator_losses(self, real: Side, fake: Side, step: int) -> Scalars:
        return {"adversarial_hinge": -fake.embeddings.mean()}
