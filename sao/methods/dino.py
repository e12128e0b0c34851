"""DINO: the network learns the centred and sharpened outputs of its teacher for another view of the image."""

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from sao.config.types import Decay, NonNegativeFloat, PositiveFloat, PositiveInt, Strict
from sao.methods.base import Context, Scalars
from sao.methods.encoders import encoder_for
from sao.methods.optimisers import ViewsOptimiser
from sao.methods.two_view import Outputs, TeacherOptions, TeacherViews, cross_views, soft_cross_entropy
from sao.networks import Prototypes


class WarmUp(Strict):
    """A sharper teacher at the start, against a collapse to equal outputs."""

    temperature: PositiveFloat = Field(default=0.04, description="of the teacher in the first epoch")
    epochs: PositiveInt = Field(default=50, description="epochs of its linear warm-up")


class Optimiser(ViewsOptimiser):
    learning_rate: PositiveFloat = Field(
        default=3e-4,
        description="highest learning rate; small networks had nearly uniform outputs at 1e-3, and collapsed at 3e-3",
    )


class DINO(TeacherViews):
    headline = ("network/dino",)
    centre: Tensor

    def __init__(self, options: "Options", context: Context) -> None:
        encoder = encoder_for(context.encoder, context.shape)
        hidden, size = options.hidden_size, options.projection_size
        head = nn.Sequential(
            nn.Linear(encoder.feature_size, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, size)
        )
        for layer in (layer for layer in head if isinstance(layer, nn.Linear)):
            nn.init.trunc_normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)
        super().__init__(encoder, head, options, context, Prototypes(size, options.outputs), teacher_predicts=True)
        self.options, self.steps_per_epoch = options, context.steps_per_epoch
        self.uniform_losses = {"network/dino": math.log(options.outputs)}
        self.frozen_steps = round(options.frozen_epochs * context.steps_per_epoch)
        self.register_buffer("centre", torch.zeros(options.outputs))

    def losses(self, views: Sequence[Outputs], step: int) -> Scalars:
        sharp, soft = self._teacher_temperature(step), self.options.temperature
        terms = [
            soft_cross_entropy(((one["target"] - self.centre) / sharp).softmax(1).detach(), other["output"] / soft)
            for one, other in cross_views(views)
        ]
        return {"dino": torch.stack(terms).mean()}

    def update_bank(self, views: Sequence[Outputs], step: int) -> None:
        self.centre.lerp_(torch.cat([view["target"] for view in views]).mean(0), 1 - self.options.centre_decay)

    def _teacher_temperature(self, step: int) -> float:
        last, warm_up = self.options.teacher_temperature, self.options.warm_up
        if warm_up is None:
            return last
        share = min(1.0, step // self.steps_per_epoch / max(1, warm_up.epochs - 1))
        return warm_up.temperature + share * (last - warm_up.temperature)


class Options(TeacherOptions):
    """DINO, with the head for convolutional networks: no BatchNorm."""

    name: Literal["dino"] = "dino"
    builds: ClassVar = DINO
    momentum: Decay = Field(default=0.9995, description="decay of the teacher at the start; it rises to 1; less for short runs")
    optimiser: Optimiser = Field(default=Optimiser(), description="how encoder and head are updated")
    outputs: PositiveInt = Field(default=4096, description="numbers in an output, K; fewer for short runs")
    temperature: PositiveFloat = Field(default=0.1, description="of the network's outputs")
    teacher_temperature: PositiveFloat = Field(default=0.07, description="of the teacher's outputs, which are sharper")
    warm_up: WarmUp | None = Field(default=None, description="of the teacher's temperature; null: none")
    centre_decay: Decay = Field(default=0.9, description="of the mean output, which is subtracted from the teacher's")
    frozen_epochs: NonNegativeFloat = Field(default=1.0, description="epochs before the last layer is trained")
    hidden_size: PositiveInt = Field(default=2048, description="units of the two layers behind the features")
    projection_size: PositiveInt = Field(default=256, description="numbers in a projection, before the last layer")
