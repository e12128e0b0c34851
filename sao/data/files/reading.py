"""What all readers of files share: the options that they are given, the files they are given, and what they return."""

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from sao.data.dataset import Images, PixelRange, Standardiser, Vectors
from sao.data.files.cache import Cache
from sao.data.files.decode import Failure, Loaded, Pages, Recipe
from sao.data.files.stacks import FULL
from sao.data.split import Labels
from sao.errors import InputError, printable

FRAME = 2  # a whole frame is kept at so many times the size: a crop of a quarter of its area then still has all its pixels

FEW_CHANNELS = 16  # a short axis, or as many pages, are taken for channels
FULL_RANGE = (0.0, float(FULL))
AXES = "NDHWC"

EMPTY = "there are no samples: give at least one"
SHOWN = 3  # of the items that could not be used
LEAVES, LINKED_FOLDER = "a link that leaves the folder", "a link to a folder; only links to files are followed"

Fit = Literal["crop", "pad", "centre"]
Splits = tuple[np.ndarray, np.ndarray]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Skipped:
    """One item that was not used, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Entry:
    """One file that may be an image: its path inside the source with "/" between the parts, and its length in bytes."""

    name: str
    size: int


class Source:
    """Files in a fixed order, by default those at its paths; `load` gives one item for each entry, in that order."""

    labels: Sequence[str] | None = None  # of every entry, where something better than the folders in its name says so
    splits: Splits | None = None

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.skipped: list[Skipped] = []
        self._paths: list[str] = []

    def load(self) -> Iterator[Loaded]:
        yield from self._paths

    @property
    def files(self) -> dict[str, str]:
        """The path of each entry, by its name as it is printed."""
        return {printable(entry.name): path for entry, path in zip(self.entries, self._paths, strict=True)}

    def digest(self) -> bytes | None:
        """A digest of all contents if one is cheaper than reading every file, else None."""
        return None

    def skip(self, name: str, reason: str) -> None:
        self.skipped.append(Skipped(printable(name), reason))


def leaves(name: str) -> bool:
    """Whether a path that an archive or a table names leads out of it, on any system."""
    parts = name.split("/")
    return name.startswith("/") or ".." in parts or (len(parts[0]) == 2 and parts[0][1] == ":")


def inside(path: str, root: str) -> str | Failure:
    """The file behind a path, which may be a link, unless it lies outside a folder without links in its own path."""
    real = os.path.realpath(path, strict=True)
    return real if os.path.commonpath([real, root]) == root else Failure(LEAVES)


@dataclass(frozen=True)
class ReadOptions:
    """How data is to be read: packed once, where it is opened, and passed along whole. None is "choose from the data"."""

    where: str  # what messages call the data
    minimum: int = 1  # fewest usable samples
    split: bool = False  # folders called train and test are splits
    columns: Sequence[str] | None = None  # of a table, those that a trained network expects
    size: int | None = None
    largest: int | None = None  # of the size, where it is chosen; None: as large as is ever chosen
    channels: int | None = None
    fit: Fit = "crop"
    axes: str | None = None  # of arrays, a letter each: N samples, D slices of a volume, H height, W width, C channels
    pages: Pages = "auto"  # of TIFF stacks
    range: tuple[float, float] | None = None  # of values of more than 8 bits, in every channel
    bits: int | None = None  # 8 or 16, as a trained network expects
    pixel_range: PixelRange | None = None  # that it was trained with
    crop: float | None = None  # with it, whole images are kept beside the squares
    use_labels: bool = True
    strict: bool = False  # an item that cannot be used is an error
    cache_folder: Path | None = None
    workers: int | None = None
    progress: Progress | None = None

    def __post_init__(self) -> None:
        allowed = [2**k for k in range(3, 9)]
        if self.size is not None and self.size not in allowed:
            raise InputError(f"size {self.size} is not possible: choose one of {', '.join(map(str, allowed))}")
        if self.channels is not None and self.channels < 1:
            raise InputError(f"channels {self.channels} is not possible: give 1 (grey), 3 (colour) or what the data has")
        if self.axes is not None and not (set("HW") <= set(self.axes) <= set(AXES) and len(set(self.axes)) == len(self.axes)):
            raise InputError(
                f'axes "{printable(self.axes)}" are not possible: give a letter for each, such as NHWC, NCHW or NDHW'
                " (N samples, D slices, C channels, H height, W width)"
            )
        if self.range is not None and not -np.inf < self.range[0] < self.range[1] < np.inf:
            raise InputError(f"range {list(self.range)} is not possible: give the lower value first, such as [0,4095]")
        if self.fit not in ("crop", "pad", "centre"):
            raise InputError(f'fit "{self.fit}" is not known: choose "crop", "pad" or "centre"')
        if self.workers is not None and self.workers < 1:
            raise InputError(f"workers {self.workers} is not possible: give 1 or more")

    @property
    def cache(self) -> Cache:
        return Cache(self.cache_folder)

    def recipe(self, size: int, channels: int, bits: int = 8, pages: Pages | None = None) -> Recipe:
        """With what was not asked for."""
        frame = FRAME * size if self.crop is not None else None
        span = None if self.pixel_range is None else (self.pixel_range.low, self.pixel_range.high)
        if span is None and self.range is not None:
            span = (self.range[:1] * channels, self.range[1:] * channels)
        return Recipe(size, channels, self.fit, frame, bits, span, pages or self.pages)

    def check(self, usable: int, skipped: Sequence[Skipped]) -> None:
        self.refuse(skipped)
        if usable == 0 and not skipped:
            raise InputError(EMPTY)
        if usable < self.minimum:
            raise InputError(
                f"{self.where} has only {usable} usable samples{first_of(skipped)}: give at least {self.minimum},"
                " and many more to learn from"
            )

    def refuse(self, skipped: Sequence[Skipped]) -> None:
        if self.strict and skipped:
            raise InputError(f"{skipped[0].name}: {skipped[0].reason}; mend or remove it")


def skipped_said(skipped: Sequence[Skipped]) -> str:
    """How many items could not be used, and why the first of them could not."""
    named = "; ".join(f"{item.name}: {item.reason}" for item in skipped[:SHOWN])
    items = "1 item" if len(skipped) == 1 else f"{len(skipped)} items"
    return f"{items} could not be used: {named}{'; …' if len(skipped) > SHOWN else ''}"


def links_said(where: str, skipped: Sequence[Skipped]) -> str | None:
    """How links that are not followed can be: a path that a person wrote into a list may lead anywhere."""
    links = sum(item.reason in (LEAVES, LINKED_FOLDER) for item in skipped)
    listed = f"`find -L {shlex.quote(where)} -type f > images.txt` lists what they lead to, and images.txt can be the data"
    return f"{links} links out of {where} were not followed: {listed}" if links else None


def first_of(skipped: Sequence[Skipped]) -> str:
    return f" ({len(skipped)} skipped, the first: {skipped[0].name}: {skipped[0].reason})" if skipped else ""


@dataclass(frozen=True)
class Numbers:
    """Rows float64 (n, d) as they were in the file."""

    columns: Sequence[str]
    values: np.ndarray
    labels: np.ndarray | None
    names: list[str]
    class_names: list[str] | None

    def scaled(self, standardiser: Standardiser | None) -> Vectors:
        rows = self.values.astype(np.float32) if standardiser is None else standardiser.apply(self.values)
        return Vectors(rows, self.labels, self.names, self.class_names)


@dataclass(frozen=True)
class Found:
    """Everything usable, not split yet; the splits that the data names itself; what was left out; sentences to print."""

    samples: Images | Numbers
    splits: Splits | None
    skipped: list[Skipped]
    notes: list[str]
    pixel_range: PixelRange | None = None  # of images of 16 bits, in the units of the data
    reading: Sequence[str] = ()  # sentences about what could be read in another way: a person should see them


class Readable(Protocol):
    """Data that is at no path: how it is called, and how it is read."""

    @property
    def name(self) -> str: ...

    def read(self, options: ReadOptions) -> Found: ...


def codes_and_names(labels: Labels | None, names: list[str]) -> tuple[np.ndarray | None, list[str], list[str] | None]:
    """Labels, names and names of the classes, in the order in which samples take them."""
    return (None, names, None) if labels is None else (labels.codes, names, labels.names)
