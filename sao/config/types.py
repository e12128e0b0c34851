"""What options are made of: strict models, and numbers that mean what they say."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _refuse_truth_value(value: Any) -> Any:
    """Python counts True as 1; an option that wants a number does not."""
    if isinstance(value, bool):
        raise ValueError("Input should be a number")
    return value


Int = Annotated[int, BeforeValidator(_refuse_truth_value)]
PositiveInt = Annotated[Int, Field(ge=1)]
NonNegativeInt = Annotated[Int, Field(ge=0)]
Depth = Annotated[Int, Field(ge=1, le=1000)]  # of a network: each layer takes time to build, before its memory is known
Float = Annotated[float, BeforeValidator(_refuse_truth_value), Field(allow_inf_nan=False)]
PositiveFloat = Annotated[Float, Field(gt=0)]
NonNegativeFloat = Annotated[Float, Field(ge=0)]
Fraction = Annotated[Float, Field(gt=0, lt=1)]
Decay = Annotated[Float, Field(ge=0, lt=1)]
Probability = Annotated[Float, Field(ge=0, le=1)]


class Strict(BaseModel):
    """A group of options: an unknown name is an error, and nothing changes once it is built."""

    model_config = ConfigDict(extra="forbid", frozen=True)
