"""BYOL: from one view the network predicts the target network's projection of the other view. No negatives."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field
from torch.nn import functional as F

from sao.config.types import PositiveInt
from sao.methods.base import Context, Scalars
from sao.methods.encoders import encoder_for
from sao.methods.two_view import Outputs, TeacherOptions, TeacherViews, cross_views
from sao.networks import ProjectionHead


class BYOL(TeacherViews):
    headline = ("network/byol", "network/spread")

    def __init__(self, options: "Options", context: Context) -> None:
        encoder = encoder_for(context.encoder, context.shape)
        size = options.projection_size
        head = ProjectionHead([encoder.feature_size, options.hidden_size, size])
        predictor = ProjectionHead([size, options.predictor_size, size])
        super().__init__(encoder, head, options, context, predictor, teacher_predicts=False)

    def losses(self, views: Sequence[Outputs], step: int) -> Scalars:
        """The squared distance of unit vectors, the sum of both directions."""
        distances = [
            2 - 2 * F.cosine_similarity(one["output"], other["target"].detach()).mean() for one, other in cross_views(views)
        ]
        return {"byol": distances[0] + distances[1]}


class Options(TeacherOptions):
    """BYOL; the BatchNorm of its heads takes the moments of the global batch."""

    name: Literal["byol"] = "byol"
    builds: ClassVar = BYOL
    hidden_size: PositiveInt = Field(default=4096, description="units between features and projection")
    predictor_size: PositiveInt = Field(default=4096, description="units between projection and prediction")
    projection_size: PositiveInt = Field(default=256, description="numbers in a projection")
