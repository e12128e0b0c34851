"""BigGAN without classes: its own discriminator, normalised spectrally, and the hinge loss; nothing else holds it smooth."""

from typing import ClassVar, Literal

from sao.methods.adversarial import AdversarialOptions
from sao.methods.architecture import BigGANOptions
from sao.methods.hinge import HingeGAN
from sao.methods.method import Context
from sao.networks import Discriminator, ScoreHead


class Options(AdversarialOptions):
    """BigGAN, the generative baseline of the paper."""

    name: Literal["biggan"] = "biggan"
    encoders: ClassVar[tuple[str, ...] | None] = ("biggan",)

    def build(self, context: Context) -> HingeGAN:
        encoder = (context.encoder or BigGANOptions()).build(context.shape)
        discriminator = Discriminator(encoder, ScoreHead(encoder.feature_size))
        return HingeGAN(discriminator, self.generator.build(context.shape), self, context)
