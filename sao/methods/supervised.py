"""The upper end of every comparison: the same network trained with labels."""

from typing import Literal

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional as F

from sao.config.types import Decay
from sao.core import distributed
from sao.data.augmentation import Augmentation
from sao.errors import InputError
from sao.methods.base import Batch, Context, Method, MethodOptions, Scalars
from sao.methods.encoders import encoder_for
from sao.methods.optimisers import ClassifierAdamW
from sao.networks import EMA, Discriminator, Encoder


class Options(MethodOptions):
    """Cross-entropy on the labels, which this method alone looks at."""

    name: Literal["supervised"] = "supervised"
    optimiser: ClassifierAdamW = Field(default=ClassifierAdamW(), description="how the network is updated")
    ema_decay: Decay = Field(default=0.99, description="decay of the EMA of the network, which gives the features")
    augmentation: Augmentation = Field(default=Augmentation(), description="of the training images")

    def build(self, context: Context) -> "Supervised":
        return Supervised(encoder_for(context.encoder, context.shape), self, context)


class Supervised(Method):
    needs_labels = True
    features_with = ("ema_classifier.network.encoder",)
    headline = ("classifier/cross_entropy",)

    def __init__(self, encoder: Encoder, options: Options, context: Context) -> None:
        super().__init__()
        if context.classes is None:
            raise InputError(f"method {options.name} needs labels, and this data has none")
        self.classifier = Discriminator(encoder, nn.Linear(encoder.feature_size, context.classes))
        self.ema_classifier = EMA(self.classifier, options.ema_decay)
        self.augmentation, self.batch, self.seed = options.augmentation, context.batch, context.seed
        self.flipped = options.augmentation.flip
        self.optimisers = {"classifier": options.optimiser.build(self.classifier.parameters())}

    def step(self, batch: Batch, step: int) -> Scalars:
        assert batch.labels is not None
        images = self.augmentation(batch.inputs, self.seed, "classifier", step, self.batch)
        with self.autocast(images) as called:
            mine = called(self.classifier)(images)[1].to(images.dtype)
        # Labels travel with their logits: one message, and whole numbers below 2^24 survive it.
        message = distributed.gather(torch.cat([mine, batch.labels[:, None].to(mine.dtype)], dim=1), self.batch)
        logits, labels = message[:, :-1], message[:, -1].long()
        accuracy = (logits.argmax(1) == labels).float().mean()
        scalars = self.backward_and_update(
            "classifier", {"cross_entropy": F.cross_entropy(logits, labels)}, {"accuracy": accuracy}
        )
        self.ema_classifier.update(self.classifier)
        return scalars
