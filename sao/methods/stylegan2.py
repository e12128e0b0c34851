"""StyleGAN2 with adaptive augmentation, in the configuration that its authors use for CIFAR-10.

D sees augmented images only, real or generated, so that they do not leak; their probability p rises while D overfits.
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from sao.config.types import Decay, NonNegativeFloat, PositiveFloat, PositiveInt, Probability
from sao.core import distributed
from sao.data.adaptive import augmented, draws_for
from sao.methods.base import Batch, Context, Generative, MethodOptions, Scalars, frozen, images_only, normal_rows
from sao.methods.encoders import image_shape
from sao.methods.optimisers import AdamW
from sao.methods.two_view import spread
from sao.networks import EMA
from sao.networks.stylegan2 import StyleDiscriminator, StyleGenerator

GENERATOR_PENALTY_EVERY = 4  # its penalty is not used here, but the authors keep the learning rate that belongs to it


class Adam(AdamW):
    learning_rate: PositiveFloat = Field(default=0.0025, description="highest learning rate; train.schedule may lower it")
    betas: tuple[Decay, Decay] = Field(default=(0.0, 0.99), description="decay of the first and of the second moment")


class Options(MethodOptions):
    """StyleGAN2-ADA, the generative baseline with the best samples."""

    name: Literal["stylegan2"] = "stylegan2"
    encoders: ClassVar[tuple[str, ...] | None] = ()
    generates: ClassVar[bool] = True
    width: PositiveInt = Field(default=512, description="channels of every map up to 64x64, and numbers in a style")
    latent_size: PositiveInt = Field(default=512, description="numbers in a latent vector")
    mapping_layers: PositiveInt = Field(default=2, description="layers between a latent and its style")
    group: PositiveInt = Field(default=32, description="samples whose deviation the discriminator is told")
    penalty_weight: NonNegativeFloat = Field(default=0.01, description="γ, weight of half the squared slope of real scores")
    penalty_every: PositiveInt = Field(default=16, description="steps between two penalties, each that many times as strong")
    half_life: PositiveInt = Field(default=500_000, description="images after which half of a weight has left the EMA of G")
    half_life_ramp: PositiveFloat = Field(default=0.05, description="share of the images seen that the half-life is at most")
    target: Probability = Field(default=0.6, description="mean sign of real scores that p is steered to; 1: p stays 0")
    adapt_every: PositiveInt = Field(default=4, description="steps between two changes of p")
    adapt_images: PositiveInt = Field(default=500_000, description="images in which p can rise from 0 to 1")
    discriminator_optimiser: Adam = Field(default=Adam(), description="how the discriminator is updated, before lazy scaling")
    generator_optimiser: Adam = Field(default=Adam(), description="how the generator is updated, before lazy scaling")

    def build(self, context: Context) -> "StyleGAN2":
        images_only(context.shape, self.name)
        return StyleGAN2(self, context)


class StyleGAN2(Generative):
    headline = ("discriminator/real", "discriminator/fake", "generator/fake", "augmentation/p")
    features_with = ("discriminator",)
    probability: Tensor
    signs: Tensor

    def __init__(self, options: Options, context: Context) -> None:
        super().__init__()
        channels, size = image_shape(context.shape, "stylegan2")
        self.discriminator = StyleDiscriminator(size, channels, options.width, options.group)
        latents = options.latent_size, options.mapping_layers
        self.generator = StyleGenerator(size, channels, options.width, *latents)
        self.ema_generator = EMA(self.generator, decay=0)
        self.latent_shape = (options.latent_size,)
        self.options, self.batch, self.seed = options, context.batch, context.seed
        self.register_buffer("probability", torch.zeros(()))
        self.register_buffer("signs", torch.zeros(()))  # of real scores, summed since p was last changed
        self.cycle = options.penalty_every
        of_discriminator = lazily(options.discriminator_optimiser, options.penalty_every)
        of_generator = lazily(options.generator_optimiser, GENERATOR_PENALTY_EVERY)
        self.optimisers = {
            "discriminator": of_discriminator.build(self.discriminator.parameters()),
            "generator": of_generator.build(self.generator.parameters()),
        }

    # --- the two players ---------------------------------------------------------------------------------------------

    def step(self, batch: Batch, step: int) -> Scalars:
        scalars, real_scores = self._update_discriminator(batch.inputs, step)
        if step % self.options.penalty_every == 0 and self.options.penalty_weight > 0:
            scalars = self._penalise(batch.inputs, step) | scalars
        scalars |= self._update_generator(batch.inputs, step)
        scalars |= self._adapt(real_scores, step)
        self.ema_generator.decay = self._decay(step)
        self.ema_generator.update(self.generator)
        return scalars

    def _update_discriminator(self, real: Tensor, step: int) -> tuple[Scalars, Tensor]:
        """−log σ(D(Tx)) − log(1 − σ(D(TG(z)))); also the scores of the global real batch."""
        with torch.no_grad():
            fake = self._generated("discriminator", step, real)
        features, of_real = self._scored(real, "real", step)
        _, of_fake = self._scored(fake, "fake", step)
        rows = distributed.gather(torch.cat([of_real, of_fake, features.detach()], dim=1), self.batch)
        losses = {"real": F.softplus(-rows[:, 0]).mean(), "fake": F.softplus(rows[:, 1]).mean()}
        return self.backward_and_update("discriminator", losses, {"spread": spread(rows[:, 2:])}), rows[:, 0].detach()

    def _penalise(self, real: Tensor, step: int) -> Scalars:
        """γ/2 |∇ D(Tx)|², the gradient with respect to x; an update of its own that counts for all steps without one."""
        real = real.detach().requires_grad_()
        _, scores = self._scored(real, "penalty", step, autocast=False)
        (slope,) = torch.autograd.grad(scores.sum(), real, create_graph=True)
        squares = distributed.gather(slope.square().sum((1, 2, 3))[:, None], self.batch)
        strength = self.options.penalty_weight / 2 * self.options.penalty_every
        return self.backward_and_update("discriminator", {"gradient_penalty": strength * squares.mean()}, {})

    def _update_generator(self, like: Tensor, step: int) -> Scalars:
        """−log σ(D(TG(z)))."""
        with frozen(self.discriminator):
            _, scores = self._scored(self._generated("generator", step, like), "generated", step)
            scores = distributed.gather(scores, self.batch)
            return self.backward_and_update("generator", {"fake": F.softplus(-scores).mean()}, {})

    def _generated(self, player: str, step: int, like: Tensor) -> Tensor:
        shapes = {"latents": self.latent_shape, "noise": (self.generator.noise_size,)}
        drawn = [normal_rows(shape, self.batch, self.seed, f"{player} {what}", step, like) for what, shape in shapes.items()]
        with self.autocast(like) as called:
            return called(self.generator)(*drawn).to(like.dtype)

    def _scored(self, images: Tensor, purpose: str, step: int, autocast: bool = True) -> tuple[Tensor, Tensor]:
        """Features and scores of augmented images."""
        draws = draws_for(self.batch, self.seed, purpose, step, images)
        images = augmented(images, self.probability, draws)
        with self.autocast(images, allowed=autocast) as called:
            features, scores = called(self.discriminator)(images, self.batch)
        return features.to(images.dtype), scores.to(images.dtype)

    # --- what changes from step to step ------------------------------------------------------------------------------

    @torch.no_grad()
    def _adapt(self, real_scores: Tensor, step: int) -> Scalars:
        """Every few steps p goes up or down by as much as the images since then are worth."""
        options = self.options
        self.signs += real_scores.sign().mean()
        if (step + 1) % options.adapt_every == 0:
            too_sure = (self.signs / options.adapt_every - options.target).sign()
            self.probability += too_sure * (self.batch * options.adapt_every / options.adapt_images)
            self.probability.clamp_(min=0)
            self.signs.zero_()
        return {"augmentation/p": self.probability.clone(), "augmentation/real_sign": real_scores.sign().mean()}

    def _decay(self, step: int) -> float:
        """Of the generator's EMA: its half-life is short at first, because there is little to average."""
        half_life = min(self.options.half_life, self.options.half_life_ramp * step * self.batch)
        return 0.5 ** (self.batch / half_life) if half_life > 0 else 0.0

    # --- use ---------------------------------------------------------------------------------------------------------

    def encoded(self, inputs: Tensor) -> Tensor:
        return self.discriminator.features(inputs)


def lazily(optimiser: AdamW, every: int) -> AdamW:
    """For a network that is updated once more every so many steps: rate and memory by the smaller share of a step."""
    share = every / (every + 1)
    first, second = optimiser.betas
    changed = {"learning_rate": share * optimiser.learning_rate, "betas": (first**share, second**share)}
    return optimiser.model_copy(update=changed)
