"""What a data source returns: images or vectors in two splits, with one interface for training, evaluation and export."""

import mmap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sao.errors import InputError

IN_MEMORY_BYTES = 512 * 2**20  # what is copied without a second thought
LARGEST_VALUE = 1e30  # beyond this the squares that standardising needs leave float range
PAIRS_SAMPLED = 2000
UNLABELLED = -1  # the class number of a sample without a label, where others have one


# --- rows of an array that may be mapped from disk -----------------------------------------------------------------------


class SelectedRows:
    """`array[rows]` as far as the samples need it; indexing reads from the array, which may be mapped from disk."""

    def __init__(self, array: np.ndarray, rows: np.ndarray) -> None:
        self.array, self.rows = array, rows
        self.shape = (len(rows), *array.shape[1:])
        self.ndim, self.dtype = array.ndim, array.dtype
        self.nbytes = int(np.prod(self.shape)) * array.dtype.itemsize

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: Any) -> np.ndarray:
        """A copy of these rows; behind the rows, indices of the other axes may follow."""
        first, *others = key if isinstance(key, tuple) else (key,)
        return self.array[(self.rows[first], *others)]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("selected rows of an array can only be copied")
        return np.asarray(self[:], dtype)


Rows = np.ndarray | SelectedRows


class ScaledRows:
    """Pixels of 16 bits as numbers from 0 to 255, made of the rows that are asked for: as bytes, or with all their digits."""

    def __init__(self, pixels: Rows, levels: "PixelRange", dtype: Any) -> None:
        self._pixels, self._levels, self.dtype = pixels, levels, np.dtype(dtype)
        self.shape, self.ndim = pixels.shape, pixels.ndim
        self.nbytes = int(np.prod(self.shape)) * self.dtype.itemsize

    def __len__(self) -> int:
        return len(self._pixels)

    def __getitem__(self, key: Any) -> np.ndarray:
        values = self._levels.parts(self._pixels[key]) * np.float32(255)
        return values if self.dtype == np.float32 else np.rint(values).astype(self.dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype)


Pixels = Rows | ScaledRows


def select_rows(array: Rows, rows: np.ndarray) -> Rows:
    """Rows of an array: a part of it where they are one run, copied into memory where they are few, else an index."""
    if isinstance(array, SelectedRows):
        array, rows = array.array, array.rows[rows]
    if rows.dtype == bool:
        rows = np.flatnonzero(rows)
    if len(rows) and np.array_equal(rows, np.arange(rows[0], rows[0] + len(rows))):
        return array[rows[0] : rows[0] + len(rows)]
    selected = SelectedRows(array, rows)
    return selected[:] if selected.nbytes <= IN_MEMORY_BYTES else selected


def read_rows(array: Rows, rows: np.ndarray, into: np.ndarray) -> None:
    """Copy rows into an array of as many, in the order in which they lie: so a disk reads forwards."""
    if isinstance(array, SelectedRows):
        array, rows = array.array, array.rows[rows]
    order = np.argsort(rows)
    if isinstance(array, np.memmap) and array.flags.c_contiguous:
        _prefetch_pages(array, rows[order])
    into[order] = array[rows[order]]


def _prefetch_pages(array: np.memmap, rows: np.ndarray) -> None:
    """Let the system fetch rows of a file side by side. It would read each when it is touched, and megabytes around it."""
    mapping = getattr(array, "_mmap", None)
    if mapping is None or not hasattr(mmap, "MADV_WILLNEED"):
        return
    start = array.ctypes.data - np.frombuffer(mapping, np.uint8).ctypes.data
    row_bytes = array.strides[0]
    for row in rows.tolist():
        first, end = start + row * row_bytes, start + (row + 1) * row_bytes
        first -= first % mmap.PAGESIZE
        mapping.madvise(mmap.MADV_WILLNEED, first, end - first)


# --- pixels of 16 bits ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PixelRange:
    """The values that a network sees as -1 and 1, of each channel; what lies beyond is clipped."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    @classmethod
    def of(cls, low: np.ndarray, high: np.ndarray) -> "PixelRange":
        """From the extremes (c,) of each channel. Three channels are taken for colours, which keep their balance."""
        if len(low) == 3:
            low, high = np.full(3, low.min()), np.full(3, high.max())
        return cls(tuple(low.astype(float).tolist()), tuple(high.astype(float).tolist()))

    @classmethod
    def everywhere(cls, low: float, high: float, channels: int) -> "PixelRange":
        return cls((float(low),) * channels, (float(high),) * channels)

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> "PixelRange":
        return cls(tuple(map(float, stored["low"])), tuple(map(float, stored["high"])))

    def to_dict(self) -> dict[str, Any]:
        return {"low": list(self.low), "high": list(self.high)}

    @property
    def widths(self) -> tuple[float, ...]:
        """A channel that never varies is seen as -1."""
        return tuple(high - low if high > low else 1.0 for low, high in zip(self.low, self.high, strict=True))

    def parts(self, pixels: np.ndarray) -> np.ndarray:
        """Values (…, c) as float32 parts of the range, in [0, 1]."""
        wide = np.float32 if pixels.dtype in (np.uint8, np.uint16, np.float32) else np.float64
        shifted = pixels.astype(wide) - np.asarray(self.low, wide)
        return (shifted / np.asarray(self.widths, wide)).clip(0, 1).astype(np.float32, copy=False)

    def values(self, inputs: Tensor) -> Tensor:
        """Inputs (n, c, h, w) of a network as float32 (n, h, w, c) in the units of the data."""
        low, width = (torch.tensor(of, dtype=torch.float32, device=inputs.device) for of in (self.low, self.widths))
        return (inputs.permute(0, 2, 3, 1).clamp(-1, 1) + 1) / 2 * width + low

    def scaling(self, device: torch.device | str = "cpu") -> "Scaling":
        low, width = (torch.tensor(of, dtype=torch.float32).view(-1, 1, 1) for of in (self.low, self.widths))
        return Scaling(low.to(device), (2 / width).to(device))

    def said(self) -> str:
        if len(set(self.low)) == len(set(self.high)) == 1:
            return f"from {self.low[0]:g} to {self.high[0]:g}"
        return f"from {min(self.low):g} to {max(self.high):g}, each channel by its own range"


class Scaling(NamedTuple):
    """A range of pixels as tensors (c, 1, 1) on a device, where a step needs it without a copy."""

    low: Tensor
    factor: Tensor


def as_tensor(values: np.ndarray) -> Tensor:
    """An array as a tensor on the same memory; 16 bits as int16, because torch has few operators for uint16."""
    return torch.from_numpy(values.view(np.int16) if values.dtype == np.uint16 else values)


# --- samples -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Frames:
    """Whole pictures (n, s, s, c), squashed to squares whatever their shape, with width over height of each (n,).

    Training sees random crops of them, which keep at least the share `crop` of the area.
    """

    pixels: Rows
    aspects: np.ndarray
    crop: float

    def select(self, rows: np.ndarray) -> "Frames":
        return Frames(select_rows(self.pixels, rows), self.aspects[rows], self.crop)


@dataclass(frozen=True, eq=False)
class Images:
    """Pixels (n, h, w, c), in memory, memory-mapped or an index of such; labels are for evaluation only, -1 is none.

    They are uint8, or uint16 with the `levels` that a network sees as -1 and 1. Where there are `frames`, a training step sees
    crops of them; everything else looks at the pixels.
    """

    pixels: Rows
    labels: np.ndarray | None = None
    names: Sequence[str] | None = None
    class_names: Sequence[str] | None = None
    frames: Frames | None = None
    levels: PixelRange | None = None

    def __post_init__(self) -> None:
        if self.pixels.dtype != (np.uint8 if self.levels is None else np.uint16) or self.pixels.ndim != 4:
            raise InputError(
                "images must be uint8, or uint16 with a range, of shape (n, h, w, c),"
                f" got {self.pixels.dtype} {self.pixels.shape}"
            )
        _check_rows(len(self.pixels), self.labels, self.names)

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample as a network sees it: (c, h, w)."""
        height, width, channels = self.pixels.shape[1:]
        return channels, height, width

    def inputs(self, rows: np.ndarray | slice, device: torch.device | str = "cpu") -> Tensor:
        """Network input for these rows: float32 (n, c, h, w) in [-1, 1], made on the device, to which bytes are sent."""
        # A part of a file that is mapped to be read only is copied: torch warns of what it may not write to.
        pixels = as_tensor(np.require(self.pixels[rows], requirements=("C", "W")))
        return pixels_to_inputs(pixels.to(device), None if self.levels is None else self.levels.scaling(device))

    @property
    def bytes(self) -> Pixels:
        """As 8 bits: what is shown, and what pictures are compared by."""
        return self.pixels if self.levels is None else ScaledRows(self.pixels, self.levels, np.uint8)

    @property
    def intensities(self) -> Pixels:
        """Numbers from 0 to 255 in all precision that there is: what baselines without a network learn from."""
        return self.pixels if self.levels is None else ScaledRows(self.pixels, self.levels, np.float32)

    def select(self, rows: np.ndarray) -> "Images":
        frames = None if self.frames is None else self.frames.select(rows)
        labels, names = _selected(rows, self.labels, self.names)
        return Images(select_rows(self.pixels, rows), labels, names, self.class_names, frames, self.levels)


@dataclass(frozen=True, eq=False)
class Vectors:
    """float32 rows (n, d), already in the scale that a network should see (see `Standardiser`)."""

    rows: np.ndarray
    labels: np.ndarray | None = None
    names: Sequence[str] | None = None
    class_names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.rows.dtype != np.float32 or self.rows.ndim != 2:
            raise InputError(f"vectors must be float32 of shape (n, d), got {self.rows.dtype} {self.rows.shape}")
        _check_rows(len(self.rows), self.labels, self.names)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.rows.shape[1:]

    def inputs(self, rows: np.ndarray | slice, device: torch.device | str = "cpu") -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(self.rows[rows])).to(device)

    def select(self, rows: np.ndarray) -> "Vectors":
        return Vectors(self.rows[rows], *_selected(rows, self.labels, self.names), self.class_names)


Samples = Images | Vectors


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training set and a test set; both have labels or neither has."""

    name: str
    train: Samples
    test: Samples

    @property
    def classes(self) -> int | None:
        labels = self.train.labels
        return None if labels is None else int(labels.max()) + 1


def joined(train: Samples, test: Samples) -> Samples:
    """Both parts as one, with their labels where both have some."""
    names = None if train.names is None or test.names is None else [*train.names, *test.names]
    labels = None
    if train.labels is not None and test.labels is not None:
        labels = np.concatenate([train.labels, test.labels])
    if isinstance(train, Images) and isinstance(test, Images):
        pixels = np.concatenate([train.pixels[:], test.pixels[:]])
        return Images(pixels, labels, names, train.class_names, levels=train.levels)
    assert isinstance(train, Vectors)
    assert isinstance(test, Vectors)
    return Vectors(np.concatenate([train.rows, test.rows]), labels, names, train.class_names)


def pixels_to_inputs(pixels: Tensor, scaling: Scaling | None = None) -> Tensor:
    """Pixels (n, h, w, c) → float32 (n, c, h, w) in [-1, 1], on the tensor's own device.

    They are uint8, or with a scaling 16 bits (see `as_tensor`) or floating-point numbers.
    """
    planes = pixels.permute(0, 3, 1, 2)
    if scaling is None:
        return planes.to(torch.float32, memory_format=torch.contiguous_format).div_(127.5).sub_(1.0)
    if planes.dtype == torch.int16:
        planes = planes.to(torch.int32).bitwise_and(0xFFFF)
    inputs = planes.to(torch.float32, memory_format=torch.contiguous_format)
    return ((inputs - scaling.low) * scaling.factor - 1).clamp(-1, 1)


def _check_rows(n: int, labels: np.ndarray | None, names: Sequence[str] | None) -> None:
    for kind, given in (("label", labels), ("name", names)):
        if given is not None and len(given) != n:
            raise InputError(f"there are {n} samples but {len(given)} {kind}s: give one {kind} for each sample, or none")


def _selected(
    rows: np.ndarray, labels: np.ndarray | None, names: Sequence[str] | None
) -> tuple[np.ndarray | None, list[str] | None]:
    kept_labels = None if labels is None else labels[rows]
    kept_names = None if names is None else [str(names[i]) for i in np.arange(len(names))[rows]]
    return kept_labels, kept_names


def described_images(channels: int, levels: PixelRange | None = None) -> str:
    """In words: grey, colour, or how many channels; with 16 bits where it has them."""
    kind = {1: "grey", 3: "colour"}.get(channels, f"{channels}-channel")
    return kind if levels is None else f"16-bit {kind}"


# --- the scale of vectors ------------------------------------------------------------------------------------------------


def usable_rows(values: np.ndarray) -> np.ndarray:
    """Which rows have only numbers that can be computed with."""
    with np.errstate(invalid="ignore"):
        return np.all(np.abs(values) <= LARGEST_VALUE, axis=1)


@dataclass(frozen=True)
class Standardiser:
    """x → factor · (x − mean) / std on the kept columns, with training statistics; stored with a run to embed new rows.

    `factor` sets the length scale: it makes the median distance of two rows `length_scale`. With a Jacobian norm near 1 the
    discriminator cannot separate points at distances far below 1 (design: "The Lipschitz target is a length scale").
    """

    columns: tuple[str, ...]
    kept: tuple[int, ...]
    width: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    factor: float

    @classmethod
    def fit(cls, rows: np.ndarray, columns: Sequence[str], length_scale: float, seed: int) -> "Standardiser":
        if not 0 < length_scale < np.inf:
            raise InputError(f"length_scale {length_scale} is not possible: give a positive number, such as 16")
        mean, std = rows.mean(axis=0), rows.std(axis=0)
        # Not by std alone: that of one repeated value can be a rounding error, and dividing by it would make noise.
        kept = np.flatnonzero((np.ptp(rows, axis=0) > 0) & (std > 0))
        if len(kept) == 0:
            raise InputError("every column has the same value in all rows: give a table in which something varies")
        mean, std = mean[kept], std[kept]
        scaled = (rows[:, kept] - mean) / std
        generator = np.random.default_rng([seed % 2**63, len(rows)])
        left, right = generator.integers(0, len(rows), (2, PAIRS_SAMPLED))
        distances = np.linalg.norm(scaled[left] - scaled[right], axis=1)
        distances = distances[distances > 0]
        factor = length_scale / float(np.median(distances)) if len(distances) else length_scale
        chosen = kept.tolist()
        names = tuple(columns[i] for i in chosen)
        return cls(names, tuple(chosen), rows.shape[1], tuple(mean.tolist()), tuple(std.tolist()), factor)

    def apply(self, rows: np.ndarray) -> np.ndarray:
        """float32 (n, kept) from rows with either all of the original columns or just the kept ones."""
        if rows.ndim != 2 or rows.shape[1] not in (self.width, len(self.kept)):
            raise InputError(
                f"rows of shape {rows.shape} do not fit: the network was trained on {self.width} columns"
                f" ({len(self.kept)} of them in use)"
            )
        if rows.shape[1] == self.width:
            rows = rows[:, list(self.kept)]
        scaled = (rows.astype(np.float64) - np.array(self.mean)) / np.array(self.std) * self.factor
        return scaled.astype(np.float32)

    def invert(self, rows: np.ndarray) -> np.ndarray:
        """Rows (n, kept) in the original units of the kept columns."""
        return rows.astype(np.float64) / self.factor * np.array(self.std) + np.array(self.mean)

    def to_dict(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> "Standardiser":
        sequences = {name: tuple(stored[name]) for name in ("columns", "kept", "mean", "std")}
        return cls(width=int(stored["width"]), factor=float(stored["factor"]), **sequences)
