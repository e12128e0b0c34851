"""VICReg: two views of an image agree, while every projected feature varies over the batch and no two of them correlate."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from sao.config.types import NonNegativeFloat, PositiveInt
from sao.methods.base import Context, Scalars
from sao.methods.encoders import encoder_for
from sao.methods.two_view import Outputs, TwoViews, ViewsOptions
from sao.networks import ProjectionHead

FLAT = 1e-4  # added to the variance of a feature, which may be the same in all samples


class VICReg(TwoViews):
    headline = ("network/vicreg",)

    def __init__(self, options: "Options", context: Context) -> None:
        encoder = encoder_for(context.encoder, context.shape)
        size = options.projection_size
        super().__init__(encoder, ProjectionHead([encoder.feature_size, size, size, size]), options, context)
        self.options = options

    def losses(self, views: Sequence[Outputs], step: int) -> Scalars:
        one, other = (view["projection"] for view in views)
        options = self.options
        apart = options.invariance * F.mse_loss(one, other)
        lacking = options.variance * (lacking_variance(one) + lacking_variance(other)) / 2
        return {"vicreg": apart + lacking + options.covariance * (correlation(one) + correlation(other))}


class Options(ViewsOptions):
    """VICReg on the paper's backbone."""

    name: Literal["vicreg"] = "vicreg"
    builds: ClassVar = VICReg
    invariance: NonNegativeFloat = Field(default=25.0, description="weight of the distance between the two views")
    variance: NonNegativeFloat = Field(default=25.0, description="weight of the hinge that keeps features' deviations above 1")
    covariance: NonNegativeFloat = Field(default=1.0, description="weight of the squared correlations between features")
    projection_size: PositiveInt = Field(default=2048, description="numbers in a projection, and units of the layers before it")


def lacking_variance(projections: Tensor) -> Tensor:
    """What the deviations of the features (n, p) lack to 1, on average."""
    return F.relu(1 - (projections.var(0) + FLAT).sqrt()).mean()


def correlation(projections: Tensor) -> Tensor:
    """The squared covariances of different features (n, p), summed, for each feature."""
    n, p = projections.shape
    centred = projections - projections.mean(0)
    covariance = centred.T @ centred / (n - 1)
    return (covariance - covariance.diagonal().diag_embed()).square().sum() / p
