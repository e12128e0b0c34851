"""BigBiGAN: pairs (image, its latent by the encoder) against pairs (generated image, its latent): so the encoder inverts it."""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from sao.config.types import Decay, Depth, PositiveFloat, PositiveInt
from sao.core import distributed
from sao.data.augmentation import Augmentation
from sao.methods.base import Batch, Context, Generative, MethodOptions, Scalars, frozen, images_only, normal_rows, total
from sao.methods.encoders import GeneratorOptions, encoder_for, image_shape
from sao.methods.optimisers import AdamW
from sao.methods.two_view import spread
from sao.networks import EMA
from sao.networks.bigbigan import ImageTower, JointDiscriminator, LatentEncoder

SCORES: tuple[str, ...] = ("image", "latent", "joint")


class DiscriminatorAdam(AdamW):
    betas: tuple[Decay, Decay] = Field(default=(0.0, 0.999), description="decay of the first and of the second moment")


class GeneratorAdam(DiscriminatorAdam):
    learning_rate: PositiveFloat = Field(default=5e-5, description="highest learning rate; train.schedule may lower it")


class EncoderAdam(DiscriminatorAdam):
    learning_rate: PositiveFloat = Field(default=5e-4, description="highest learning rate; train.schedule may lower it")


class Options(MethodOptions):
    """BigBiGAN: a generator and the encoder that inverts it."""

    name: Literal["bigbigan"] = "bigbigan"
    generates: ClassVar[bool] = True
    generator: GeneratorOptions = Field(default=GeneratorOptions(latent_size=120), description="the network that makes samples")
    width: PositiveInt = Field(default=64, description="channels of the discriminator are multiples of it")
    joint_width: PositiveInt = Field(default=256, description="units of the discriminator's layers for latents and for pairs")
    joint_depth: Depth = Field(default=3, description="layers of each of the two")
    head_width: PositiveInt = Field(default=256, description="units of the layers between the encoder's features and latents")
    head_depth: Depth = Field(default=2, description="those layers")
    discriminator_steps: PositiveInt = Field(
        default=2, description="updates of D in a step, on one real batch with fresh draws"
    )
    discriminator_optimiser: DiscriminatorAdam = Field(
        default=DiscriminatorAdam(), description="how the discriminator is updated"
    )
    generator_optimiser: GeneratorAdam = Field(default=GeneratorAdam(), description="how the generator is updated")
    encoder_optimiser: EncoderAdam = Field(default=EncoderAdam(), description="how the encoder is updated")
    ema_decay: Decay = Field(default=0.99, description="decay of the EMAs of E and G, which give features and samples")
    augmentation: Augmentation = Field(default=Augmentation(), description="of the real images")

    def build(self, context: Context) -> "BigBiGAN":
        images_only(context.shape, self.name)
        return BigBiGAN(self, context)


class BigBiGAN(Generative):
    headline = ("discriminator/joint", "generator/joint")
    features_with = ("ema_encoder.network.backbone",)
    embeddings_with = ("ema_encoder",)

    def __init__(self, options: Options, context: Context) -> None:
        super().__init__()
        channels, size = image_shape(context.shape, options.name)
        latent_size = options.generator.latent_size
        backbone = encoder_for(context.encoder, context.shape)
        self.encoder = LatentEncoder(backbone, latent_size, options.head_width, options.head_depth)
        self.generator = options.generator.build(context.shape)
        tower = ImageTower(size, channels, options.width)
        self.discriminator = JointDiscriminator(tower, latent_size, options.joint_width, options.joint_depth)
        self.ema_encoder = EMA(self.encoder, options.ema_decay)
        self.ema_generator = EMA(self.generator, options.ema_decay)
        self.latent_shape = (latent_size,)
        self.flipped = options.augmentation.flip
        self.options, self.batch, self.seed = options, context.batch, context.seed
        self.optimisers = {
            "discriminator": options.discriminator_optimiser.build(self.discriminator.parameters()),
            "generator": options.generator_optimiser.build(self.generator.parameters()),
            "encoder": options.encoder_optimiser.build(self.encoder.parameters()),
        }

    # --- the players -------------------------------------------------------------------------------------------------

    def step(self, batch: Batch, step: int) -> Scalars:
        real = self.options.augmentation(batch.inputs, self.seed, "discriminator", step, self.batch)
        scalars: Scalars = {}
        for turn in range(self.options.discriminator_steps):
            scalars = self._update_discriminator(real, f"discriminator {turn}", step)
        scalars |= self._update_generator_and_encoder(real, step)
        self.ema_generator.update(self.generator)
        self.ema_encoder.update(self.encoder)
        return scalars

    def _update_discriminator(self, real: Tensor, purpose: str, step: int) -> Scalars:
        """Of each of the three scores max(0, 1 − s) for (x, E(x)) and max(0, 1 + s) for (G(z), z)."""
        with torch.no_grad():
            images, latents, means = self._pairs(real, purpose, step)
        of_real, of_fake, means = self._scored(images, latents, means)
        hinges = F.relu(1 - of_real).mean(0) + F.relu(1 + of_fake).mean(0)
        losses = dict(zip(SCORES, hinges.unbind(), strict=True))
        return self.backward_and_update("discriminator", losses, {"spread": spread(means)})

    def _update_generator_and_encoder(self, real: Tensor, step: int) -> Scalars:
        """Of each of the three scores s for (x, E(x)) and −s for (G(z), z): the opposite of what the discriminator wants."""
        players = ("generator", "encoder")
        with frozen(self.discriminator):
            of_real, of_fake, _ = self._scored(*self._pairs(real, "generator", step))
            losses = dict(zip(SCORES, (of_real.mean(0) - of_fake.mean(0)).unbind(), strict=True))
            for name in players:
                self.optimisers[name].zero_grad()
            total(losses).backward()
        distributed.sum_gradients([*self.generator.parameters(), *self.encoder.parameters()])
        return self.update("generator", losses, {}) | self.update("encoder", {}, {})

    def _pairs(self, real: Tensor, purpose: str, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Images and latents of the real pairs and, after them, of the generated ones; also the means of the real latents."""
        drawn = [
            normal_rows(self.latent_shape, self.batch, self.seed, f"{purpose} {what}", step, real)
            for what in ("latents", "deviations")
        ]
        with self.autocast(real) as called:
            fake = called(self.generator)(drawn[0]).to(real.dtype)
            mean, deviation = (part.to(real.dtype) for part in called(self.encoder)(real))
        # Without the deviation the encoder is a function, and may send every image to one latent.
        return torch.cat([real, fake]), torch.cat([mean + deviation * drawn[1], drawn[0]]), mean.detach()

    def _scored(self, images: Tensor, latents: Tensor, means: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scores (batch, 3) of the real and of the generated pairs, and the means, of the global batch, in one message."""
        with self.autocast(images) as called:
            scores = called(self.discriminator)(images, latents).to(images.dtype)
        rows = distributed.gather(torch.cat([*scores.chunk(2), means], dim=1), self.batch)
        return rows[:, :3], rows[:, 3:6], rows[:, 6:]

    # --- use ---------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def embeddings(self, inputs: Tensor) -> Tensor:
        return self.smooth_function(inputs)

    def smooth_function(self, inputs: Tensor) -> Tensor:
        """The most probable latent."""
        return self.ema_encoder.network(inputs)[0]
