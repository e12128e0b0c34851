"""Every option of a run in one strict model. A preset is a YAML file that changes some of them; a dotted flag changes one."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Annotated, Any, Literal, Self, Union

import torch
import yaml
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from sao.config import outside
from sao.config import overrides as dotted
from sao.config.presets import preset_text
from sao.config.types import Float, Fraction, Int, NonNegativeInt, PositiveFloat, PositiveInt, Strict
from sao.core.random import derived_seed
from sao.data.augmentation import Augmentation
from sao.errors import InputError
from sao.methods import ENCODERS, METHODS, AnyEncoderOptions, AnyMethod, Context, EncoderOptions, Method, structural
from sao.methods.encoders import encoder_for_shape
from sao.runtime.files import read_text, write_text

TIMM = "timm:"


def _axes(given: str) -> str:
    found = given.upper()
    if not 2 <= len(found) <= 5 or not set(found) <= set("NDHWC"):
        raise ValueError("give the axes of the array in their order, such as NHWC, NCHW, NDHW or DHW")
    return found


Axes = Annotated[str, AfterValidator(_axes)]
FORMAT = 3  # of config.yaml; 2 was written by version 0.2, with other names of options


class Data(Strict):
    """What to learn from."""

    source: Annotated[str, Field(min_length=1)] = Field(
        default="digits",
        description="a data set's name, or a path: folder, archive, .txt of paths, .npy, .npz, .csv, .parquet, .arrow",
    )
    folder: str = Field(default="~/.cache/sao/datasets", description="where named data sets are kept or downloaded to")
    size: Annotated[Int, Field(ge=8, le=256)] | None = Field(
        default=None,
        description="pixels a side; null: as the data is, and of image files a power of two from 8 to 128, by their median",
    )
    fit: Literal["crop", "pad", "centre"] = Field(
        default="crop",
        description="how images that are not square become so; centre: the middle of a short side of 9/8 of the size",
    )
    channels: Annotated[Int, Field(ge=1)] | None = Field(
        default=None, description="of an image; null: as the data is; 1: grey, 3: colour; 4: four of them, not transparency"
    )
    axes: Axes | None = Field(
        default=None,
        description="of arrays, a letter each: N samples, D slices of volumes, H height, W width, C channels; null: by shape",
    )
    pages: Literal["auto", "channels", "images"] = Field(
        default="auto", description="what pages of TIFF stacks are; auto: as the files say, or as their number suggests"
    )
    range: tuple[Float, Float] | None = Field(
        default=None, description="of values of more than 8 bits, such as [0,4095]; null: the least and the greatest there are"
    )
    crop: Fraction | None = Field(
        default=None,
        description="training sees random crops of whole image files, of at least this share of the area; null: the squares",
    )
    labels: bool = Field(default=True, description="use labels, where there are any, for evaluation")
    label_file: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="a table of name,label whose labels are used instead of those of folders; null: none"
    )
    strict: bool = Field(default=False, description="stop at the first unreadable item instead of skipping it")
    held_out: Fraction = Field(default=0.1, description="fraction held out as the test set where a source has none of its own")


class Train(Strict):
    """How long, in which batches, on what."""

    steps: PositiveInt = Field(default=1000, description="length of the run")
    epochs: PositiveInt | None = Field(default=None, description="where given, the length of the run instead of steps")
    batch: Annotated[Int, Field(ge=2)] = Field(default=256, description="samples in a step, over all processes")
    start_from: str = Field(
        default="",
        description="run folder, or name of a model that comes with sao, whose weights and networks to begin with; empty: none",
    )
    start_weights: str = Field(
        default="", description="step and checksum of those weights, filled in on reading; others are refused"
    )
    schedule: Literal["constant", "cosine"] = Field(default="constant", description="of every learning rate")
    warmup_epochs: NonNegativeInt = Field(default=0, description="epochs of linear warm-up of the learning rates")
    device: str = Field(default="auto", description="cpu, cuda, cuda:1, …; auto: an accelerator where there is one")
    threads: PositiveInt | None = Field(default=None, description="of the processor; null: as many as torch takes")
    precision: Literal["float32", "bfloat16", "auto"] = Field(
        default="float32", description="of passes without Jacobian norms (autocast); auto: what is faster here"
    )
    tf32: bool = Field(default=False, description="use TF32 on an NVIDIA GPU in forward passes without Jacobian norms")
    compile: bool = Field(
        default=False, description="torch.compile for passes without Jacobian norms; first steps take minutes"
    )
    deterministic: bool = Field(
        default=False, description="the same bits each time on a GPU too, where it can: slower, and some methods are refused"
    )
    check_every: PositiveInt = Field(default=100, description="steps after which processes compare their weights")
    timeout_seconds: PositiveInt = Field(default=60, description="how long a process may be silent before others give it up")


def _words(value: Any) -> Any:
    """A list that a person may type as one word, or as words with commas between them; each of them once."""
    if isinstance(value, str):
        value = [word.strip() for word in value.split(",")]
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise ValueError("Input should be words with commas between them")
    return list(dict.fromkeys(value))


class Log(Strict):
    """What is written while it trains."""

    every: PositiveInt = Field(default=10, description="steps between rows of metrics.jsonl")
    evaluate_every: PositiveInt | None = Field(default=None, description="steps between evaluations; null: at the end only")
    evaluate_minutes: PositiveFloat | None = Field(
        default=10, description="minutes that the evaluation after the last step may take; null: as long as it takes"
    )
    sample_every: PositiveInt | None = Field(
        default=None, description="steps between pictures of samples; null: only at the end"
    )
    checkpoint_every: PositiveInt = Field(default=500, description="steps between checkpoints")
    keep: PositiveInt = Field(default=2, description="checkpoints to keep")
    to: Annotated[tuple[Literal["tensorboard", "wandb", "mlflow"], ...], BeforeValidator(_words)] = Field(
        default=(), description="where metrics go too, with commas between them; wandb is offline unless WANDB_MODE says else"
    )
    report: bool = Field(default=True, description="make report.html after the last step and after sao eval")


class Config(Strict):
    """A run."""

    seed: Annotated[Int, Field(ge=0, lt=2**32)] = Field(default=0, description="of every draw; scikit-learn takes no larger")
    data: Data = Field(default=Data(), description="what to learn from")
    method: AnyMethod = Field(default=structural.Options(), description="how to learn")
    encoder: EncoderOptions | None = Field(
        default=None, description="the network that learns; null: the usual one for the data"
    )
    train: Train = Field(default=Train(), description="how long, in which batches, on what")
    log: Log = Field(default=Log(), description="what is written while it trains")

    @model_validator(mode="after")
    def _encoder_fits_the_method(self) -> Self:
        if self.encoder is not None and not self.method.can_use(type(self.encoder)):
            usable = " or ".join(name for name, member in ENCODERS.items() if self.method.can_use(member))
            advice = f"set --encoder {usable}, or leave it out" if usable else "leave --encoder out"
            raise ValueError(f"method {self.method.name} cannot use encoder {self.encoder.name}: {advice}")
        return self

    def build_method(self, shape: tuple[int, ...], samples: int, classes: int | None) -> Method:
        """The method at step 0, for so many training samples of a shape; one configuration always gives the same weights."""
        for name, value in self.method:
            if isinstance(value, Augmentation) and len(shape) == 3:  # some need colour
                value.check_channels(shape[0], f"method.{name}")
        context = Context(shape, samples, self.train.batch, self.steps_for(samples), self.seed, classes, self.encoder)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(derived_seed(self.seed, "weights"))
            return self.method.build(context)

    def usual_encoder(self, shape: tuple[int, ...]) -> AnyEncoderOptions | None:
        """What the method uses where nobody names an encoder; None where it has one of its own that is no option."""
        if self.method.encoders is None:
            return encoder_for_shape(shape)
        if not self.method.encoders:
            return None
        name = self.method.encoders[0]
        return ENCODERS[name].model_validate({"name": name})

    def steps_for(self, samples: int) -> int:
        """The length of the run in steps."""
        if self.train.epochs is None:
            return self.train.steps
        return self.train.epochs * self._steps_per_epoch(samples)

    def warmup_steps_for(self, samples: int) -> int:
        return self.train.warmup_epochs * self._steps_per_epoch(samples)

    def learns_as(self, other: "Config") -> bool:
        """Whether runs of the two learn the same: how often they are looked at changes nothing."""
        return self.model_copy(update={"log": other.log}) == other

    def by_name(self) -> dict[str, Any]:
        """Every option by its dotted name, in values that JSON holds."""
        return dict(flat(self.model_dump(mode="json")))

    def _steps_per_epoch(self, samples: int) -> int:
        return max(1, samples // self.train.batch)


def rebuild() -> None:
    """Let `Config` take every method and encoder that is listed by now; those of outside are added while a program runs."""
    encoder = Annotated[Union[tuple(ENCODERS.values())], Field(discriminator="name")]  # noqa: UP007
    Config.model_fields["method"].annotation = Union[tuple(METHODS.values())]  # pyright: ignore  # noqa: UP007
    Config.model_fields["encoder"].annotation = encoder | None  # pyright: ignore
    Config.model_rebuild(force=True)


def load_preset(name: str, overrides: Mapping[str, str] | None = None) -> Config:
    """A preset by name (or a .yaml file by path) with dotted options changed, for example {"train.batch": "64"}."""
    return build(_mapping(preset_text(name), f"preset {name}"), overrides, origin=f"preset {name}")


def build(values: Mapping[str, Any], overrides: Mapping[str, str] | None = None, origin: str = "config") -> Config:
    """Validate nested values; an error is one line with the key. For another method only what both methods have stays.

    Overrides are what a person typed: FILE.py:NAME among them is imported. Nothing among the values is.
    """
    merged = deepcopy(dict(values))
    overrides = _expanded(overrides or {})
    dotted.rename(merged)
    for kind in outside.BASES:
        group = merged.get(kind)
        outside.find_installed(kind, group.get("name") if isinstance(group, dict) else None)
    for key in sorted(overrides, key=lambda key: "." in key.removesuffix(".name")):  # names before their options
        dotted.set_option(Config, merged, key, overrides[key])
    typed = {key.removesuffix(".name") for key in overrides}
    if "method" in typed and not any(key.startswith("encoder") for key in typed):
        _drop_unusable_encoder(merged)
    try:
        return Config.model_validate(merged)
    except ValidationError as error:
        raise InputError(dotted.one_line(Config, error, origin)) from None


def _expanded(overrides: Mapping[str, str]) -> dict[str, str]:
    """What was typed with names from outside found, and timm:NAME in two options."""
    found = {key: outside.named(dotted.current_name(key), text) for key, text in overrides.items()}
    for key in ("encoder", "encoder.name"):
        if found.get(key, "").startswith(TIMM):
            found |= {"encoder.model": found[key].removeprefix(TIMM), key: TIMM.removesuffix(":")}
    return found


def _drop_unusable_encoder(values: dict[str, Any]) -> None:
    """A preset's encoder that the method asked for instead of the preset's cannot use."""
    encoder = values.get("encoder")
    known = ENCODERS.get(encoder.get("name", "")) if isinstance(encoder, dict) else None
    if known is not None and not METHODS[values["method"]["name"]].can_use(known):
        del values["encoder"]


def save(config: Config, path: Path) -> None:
    needed = outside.records(config)
    values = {"format": FORMAT, **({"outside": needed} if needed else {}), **config.model_dump(mode="json")}
    write_text(path, yaml.safe_dump(values, sort_keys=False, allow_unicode=True))


def load(path: Path) -> Config:
    """A configuration that `save` wrote."""
    try:
        text = read_text(path)
    except InputError:  # of a link
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None
    values = _mapping(text, str(path))
    written = values.pop("format", None)
    if written not in (2, FORMAT):
        raise InputError(f"{path} has format {written!r}, and this version of sao reads format {FORMAT}")
    dotted.rename(values, hint=False)  # nobody typed them
    outside.check(values.pop("outside", None), values, str(path.parent))
    return build(values, origin=str(path))


def flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested options by their dotted names."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _mapping(text: str, origin: str) -> dict[str, Any]:
    try:
        values = yaml.safe_load(text)
    except RecursionError:
        raise InputError(f"{origin} is nested too deeply to be a configuration") from None
    except yaml.YAMLError as error:
        raise InputError(f"{origin} cannot be read as YAML: {' '.join(str(error).split())}") from None
    if values is not None and not isinstance(values, dict):
        raise InputError(f"{origin} must hold a mapping of options, not a {type(values).__name__}")
    return values or {}
