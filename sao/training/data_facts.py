"""What a run records of its data, in data.json: enough to use the model without it, to recognise it, to find it."""

import json
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from sao.config import Config
from sao.data.files.open import data_exists
from sao.errors import InputError
from sao.runtime import code_files

if TYPE_CHECKING:  # torch comes with it, and a folder that is no run is refused without waiting for torch
    from sao.data.dataset import Dataset, Samples

GLIMPSED_ROWS = 64  # of each split
# Another version of an image library, or another processor, may round differently; other data is further away.
ABSOLUTE, RELATIVE = 0.02, 1e-3

Count = Annotated[int, Field(ge=1)]
Glimpse = list[tuple[float, float, int | None]]  # of some rows: mean and deviation as the network sees them, and the label


@dataclass(frozen=True)
class DataFacts:
    name: str
    shape: tuple[Count, ...]
    samples: Count
    classes: Count | None = None
    standardiser: dict[str, Any] | None = None  # the transform of vectors, see sao.data.files.tables
    place: tuple[str, str] | None = None  # absolute, and as seen from the run
    glimpse: dict[str, Glimpse] | None = None  # by split
    pixel_range: dict[str, list[float]] | None = None  # of images of 16 bits: low and high of each channel, as -1 and 1

    @classmethod
    def of(
        cls, dataset: "Dataset", standardiser: dict[str, Any] | None = None, pixel_range: dict[str, Any] | None = None
    ) -> "DataFacts":
        glimpse = {"train": _glimpse(dataset.train), "test": _glimpse(dataset.test)}
        shape, samples = dataset.train.shape, len(dataset.train)
        return cls(dataset.name, shape, samples, dataset.classes, standardiser, glimpse=glimpse, pixel_range=pixel_range)

    @classmethod
    def from_text(cls, text: str) -> "DataFacts":
        """What `as_text` wrote; anything else is a ValueError of one line."""
        try:
            facts = TypeAdapter(cls).validate_python(json.loads(text))
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['msg']}") from None
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        if len(facts.shape) not in (1, 3):
            raise ValueError(f"shape: {facts.shape} is neither of images nor of vectors")
        if facts.standardiser is not None:
            _check_standardiser(facts.standardiser, facts.shape)
        if facts.pixel_range is not None:
            _check_range(facts.pixel_range, facts.shape)
        return facts

    def as_text(self) -> str:
        """JSON, a line for each fact."""
        lines = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in asdict(self).items()]
        return "{\n" + ",\n".join(lines) + "\n}\n"

    def difference(self, now: "DataFacts") -> str | None:
        """What has changed in the data since these facts were written; None for the same data."""
        if (self.shape, self.samples, self.classes) != (tuple(now.shape), now.samples, now.classes):
            return f"{_counted(self)} then, {_counted(now)} now"
        if self.glimpse is None or now.glimpse is None:  # a copy of a run does not say
            return None
        for split, then in self.glimpse.items():
            if not _alike(then, now.glimpse.get(split, [])):
                return f"as many samples of the same shape, but other ones in the {split} set"
        return None


def _glimpse(samples: "Samples") -> Glimpse:
    rows = np.unique(np.linspace(0, len(samples) - 1, GLIMPSED_ROWS).astype(np.int64))
    inputs = samples.inputs(rows).flatten(1).double()
    labels = [None] * len(rows) if samples.labels is None else [int(label) for label in samples.labels[rows]]
    means, deviations = inputs.mean(1).tolist(), inputs.std(1, correction=0).tolist()
    return [(round(mean, 5), round(std, 5), label) for mean, std, label in zip(means, deviations, labels, strict=True)]


def _alike(then: Glimpse, now: Glimpse) -> bool:
    if len(then) != len(now) or [row[2] for row in then] != [row[2] for row in now]:
        return False
    return all(
        math.isclose(before, after, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
        for old, new in zip(then, now, strict=True)
        for before, after in zip(old[:2], new[:2], strict=True)
    )


def _counted(facts: DataFacts) -> str:
    kinds = "no classes" if facts.classes is None else f"{facts.classes} classes"
    return f"{facts.samples} samples of {tuple(facts.shape)} with {kinds}"


def _check_range(stored: dict[str, list[float]], shape: tuple[int, ...]) -> None:
    low, high = stored.get("low", []), stored.get("high", [])
    right = len(shape) == 3 and len(low) == len(high) == shape[0] and all(map(math.isfinite, low + high))
    if not right or any(before > after for before, after in zip(low, high, strict=True)):
        raise ValueError("pixel_range: its numbers do not fit together")


def _check_standardiser(stored: dict[str, Any], shape: tuple[int, ...]) -> None:
    from sao.data.dataset import Standardiser

    try:
        found = TypeAdapter(Standardiser).validate_python(stored)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"standardiser.{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    numbers = (*found.mean, *found.std, found.factor)
    lengths = {len(found.columns), len(found.kept), len(found.mean), len(found.std)}
    inside = all(0 <= column < found.width for column in found.kept)
    if lengths != set(shape) or not all(map(math.isfinite, numbers)) or not inside or min(*found.std, found.factor) <= 0:
        raise ValueError("standardiser: its numbers do not fit together")


WITHOUT_FILES = ("digits", "spirals")


def place_of(config: Config, run: Path) -> tuple[str, str] | None:
    """Of data that lies somewhere: its absolute path, and the one that leads there from the run."""
    key = _key(config)
    path = None if key is None else Path(getattr(config.data, key)).expanduser()
    if path is None or not data_exists(path):
        return None
    return os.path.abspath(path), os.path.relpath(os.path.realpath(path), os.path.realpath(run))


def with_data_found(config: Config, run: Path, place: tuple[str, str] | None) -> Config:
    """The configuration with the path at which the data is now, wherever the command was typed."""
    key = _key(config)
    if key is None:
        return config
    typed = Path(getattr(config.data, key)).expanduser()
    noted = [] if place is None else [Path(place[0]), run.resolve() / place[1]]
    places = list(dict.fromkeys(os.path.abspath(path) for path in (*noted, typed)))
    found = next((path for path in places if data_exists(path)), None)
    if found is None and key == "folder":
        return config  # a named data set can be downloaded again
    if found is None:
        raise InputError(f"the data of {run} is not there any more: looked at {', '.join(places)}; say where with --data PATH")
    return with_data(config, **{key: found})


def with_data(config: Config, **changes: str) -> Config:
    return config.model_copy(update={"data": config.data.model_copy(update=changes)})


def _key(config: Config) -> str | None:
    """The option that holds the path: the source itself, or the folder of data sets that have a name; None for a function."""
    from sao.data.named import NAMES  # torch comes with it

    if code_files.split(config.data.source) is not None:
        return None
    if config.data.source not in NAMES:
        return "source"
    return None if config.data.source in WITHOUT_FILES else "folder"
