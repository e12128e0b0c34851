"""BigGAN without classes: its own discriminator, normalised spectrally, and the hinge loss; nothing else holds it smooth."""

from typing import ClassVar, Literal

from sao.methods.base import Context
from sao.methods.encoders import BigGANOptions, encoder_for
from sao.methods.gan import AdversarialOptions
from sao.methods.hinge import HingeGAN
from sao.networks import Discriminator, ScoreHead


class Options(AdversarialOptions):
    """BigGAN, the generative baseline of the paper."""

    name: Literal["biggan"] = "biggan"
    encoders: ClassVar[tuple[str, ...] | None] = ("biggan",)

    def build(self, context: Context) -> HingeGAN:
        encoder = encoder_for(context.encoder or BigGANOptions(), context.shape)
        discriminator = Discriminator(encoder, ScoreHead(encoder.feature_size))
        return HingeGAN(discriminator, self.generator.build(context.shape), self, context)
