"""NNCLR: an image's nearest neighbour among those of past batches stands for it when its other view is looked for."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn import functional as F

from sao.config.types import PositiveFloat, PositiveInt
from sao.core.memory_bank import Queue
from sao.core.precision import full_precision
from sao.methods.base import Context, Scalars
from sao.methods.encoders import encoder_for
from sao.methods.two_view import Outputs, TwoViews, WeakerViewsOptions, cross_views
from sao.networks import ProjectionHead


class NNCLR(TwoViews):
    headline = ("network/nnclr",)

    def __init__(self, options: "Options", context: Context) -> None:
        encoder = encoder_for(context.encoder, context.shape)
        hidden, size = options.hidden_size, options.projection_size
        head = ProjectionHead([encoder.feature_size, hidden, hidden, size], last_norm=True)
        super().__init__(encoder, head, options, context, ProjectionHead([size, options.predictor_size, size]))
        self.temperature = options.temperature
        self.queue = Queue(F.normalize(torch.randn(options.queue, size)))
        if options.same_views:
            self.views = self.views[:1]

    def project(self, images: Tensor) -> Outputs:
        features, projection = self.network(images)
        prediction = F.normalize(self.predictor(projection))
        with torch.no_grad(), full_precision(images.device):  # in bfloat16 near neighbours would be all the same
            direction = F.normalize(projection.to(self.queue.rows.dtype))
            nearest = (direction @ self.queue.rows.T).argmax(1)
            neighbour = self.queue.rows.index_select(0, nearest)
        # The projection ends in a BatchNorm, which spreads whatever is left of a collapse: features tell.
        return {"projection": direction, "prediction": prediction, "neighbour": neighbour, "diagnosed": features.detach()}

    def losses(self, views: Sequence[Outputs], step: int) -> Scalars:
        pairs = cross_views(views) if len(views) > 1 else [(views[0], views[0])]
        return {"nnclr": torch.stack([self._cross_entropy(*pair) for pair in pairs]).mean()}

    def update_bank(self, views: Sequence[Outputs], step: int) -> None:
        self.queue.push(views[0]["projection"], step)

    def _cross_entropy(self, one: Outputs, other: Outputs) -> Tensor:
        """Which prediction of the batch belongs to a neighbour; the gradient goes through the predictions alone."""
        logits = one["neighbour"].detach() @ other["prediction"].T / self.temperature
        return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device))


class Options(WeakerViewsOptions):
    """NNCLR; the BatchNorm of its heads takes the moments of the global batch."""

    name: Literal["nnclr"] = "nnclr"
    builds: ClassVar = NNCLR
    same_views: bool = Field(default=False, description="only one view, which is compared with its own neighbour")
    temperature: PositiveFloat = Field(default=0.2, description="of the softmax over the batch")
    queue: PositiveInt = Field(default=65536, description="past projections in which neighbours are looked for")
    hidden_size: PositiveInt = Field(default=2048, description="units of the two layers between features and projection")
    predictor_size: PositiveInt = Field(default=4096, description="units of the layer between projection and prediction")
    projection_size: PositiveInt = Field(default=256, description="numbers in a projection")

    @model_validator(mode="before")
    @classmethod
    def _one_view_or_two(cls, values: Any) -> Any:
        if not isinstance(values, dict) or not values.get("same_views"):
            return values
        if values.get("second_view") is not None:
            raise ValueError("same_views makes one view: leave second_view out")
        return {**values, "second_view": None}
