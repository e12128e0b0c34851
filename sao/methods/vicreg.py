"""VICReg: two views of an image agree, while every projected feature varies over the batch and no two of them correlate."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from sao.methods.architecture import encoder_for
from sao.methods.lightly_import import import_lightly
from sao.methods.method import Context, Scalars
from sao.methods.views import Parts, TwoViews, ViewsOptions
from sao.networks import ProjectionHead
from sao.options import NonNegativeFloat, PositiveInt


class Options(ViewsOptions):
    """VICReg on the paper's backbone; the loss is lightly's."""

    name: Literal["vicreg"] = "vicreg"
    invariance: NonNegativeFloat = Field(default=25.0, description="weight of the distance between the two views")
    variance: NonNegativeFloat = Field(
        default=25.0, description="weight of the hinge that keeps each feature's deviation above 1"
    )
    covariance: NonNegativeFloat = Field(default=1.0, description="weight of the squared correlations between features")
    projection_size: PositiveInt = Field(default=2048, description="numbers in a projection, and units of the layers before it")

    def build(self, context: Context) -> "VICReg":
        return VICReg(self, context)


class VICReg(TwoViews):
    headline = ("network/vicreg",)

    def __init__(self, options: Options, context: Context) -> None:
        losses, _ = import_lightly(options.name)
        encoder = encoder_for(context.encoder, context.shape)
        size = options.projection_size
        super().__init__(encoder, ProjectionHead([encoder.feature_size, size, size, size]), options, context)
        self.loss = losses.VICRegLoss(options.invariance, options.variance, options.covariance)

    def losses(self, views: Sequence[Parts], step: int) -> Scalars:
        return {"vicreg": self.loss(*(view["projection"] for view in views))}
