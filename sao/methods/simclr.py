"""SimCLR, the family that the paper compares with: two augmented views of an image are to be told from all other images."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from sao.config.types import PositiveFloat, PositiveInt
from sao.methods.base import Context, Scalars
from sao.methods.encoders import encoder_for
from sao.methods.third_party import import_lightly
from sao.methods.two_view import Outputs, TwoViews, ViewsOptions, nt_xent


class SimCLR(TwoViews):
    headline = ("network/nt_xent",)

    def __init__(self, options: "Options", context: Context) -> None:
        modules = import_lightly(options.name)
        encoder = encoder_for(context.encoder, context.shape)
        # Without BatchNorm: lightly's takes its moments from the rows of one process.
        sizes = encoder.feature_size, options.hidden_size, options.projection_size
        super().__init__(encoder, modules.SimCLRProjectionHead(*sizes, batch_norm=False), options, context)
        self.temperature = options.temperature

    def losses(self, views: Sequence[Outputs], step: int) -> Scalars:
        one, other = (view["projection"] for view in views)
        return {"nt_xent": nt_xent(one, other, self.temperature)}


class Options(ViewsOptions):
    """SimCLR on the paper's backbone; the projection head is lightly's."""

    name: Literal["simclr"] = "simclr"
    builds: ClassVar = SimCLR
    temperature: PositiveFloat = Field(default=0.2, description="of the softmax over all other views")
    hidden_size: PositiveInt = Field(default=2048, description="units between backbone and projection")
    projection_size: PositiveInt = Field(default=256, description="numbers in a projection")
