"""The lower end of every comparison: the network as it was initialised."""

from typing import Literal

import torch

from sao.methods.base import Batch, Context, Method, MethodOptions, Scalars
from sao.methods.encoders import AnyEncoderOptions, encoder_for
from sao.networks import Encoder


class Options(MethodOptions):
    """An untrained network."""

    name: Literal["random"] = "random"

    @classmethod
    def can_use(cls, encoder: type[AnyEncoderOptions]) -> bool:
        return True

    def build(self, context: Context) -> "Random":
        return Random(encoder_for(context.encoder, context.shape), context.seed)


class Random(Method):
    features_with = ("encoder",)

    def __init__(self, encoder: Encoder, seed: int) -> None:
        super().__init__()
        self.encoder, self.seed = encoder, seed
        self.optimisers = {}

    def step(self, batch: Batch, step: int) -> Scalars:
        """Nothing to learn; the loop around it is the same."""
        return {"random/steps": torch.full((), step + 1.0, device=batch.inputs.device)}
