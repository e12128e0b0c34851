"""Methods with one interface. A method is one file and one line in the union below."""

from typing import Annotated, get_args

from pydantic import Field

from sao.core.finite import NonFiniteError
from sao.methods import (
    bigbigan,
    biggan,
    byol,
    ddpm,
    dino,
    genrep,
    hinge,
    mae,
    nnclr,
    random,
    self_conditioned,
    simclr,
    structural,
    stylegan2,
    supervised,
    swav,
    vicreg,
)
from sao.methods.base import Batch, Context, FeatureName, Generative, Method, MethodOptions, OtherRun, Use, generative
from sao.methods.encoders import AnyEncoderOptions, EncoderOptions

__all__ = [
    "ENCODERS",
    "METHODS",
    "AnyEncoderOptions",
    "AnyMethod",
    "Batch",
    "Context",
    "EncoderOptions",
    "FeatureName",
    "Generative",
    "Method",
    "MethodOptions",
    "NonFiniteError",
    "OtherRun",
    "Use",
    "generative",
]

AnyMethod = Annotated[
    structural.Options
    | hinge.Options
    | biggan.Options
    | self_conditioned.Options
    | stylegan2.Options
    | bigbigan.Options
    | genrep.Options
    | simclr.Options
    | vicreg.Options
    | mae.Options
    | ddpm.Options
    | byol.Options
    | nnclr.Options
    | swav.Options
    | dino.Options
    | supervised.Options
    | random.Options,
    Field(discriminator="name"),
]  # fmt: skip
ENCODERS: dict[str, type[AnyEncoderOptions]] = {
    member.model_fields["name"].default: member for member in get_args(get_args(EncoderOptions)[0])
}
METHODS: dict[str, type[MethodOptions]] = {
    member.model_fields["name"].default: member for member in get_args(get_args(AnyMethod)[0])
}
