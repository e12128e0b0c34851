"""MAE: most patches of an image are left out, and what the transformer makes of the others must be enough to fill them in."""

from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from sao.config.types import Decay, Depth, Fraction, NonNegativeFloat, PositiveInt, Strict
from sao.core import distributed
from sao.data.augmentation import Augmentation
from sao.errors import InputError
from sao.methods.base import Batch, Context, Method, MethodOptions, Scalars, images_only, uniform_rows
from sao.methods.encoders import ViTOptions, check_tokens
from sao.methods.optimisers import AdamW
from sao.methods.third_party import transformer_block
from sao.methods.two_view import spread
from sao.networks.vit import PatchDecoder, VisionTransformer

FLAT = 1e-6  # added to the variance of a patch, which may be of one colour


class DecoderOptions(Strict):
    width: PositiveInt = Field(default=512, description="numbers in a token, a multiple of 4")
    depth: Depth = Field(default=8, description="blocks")
    heads: PositiveInt = Field(default=16, description="of the attention in each block")

    @model_validator(mode="after")
    def _tokens_can_be_divided(self) -> Self:
        check_tokens(self.width, self.heads)
        return self


class Optimiser(AdamW):
    betas: tuple[Decay, Decay] = Field(default=(0.9, 0.95), description="decay of the first and of the second moment")
    weight_decay: NonNegativeFloat = Field(default=0.05, description="share of a weight taken off, times the learning rate")


class Options(MethodOptions):
    """A masked autoencoder; the decoder is for learning alone."""

    name: Literal["mae"] = "mae"
    encoders: ClassVar[tuple[str, ...] | None] = ("vit",)
    mask: Fraction = Field(default=0.75, description="share of the patches that are left out")
    decoder: DecoderOptions = Field(default=DecoderOptions(), description="the network that fills them in")
    optimiser: Optimiser = Field(default=Optimiser(), description="how both networks are updated")
    augmentation: Augmentation = Field(default=Augmentation(crop=0.08, flip=True), description="of the training images")

    def build(self, context: Context) -> "MAE":
        images_only(context.shape, self.name)
        encoder = (context.encoder or ViTOptions()).build(context.shape)
        assert isinstance(encoder, VisionTransformer)
        return MAE(encoder, self, context)


class MAE(Method):
    may_collapse: ClassVar[bool] = True
    features_with = ("encoder",)
    headline = ("network/reconstruction",)

    def __init__(self, encoder: VisionTransformer, options: Options, context: Context) -> None:
        super().__init__()
        values = encoder.channels * encoder.patch**2
        if values < 2:
            raise InputError("patches of a single value have no variance to be measured by: set --encoder.patch 2")
        if encoder.side < 2:
            raise InputError("a single patch has nothing to be filled in from: set --encoder.patch to half of it")
        decoder = options.decoder
        sizes = encoder.feature_size, values, encoder.side, decoder.width, decoder.depth, decoder.heads
        self.encoder, self.decoder = encoder, PatchDecoder(*sizes, transformer_block())
        self.patches = encoder.side**2
        self.visible = min(max(1, round((1 - options.mask) * self.patches)), self.patches - 1)
        self.augmentation, self.batch, self.seed = options.augmentation, context.batch, context.seed
        self.optimisers = {"network": options.optimiser.build(self.parameters())}

    def step(self, batch: Batch, step: int) -> Scalars:
        images = self.augmentation(batch.inputs, self.seed, "mae", step, self.batch)
        patches, kept = self.encoder.patches(images), self._kept(step, images)
        with self.autocast(images) as called:
            tokens = called(self.encoder.tokens)(patches, kept)
            predicted = called(self.decoder)(tokens, kept).to(images.dtype)
        errors = (predicted - standardised(patches)).square().mean(2)
        masked = torch.ones_like(errors).scatter(1, kept, 0)
        mine = (errors * masked).sum(1) / (self.patches - self.visible)
        # Features travel with the losses of their rows: one message.
        message = distributed.gather(torch.cat([mine[:, None], tokens[:, 0].detach().to(mine.dtype)], dim=1), self.batch)
        return self.backward_and_update("network", {"reconstruction": message[:, 0].mean()}, {"spread": spread(message[:, 1:])})

    def _kept(self, step: int, images: Tensor) -> Tensor:
        """The places (n, visible) of the patches that are seen, in any order."""
        draws = uniform_rows((self.patches,), self.batch, self.seed, "mask", step, images)
        return draws.argsort(1)[:, : self.visible]


def standardised(patches: Tensor) -> Tensor:
    """Each patch with mean 0 and variance 1 over its own values."""
    variances, means = torch.var_mean(patches, dim=2, keepdim=True)
    return (patches - means) / (variances + FLAT).sqrt()
