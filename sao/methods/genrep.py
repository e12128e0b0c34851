"""GenRep: contrastive learning on generated images alone; two views are images of adjacent latents.

The generator of another run, which is only read, becomes state of this run before the first step.
"""

import json
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Literal, Self

import torch
from pydantic import Field, ValidationError
from torch import Tensor, nn

from sao.config.overrides import rename
from sao.config.types import PositiveFloat, PositiveInt
from sao.data.augmentation import Augmentation
from sao.errors import InputError
from sao.methods.base import Context, Generative, Method, OtherRun, Scalars, generative, images_only, normal_rows, uniform_rows
from sao.methods.encoders import encoder_for
from sao.methods.two_view import Outputs, TwoViews, ViewsOptions, nt_xent

CUT = 2.0  # deviations at which the difference of adjacent latents is cut off, as its authors do
MANY = 2**31  # training samples of the other run; what they are does not matter to what it makes


class Options(ViewsOptions):
    """GenRep on the generator of any run."""

    name: Literal["genrep"] = "genrep"
    generator: str = Field(default="", description="folder of the run whose generator makes the images")
    source: str = Field(default="", description="what was trained in that folder, as JSON; filled in when it is read")
    view: Augmentation = Field(
        default=Augmentation(), description="how an image becomes the first view; nothing: latents alone differ"
    )
    truncation: PositiveFloat | None = Field(
        default=2.0, description="largest number in a latent, whose draws are repeated until they are smaller; null: any"
    )
    distance: PositiveFloat = Field(
        default=0.2, description="deviation of each number of a latent from that of the adjacent one; at most twice of it"
    )
    pairs: PositiveInt | None = Field(
        default=None, description="how many pairs of latents there are, in the same batches again and again; null: any"
    )
    temperature: PositiveFloat = Field(default=0.1, description="of the softmax over all other views")
    base_temperature: PositiveFloat = Field(
        default=0.07, description="the authors' factor of the loss is temperature / base_temperature"
    )
    hidden_size: PositiveInt = Field(default=2048, description="units between backbone and projection")
    projection_size: PositiveInt = Field(default=128, description="numbers in a projection")

    def with_runs(self, read: Callable[[str], OtherRun]) -> Self:
        if self.source or not self.generator:
            return self
        other = read(self.generator)
        return self.model_copy(update={"generator": other.folder, "source": recorded(other)})

    def build(self, context: Context) -> "GenRep":
        images_only(context.shape, self.name)
        if not self.source:
            raise InputError(f"method {self.name} learns from a generator: set --method.generator to the folder of its run")
        if self.pairs is not None and self.pairs < context.batch:
            raise InputError(
                f"method.pairs is {self.pairs} and a batch has {context.batch}: set --method.pairs to that or more"
            )
        return GenRep(self, context)


class GenRep(TwoViews):
    headline = ("network/nt_xent", "network/spread")
    source_step: Tensor

    def __init__(self, options: Options, context: Context) -> None:
        encoder = encoder_for(context.encoder, context.shape)
        hidden = nn.Linear(encoder.feature_size, options.hidden_size)
        head = nn.Sequential(hidden, nn.ReLU(), nn.Linear(options.hidden_size, options.projection_size))
        super().__init__(encoder, head, options, context)
        self.options, self.shape = options, context.shape
        self.source = for_decoding(_rebuilt(options.source, context))
        self.register_buffer("source_step", torch.tensor(-1))  # of the other run, when its networks were taken over

    def begin(self, method_of: Callable[[str], tuple[Method, int]]) -> None:
        """Take over what the generator has learnt."""
        folder = self.options.generator
        other, step = method_of(folder)
        maker = generative(other)
        assert maker is not None, "its options said that it generates"
        made = tuple(maker.decode(torch.zeros(1, *maker.latent_shape)).shape[1:])
        if made != self.shape:
            raise InputError(
                f"the generator of {folder} makes images of {_size(made)} and the data has {_size(self.shape)}: "
                "give data of that size (--data.size), or another generator"
            )
        try:
            self.source.load_state_dict(for_decoding(maker).state_dict())
        except RuntimeError:
            raise InputError(f"{folder} holds another generator than when the options were read: start again") from None
        self.source_step.fill_(step)

    # --- the two views -----------------------------------------------------------------------------------------------

    def view(self, index: int, inputs: Tensor, step: int) -> Tensor:
        """An image of a latent, or of the adjacent one; the batch of data is not looked at."""
        pairs = self.options.pairs
        number = step if pairs is None else step % (pairs // self.batch)
        latents = self._drawn("latents", number, self.options.truncation, inputs)
        if index == 1:
            latents = latents + self.options.distance * self._drawn("differences", number, CUT, inputs)
        return super().view(index, self.source.decode(latents).to(inputs.dtype), step)

    def _drawn(self, purpose: str, number: int, limit: float | None, like: Tensor) -> Tensor:
        """Normal draws (n, *latent_shape), cut off at ± limit."""
        where = self.source.latent_shape, self.batch, self.seed, purpose, number, like
        return normal_rows(*where) if limit is None else truncated_rows(*where, limit)

    def losses(self, views: Sequence[Outputs], step: int) -> Scalars:
        temperature = self.options.temperature
        loss = nt_xent(views[0]["projection"], views[1]["projection"], temperature)
        return {"nt_xent": temperature / self.options.base_temperature * loss}


def truncated_rows(
    shape: tuple[int, ...], batch: int, seed: int, purpose: str, step: int, like: Tensor, limit: float
) -> Tensor:
    """This process's rows (n, *shape) of draws from the part of the normal distribution between ± limit."""
    below = NormalDist().cdf(-limit)
    return torch.special.ndtri(below + (1 - 2 * below) * uniform_rows(shape, batch, seed, purpose, step, like))


# --- the other run -------------------------------------------------------------------------------------------------------


def recorded(other: OtherRun) -> str:
    """The configuration that rebuilds its networks, as text."""
    if not other.method.generates:
        raise InputError(f"{other.folder} is a run of method {other.method.name}, which makes no samples: name another run")
    encoder = None if other.encoder is None else other.encoder.model_dump(mode="json")
    return json.dumps({"method": other.method.model_dump(mode="json"), "encoder": encoder, "seed": other.seed})


def _rebuilt(source: str, context: Context) -> Generative:
    """The method of the other run before its first step."""
    from sao.methods import ENCODERS, METHODS

    try:
        values = json.loads(source)
        rename(values, hint=False)
        method = METHODS[values["method"]["name"]].model_validate(values["method"])
        given = values["encoder"]
        encoder = None if given is None else ENCODERS[given["name"]].model_validate(given)
        seed = int(values["seed"])
    except (ValueError, LookupError, TypeError, ValidationError, RecursionError):
        raise InputError("method.source does not describe a run: leave it out, and set --method.generator") from None
    of_other = Context(context.shape, MANY, context.batch, context.steps, seed, context.classes, encoder)  # pyright: ignore[reportArgumentType]
    maker = generative(method.build(of_other))
    if maker is None:
        raise InputError("method.source describes a run that makes no samples: set --method.generator to another")
    return maker


def for_decoding(maker: Generative) -> Generative:
    """The method with only the networks that `decode` needs, frozen."""
    for name in [*maker._modules, *maker._buffers]:
        if name not in maker.decodes_with:
            delattr(maker, name)
    maker.optimisers = {}
    return maker.requires_grad_(False)


def _size(shape: tuple[int, ...]) -> str:
    return "x".join(str(number) for number in shape)
