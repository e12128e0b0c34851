"""One strict model of every option. A preset is a YAML file that changes some of them; a dotted flag changes one."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from sao.errors import InputError


def _no_truth_value(value: Any) -> Any:
    """Python counts True as 1; an option that wants a number does not."""
    if isinstance(value, bool):
        raise ValueError("Input should be a number")
    return value


Whole = Annotated[int, BeforeValidator(_no_truth_value)]
Number = Annotated[float, BeforeValidator(_no_truth_value), Field(allow_inf_nan=False)]
Positive = Annotated[Whole, Field(ge=1)]
Above = Annotated[Number, Field(gt=0)]
Weight = Annotated[Number, Field(ge=0)]
Share = Annotated[Number, Field(gt=0, lt=1)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Data(Strict):
    """What to learn from, and how it is augmented."""

    source: Annotated[str, Field(min_length=1)] = (
        "digits"  # a name from `sao.data.sources`, or a path: folder, archive, .npy, .npz, .csv, .parquet
    )
    folder: str = "~/.cache/sao/datasets"  # where named data sets are kept or downloaded to
    size: Annotated[Whole, Field(ge=8, le=256)] | None = None  # pixels a side; None: as the data is
    flip: bool = False
    crop: Annotated[Number, Field(gt=0, le=1)] | None = None  # smallest area of a random crop; None: no crops
    jitter: Weight = 0.0  # strength of random brightness, contrast, saturation, hue and grey; 2 is SimCLR's
    fit: Literal["crop", "pad"] = "crop"  # how images that are not square become so
    labels: bool = True  # use labels, where there are any, for evaluation
    strict: bool = False  # stop at the first unreadable item instead of skipping it
    held_out: Share = 0.1  # part kept for evaluation where a source has no test part of its own


class Discriminator(Strict):
    kind: Literal["resnet", "biggan"] = "resnet"  # biggan: its own 32x32 network, of width widths[-1], spectrally normalised
    widths: Annotated[tuple[Positive, ...], Field(min_length=1)] | None = (
        None  # one entry a stage; None: the paper's for the image size
    )
    blocks: Positive = 2  # residual blocks a stage; for vectors the depth of the perceptron
    embedding_size: Positive = 128
    spectral_normalisation: bool = False


class Generator(Strict):
    width: Positive = 128
    depth: Positive = 2
    latent_size: Positive = 128


class Objective(Strict):
    distance: Literal["jensen_shannon", "bhattacharyya", "hinge"] = "jensen_shannon"
    covariance: Literal["full", "diagonal"] = "full"
    centre: Literal["sphere", "mean"] = "sphere"
    epsilon: Above = 0.5
    cluster_weight: Weight = 3.0  # λ_c
    neighbours: Positive = 1  # K
    skip_first_fake: bool = False  # also drop the nearest neighbour of a generated sample, as the authors' code does
    bank: Positive = 10240
    smoothness_weight: Weight = 5.0  # λ_s
    lipschitz: Above = 1.0
    power_steps: Positive = 1
    smooth_every: Positive = 1  # 1 is the method; more trades smoothness for speed
    norm_weight: Weight = 4.0  # λ_h
    norm_side: Literal["floor", "ceiling"] = "floor"


class Contrast(Strict):
    """What the method simclr adds: its loss and its projection head."""

    temperature: Above = 0.2
    hidden: Positive = 2048
    size: Positive = 256  # of the projection


class Optimiser(Strict):
    kind: Literal["adamw", "lars"] = "adamw"  # lars is for simclr alone
    learning_rate: Above = 2e-4
    betas: tuple[Share, Share] = (0.5, 0.999)  # of adamw
    weight_decay: Weight = 0.0


class DecayedOptimiser(Optimiser):
    weight_decay: Weight = 0.1


class Train(Strict):
    steps: Positive = 1000
    epochs: Positive | None = None  # where given, the length of the run instead of steps
    batch: Annotated[Whole, Field(ge=2)] = 256  # global, over all processes
    micro_batch: Positive | None = None  # discriminator passes at most this many samples at a time; the same gradient
    discriminator: DecayedOptimiser = DecayedOptimiser()
    generator: Optimiser = Optimiser()
    schedule: Literal["constant", "cosine"] = "constant"  # of every learning rate
    warmup_epochs: Annotated[Whole, Field(ge=0)] = 0  # passes over the data in which the learning rates rise from nothing
    ema: Annotated[Number, Field(ge=0, lt=1)] = 0.99
    device: str = "auto"
    threads: Positive | None = None
    precision: Literal["float32", "bfloat16", "auto"] = "float32"  # of passes that carry no Jacobian; auto: what is faster here
    check_every: Positive = 100  # steps after which processes compare their weights; a difference stops the run
    timeout_seconds: Positive = 60  # how long a process may not answer before the others give it up


class Log(Strict):
    every: Positive = 10  # steps between rows of metrics.jsonl
    evaluate_every: Positive | None = None  # None: at the end only
    sample_every: Positive | None = None
    checkpoint_every: Positive = 500
    keep: Positive = 2  # checkpoints
    tensorboard: bool = False


class Config(Strict):
    method: Literal["structural", "simclr", "supervised", "random"] = "structural"
    seed: Annotated[Whole, Field(ge=0, lt=2**32)] = 0  # scikit-learn takes no larger one
    data: Data = Data()
    discriminator: Discriminator = Discriminator()
    generator: Generator = Generator()
    objective: Objective = Objective()
    contrast: Contrast = Contrast()
    train: Train = Train()
    log: Log = Log()

    def steps_for(self, samples: int) -> int:
        """The length of the run in steps."""
        if self.train.epochs is None:
            return self.train.steps
        return self.train.epochs * self._steps_an_epoch(samples)

    def warmup_steps_for(self, samples: int) -> int:
        return self.train.warmup_epochs * self._steps_an_epoch(samples)

    def _steps_an_epoch(self, samples: int) -> int:
        return max(1, samples // self.train.batch)


def load_preset(name: str, overrides: Mapping[str, str] | None = None) -> Config:
    """A preset by name (or a .yaml file by path) with dotted options changed, for example {"train.batch": "64"}."""
    return build(_mapping(preset_text(name), f"preset {name}"), overrides, origin=f"preset {name}")


def build(values: Mapping[str, Any], overrides: Mapping[str, str] | None = None, origin: str = "config") -> Config:
    """Validate nested values; every error is one line that names the key."""
    merged = _copied(values)
    for key, text in (overrides or {}).items():
        _set(merged, key, text)
    try:
        return Config.model_validate(merged)
    except ValidationError as error:
        raise InputError(_one_line(error, origin)) from None


def save(config: Config, path: Path) -> None:
    path.write_text(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False), encoding="utf-8")


def load(path: Path) -> Config:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None
    return build(_mapping(text, str(path)), origin=str(path))


def preset_names() -> list[str]:
    return sorted(p.name.removesuffix(".yaml") for p in resources.files("sao.presets").iterdir() if p.name.endswith(".yaml"))


def preset_text(name: str) -> str:
    if name.endswith((".yaml", ".yml")):
        try:
            return Path(name).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise InputError(f"preset file {name} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if name not in preset_names():
        raise InputError(f"there is no preset {name!r}{nearest(name, preset_names())}; `sao presets` lists them")
    return (resources.files("sao.presets") / f"{name}.yaml").read_text(encoding="utf-8")


def option_names(model: type[BaseModel] = Config, prefix: str = "") -> Iterator[str]:
    """Every dotted option."""
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from option_names(inner, f"{prefix}{name}.")
        else:
            yield prefix + name


def nearest(word: str, words: Sequence[str]) -> str:
    """ " (did you mean …?)", or nothing where no word is near."""
    found = difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    return f" (did you mean {found[0]}?)" if found else ""


def _mapping(text: str, origin: str) -> dict[str, Any]:
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"{origin} cannot be read as YAML: {' '.join(str(error).split())}") from None
    if values is not None and not isinstance(values, dict):
        raise InputError(f"{origin} must hold a mapping of options, not a {type(values).__name__}")
    return values or {}


def _set(values: dict[str, Any], key: str, text: str) -> None:
    names = list(option_names())
    key = key.replace("-", "_")
    if key not in names:
        raise InputError(f"there is no option --{key}{nearest(key, names)}")
    *parents, last = key.split(".")
    model: type[BaseModel] = Config
    for parent in parents:
        inner = values.setdefault(parent, {})
        if not isinstance(inner, dict):
            return  # not a group of options: what validates the whole says so
        values, model = inner, _group(model, parent)
    # A text is taken as it was typed: a folder may be called 2024, yes or [x].
    values[last] = text if _is_text(model.model_fields[last].annotation) else _parsed(text)
    if key == "train.steps":  # asked for by name, it replaces the epochs of a preset
        values["epochs"] = None


def _parsed(text: str) -> Any:
    """A number as Python reads it (YAML takes 1e-3 for a text and 010 for 8); anything else as YAML does."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def _group(model: type[BaseModel], name: str) -> type[BaseModel]:
    inner = model.model_fields[name].annotation
    assert isinstance(inner, type)
    assert issubclass(inner, BaseModel)
    return inner


def _is_text(annotation: Any) -> bool:
    return annotation is str or any(isinstance(choice, str) for choice in get_args(annotation))


def _copied(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copied(value) if isinstance(value, Mapping) else value for key, value in values.items()}


def _one_line(error: ValidationError, origin: str) -> str:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"] if isinstance(part, str))
    if first["type"] == "extra_forbidden":
        return f"{origin}: there is no option {key}{nearest(key, list(option_names()))}"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "literal_error":
        return f"{origin}: {key}: {message}, got {first['input']!r}{_nearest_choice(key, first['input'])}"
    shown = "" if isinstance(first["input"], dict | BaseModel) else f", got {first['input']!r}"
    return f"{origin}: {key}: {message}{shown}"


def _nearest_choice(key: str, value: Any) -> str:
    *parents, last = key.split(".")
    model: type[BaseModel] = Config
    for parent in parents:
        model = _group(model, parent)
    return nearest(str(value), get_args(model.model_fields[last].annotation))


METHODS = get_args(Config.model_fields["method"].annotation)
