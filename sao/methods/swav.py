"""SwAV: each view is to tell to which of many prototypes the other was assigned, when all of them must get equally many."""

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from sao.config.types import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from sao.core.memory_bank import Queue
from sao.data.augmentation import SmallAugmentation
from sao.methods.base import Context, Scalars
from sao.methods.encoders import encoder_for
from sao.methods.two_view import Outputs, TwoViews, ViewsOptions, soft_cross_entropy
from sao.networks import ProjectionHead, Prototypes


class SmallViews(SmallAugmentation):
    """Further views, which see little of an image and only have to tell the prototype of the others."""

    count: PositiveInt = Field(default=6, description="how many")


class SwAV(TwoViews):
    headline = ("network/swav",)

    def __init__(self, options: "Options", context: Context) -> None:
        encoder = encoder_for(context.encoder, context.shape)
        size = options.projection_size
        head = ProjectionHead([encoder.feature_size, options.hidden_size, size])
        super().__init__(encoder, head, options, context, Prototypes(size, options.prototypes))
        self.options = options
        self.uniform_losses = {"network/swav": math.log(options.prototypes)}
        if options.small_views is not None:
            self.views += [options.small_views] * options.small_views.count
        self.queues = nn.ModuleList(Queue(torch.zeros(options.queue, size)) for _ in range(2 if options.queue > 0 else 0))
        self.frozen_steps = round(options.frozen_epochs * context.steps_per_epoch)
        filled = -(-options.queue // context.batch)
        self.queue_steps = max(filled, round(options.queue_epochs * context.steps_per_epoch))

    def project(self, images: Tensor) -> Outputs:
        projection = self.network(images)[1]
        return {"projection": projection.detach(), "scores": self.predictor(projection)}

    def losses(self, views: Sequence[Outputs], step: int) -> Scalars:
        terms = []
        for index in range(2):
            assigned = self._assigned(views[index]["scores"].detach(), index, step)
            others = [view for place, view in enumerate(views) if place != index]
            terms += [soft_cross_entropy(assigned, view["scores"] / self.options.temperature) for view in others]
        return {"swav": torch.stack(terms).mean()}

    def update_bank(self, views: Sequence[Outputs], step: int) -> None:
        for queue, view in zip(self.queues, views, strict=False):  # smaller views have none
            queue.push(view["projection"], step)  # pyright: ignore[reportCallIssue]

    @torch.no_grad()
    def _assigned(self, scores: Tensor, index: int, step: int) -> Tensor:
        """Shares of prototypes (n, K) for the batch; past projections are scored with the prototypes of today."""
        together = scores
        if self.queues and step >= self.queue_steps:
            together = torch.cat([scores, self.predictor(self.queues[index].rows)])
        return sinkhorn(together, self.options.epsilon, self.options.sinkhorn_steps)[: len(scores)]


class Options(ViewsOptions):
    """SwAV; assignments are made for the global batch."""

    name: Literal["swav"] = "swav"
    builds: ClassVar = SwAV
    small_views: SmallViews | None = Field(default=None, description="smaller views beside the two; null: none")
    temperature: PositiveFloat = Field(default=0.1, description="of the softmax over prototypes")
    epsilon: PositiveFloat = Field(default=0.05, description="how soft assignments are; lower it where the loss stays at ln K")
    sinkhorn_steps: PositiveInt = Field(default=3, description="how often prototypes and samples are evened out in turn")
    prototypes: PositiveInt = Field(default=3000, description="K")
    frozen_epochs: NonNegativeFloat = Field(default=2.0, description="epochs before prototypes are trained")
    queue: NonNegativeInt = Field(default=3840, description="past projections of each view assigned with a batch; 0: none")
    queue_epochs: NonNegativeFloat = Field(default=50.0, description="epochs before the queue is used")
    hidden_size: PositiveInt = Field(default=2048, description="units between features and projection")
    projection_size: PositiveInt = Field(default=128, description="numbers in a projection")


def sinkhorn(scores: Tensor, epsilon: float, steps: int) -> Tensor:
    """exp(scores / ε) (n, k), scaled so that prototypes (columns) get about equal shares, and each sample's sum to 1."""
    logits = scores / epsilon
    for _ in range(steps):
        logits = logits.log_softmax(0).log_softmax(1)
    return logits.exp()
