"""Arrays of numbers in .npy and .npz files, never unpickled, or in memory: rows of numbers, or images brought to one size.

Images have any number of channels. Slices of volumes are images of their own. 8 bits stay 8, and 16 stay 16.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from sao.data import dataset
from sao.data.dataset import LARGEST_VALUE, Images, PixelRange, usable_rows
from sao.data.files.archives import file_digest
from sao.data.files.decode import Recipe, fit, fit_planes, in_bits
from sao.data.files.images import FORMAT_VERSION, LARGEST, choose_size, fit_note
from sao.data.files.npz import npz_names, read_npz
from sao.data.files.reading import (
    AXES,
    FEW_CHANNELS,
    FULL_RANGE,
    Found,
    Numbers,
    ReadOptions,
    Skipped,
    Splits,
    codes_and_names,
)
from sao.data.split import SLICE, Labels, labels_or_note
from sao.errors import InputError, explained, printable

DATA_NAMES = ("x", "images", "data", "features")
LABEL_NAMES = ("y", "labels", "label", "target", "targets")
CHUNK_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Arrays:
    """Samples along the first axis and their labels; the test pair only if the file has one.

    Where samples are volumes, rows are counted through all of their `slices`.
    """

    x: np.ndarray
    y: np.ndarray | None = None
    x_test: np.ndarray | None = None
    y_test: np.ndarray | None = None
    slices: int = 1

    def names(self, rows: Iterable[int]) -> list[str]:
        """By the split of a row, where there are two."""
        found = []
        for row, number in (divmod(int(row), self.slices) for row in rows):
            first = len(self.x) if self.x_test is not None else None
            name = f"row {row}" if first is None else f"train row {row}" if row < first else f"test row {row - first}"
            found.append(name if self.slices == 1 else f"{name}{SLICE}{number + 1}")
        return found

    def splits(self, usable: np.ndarray) -> Splits | None:
        if self.x_test is None or len(self.x_test) == 0:
            return None
        first = int(np.searchsorted(usable, len(self.x) * self.slices))
        if first in (0, len(usable)):
            raise InputError("the training or the test array has no usable sample: mend it, or save one array x")
        return np.arange(first), np.arange(first, len(usable))

    def labels(self, usable: np.ndarray) -> tuple[Labels | None, list[str]]:
        if self.y is None:
            return None, []
        rows = usable // self.slices
        if self.x_test is None:
            return labels_or_note(self.y.reshape(-1)[rows])
        if self.y_test is None:
            return None, ["the labels were not used: there are some for the training set only"]
        return labels_or_note(np.concatenate([self.y.reshape(-1), self.y_test.reshape(-1)])[rows])


def read_arrays(path: Path, options: ReadOptions) -> Found:
    name = printable(str(path))
    with explained(path, "", "save a plain array with numpy.save, without pickled objects"), open(path, "rb") as stream:
        zipped = stream.read(2) == b"PK"
        arrays = _from_npz(path) if zipped else Arrays(np.load(path, mmap_mode="r", allow_pickle=False))
    for x, y in ((arrays.x, arrays.y), (arrays.x_test, arrays.y_test)):
        if x is not None and x.dtype.kind not in "biuf":
            raise InputError(f"{name} holds values of type {x.dtype}: save numbers (uint8, uint16 or float32)")
        if x is not None and options.axes is not None:
            x = _samples_first(x, options)[0]
        if x is not None and y is not None and y.shape not in ((len(x),), (len(x), 1)):
            raise InputError(f"{name} has labels of shape {y.shape} for {len(x)} samples: give one label for each")
    test = arrays.x_test
    if test is not None and (test.shape[1:] != arrays.x.shape[1:] or test.dtype != arrays.x.dtype):
        raise InputError(f"{name}: x_train and x_test differ in shape or type: save samples of one shape and type")
    return from_arrays(arrays, options, path)


def _from_npz(path: Path) -> Arrays:
    """The arrays by the names that people give them, in capitals or not; an array without axes is one sample."""
    names = {name.lower(): name for name in npz_names(path)}

    def first(*candidates: str) -> np.ndarray | None:
        name = next((names[name] for name in candidates if name in names), None)
        return None if name is None else np.atleast_1d(read_npz(path, [name])[name])

    train = first("x_train")
    if train is not None:
        return Arrays(train, first("y_train"), first("x_test"), first("y_test"))
    x = first(*DATA_NAMES) if len(names) > 1 else first(*names)
    if x is None:
        held = ", ".join(printable(name) for name in list(names)[:5]) or "nothing"
        raise InputError(
            f"{printable(str(path))} holds {held}: name the samples x_train and x_test, or x (labels y_train, y_test, y)"
        )
    return Arrays(x, first(*LABEL_NAMES))


def from_arrays(arrays: Arrays, options: ReadOptions, path: Path | None = None, columns: Sequence[str] | None = None) -> Found:
    """Rows of numbers, whose columns may have names, or images; `path` is where they come from."""
    images = values = None
    if arrays.x.ndim == 2 and options.axes is None:
        values = np.asarray(arrays.x if arrays.x_test is None else np.concatenate([arrays.x, arrays.x_test]), np.float64)
        if values.shape[1] == 0:
            raise InputError(f"{options.where} has rows of length 0: give vectors of shape (n, d)")
        usable, count, what = np.flatnonzero(usable_rows(values)), len(values), "value"
    else:
        images = ArrayImages(arrays, options)
        arrays = images.arrays
        usable, count, what = images.usable, len(images), "pixel"
    bad = np.setdiff1d(np.arange(count), usable)
    skipped = [Skipped(name, f"a {what} is not a finite number") for name in arrays.names(bad)]
    options.check(len(usable), skipped)
    labels, notes = arrays.labels(usable) if options.use_labels else (None, [])
    splits, about = arrays.splits(usable), codes_and_names(labels, arrays.names(usable))
    if images is not None:
        found = Images(_pixels(images, options, path), *about, levels=images.levels)
        return Found(found, splits, skipped, images.notes + notes, images.pixel_range, images.reading)
    assert values is not None
    columns = [f"column {i}" for i in range(values.shape[1])] if columns is None else columns
    return Found(Numbers(columns, values[usable], *about), splits, skipped, notes)


def _pixels(images: "ArrayImages", options: ReadOptions, path: Path | None) -> np.ndarray:
    """The finished images: as they lie in the file where they may, else in memory up to a size, beyond it in the cache."""
    if (unchanged := images.unchanged()) is not None:
        return unchanged
    recipe, count = images.recipe, len(images.usable)
    if path is None or count * math.prod(recipe.shape) * recipe.dtype.itemsize <= dataset.IN_MEMORY_BYTES:
        return images.in_memory()
    about = hashlib.blake2b(repr((recipe, options.axes)).encode() + file_digest(path), digest_size=16).hexdigest()
    key = f"arrays-{FORMAT_VERSION}-{recipe.size}-{recipe.channels}-{recipe.fit}-{about}"
    if (stored := options.cache.read(key)) is not None:
        return stored.pixels
    with options.cache.writer({"pixels": recipe.shape}, count, recipe.dtype) as writer:
        for chunk in images.chunks():
            writer.append(pixels=chunk)
        return writer.commit(key, {}).pixels


class ArrayImages:
    """Images of any number type and order of axes as a recipe's squares of 8 or 16 bits, a chunk at a time.

    `levels` are the stored values of 16 bits that a network sees as -1 and 1, `pixel_range` the same in the units of the data.
    """

    def __init__(self, arrays: Arrays, options: ReadOptions) -> None:
        self._name = options.where
        self.notes: list[str] = []
        self.reading: list[str] = []
        oriented = [_oriented(*_samples_first(x, options)) for x in (arrays.x, arrays.x_test) if x is not None]
        self._volumes = [volumes for volumes, _ in oriented]  # views (n, d, h, w, c)
        self.reading += oriented[0][1]
        self.slices, height, width, channels = self._volumes[0].shape[1:]
        # With samples along the first axis, wherever they were.
        first, *others = [volumes[:, 0] for volumes in self._volumes]
        self.arrays = Arrays(first, arrays.y, others[0] if others else None, arrays.y_test, self.slices)
        if min(height, width, channels) < 1:
            raise InputError(f"{self._name} has images without pixels: save arrays of shape (n, h, w) or (n, h, w, c)")
        size = options.size
        if size is None:
            keep = height == width <= LARGEST and height in (8, 16, 32, 64, 128)
            size, note = (height, None) if keep else choose_size([min(height, width)], options.largest)
            self.notes += [note] if note else []
        low, high, bad = self._extremes(known=options.range is not None or options.pixel_range is not None)
        self.usable = np.setdiff1d(np.arange(len(self)), bad)
        bits = options.bits or self._bits(low, high, options)
        transparent = channels == 4 and bits == 8 and options.channels != 4
        wanted = options.channels or (3 if transparent else channels)
        self._check_form(wanted, channels, bits)
        self._choose_range(low, high, bits, wanted, options)
        span = None if self.pixel_range is None or self._kept else (self.pixel_range.low, self.pixel_range.high)
        self.recipe = Recipe(size, wanted, options.fit, bits=bits, span=span)
        if note := fit_note({(width, height)}, self.recipe):
            self.notes.append(note)
        if transparent:
            self.reading.append("4 channels are transparency, which was composited on white (--data.channels 4 keeps 4)")

    def __len__(self) -> int:
        return sum(map(len, self._volumes)) * self.slices

    def chunks(self) -> Iterator[np.ndarray]:
        """The finished images of all usable rows, counted through training and test array."""
        step = self._chunk_length()
        for start in range(0, len(self.usable), step):
            yield self._finish(self._take(self.usable[start : start + step]))

    def in_memory(self) -> np.ndarray:
        """All of them, without a second copy."""
        found, done = np.empty((len(self.usable), *self.recipe.shape), self.recipe.dtype), 0
        for chunk in self.chunks():
            found[done : done + len(chunk)] = chunk
            done += len(chunk)
        return found

    def unchanged(self) -> np.ndarray | None:
        """The array itself where every image of it is used as it is."""
        volumes, recipe = self._volumes[0], self.recipe
        finished = (volumes.dtype, volumes.shape[2:]) == (recipe.dtype, recipe.shape) and recipe.span is None
        if len(self._volumes) > 1 or not finished:
            return None
        if self.slices == 1:
            return volumes[:, 0]
        # Slices lie behind each other: one axis of both is a view, else it would be a copy of everything.
        behind = volumes.strides[0] == self.slices * volumes.strides[1]
        return volumes.reshape(-1, *recipe.shape) if behind else None

    def _finish(self, values: np.ndarray) -> np.ndarray:
        recipe, channels = self.recipe, values.shape[-1]
        if recipe.bits == 8 and values.dtype != np.uint8:
            wide = np.float32 if values.dtype.kind != "f" else np.float64
            values = (values.astype(wide) * self._scale + self._offset + 0.5).astype(np.uint8)
        elif recipe.bits == 16:
            values = in_bits(values, recipe)
        if values.shape[1:] == recipe.shape:
            return values
        if recipe.bits == 16 or channels not in (1, 3, 4) or recipe.channels not in (1, 3):
            return np.stack([fit_planes(image, recipe) for image in values])
        images = (Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image) for image in values)
        return np.stack([fit(image, recipe) for image in images])

    # --- how many bits, and of which range ---

    def _extremes(self, known: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Least and greatest value (c,) of each channel, and rows with a value that is no usable number.

        It takes one pass, and none where whole numbers have a `known` range.
        """
        kind, channels = self._volumes[0].dtype, self._volumes[0].shape[-1]
        if kind == np.uint8 or (known and kind.kind != "f"):
            return np.zeros(channels), np.full(channels, 255.0), np.zeros(0, np.int64)
        low, high, bad = np.full(channels, np.inf), np.full(channels, -np.inf), []
        step = self._chunk_length()
        for start in range(0, len(self), step):
            chunk = self._take(np.arange(start, min(start + step, len(self))))
            if kind.kind == "f":
                with np.errstate(invalid="ignore"):
                    finite = (np.abs(chunk) <= LARGEST_VALUE).all(axis=(1, 2, 3))
                bad.append(start + np.flatnonzero(~finite))
                chunk = chunk[finite]
            if len(chunk):
                low = np.minimum(low, chunk.min(axis=(0, 1, 2)))
                high = np.maximum(high, chunk.max(axis=(0, 1, 2)))
        return low, high, np.concatenate([np.zeros(0, np.int64), *bad])

    def _bits(self, low: np.ndarray, high: np.ndarray, options: ReadOptions) -> int:
        """8 where that loses nothing, or where pictures are given as numbers in a usual range; else 16."""
        kind, channels = self._volumes[0].dtype, len(low)
        if kind == np.uint8 or kind.kind == "b" or len(self.usable) == 0:
            return 8
        if options.range is not None:
            return 16
        whole = kind.kind in "iu" and low.min() >= 0 and high.max() <= 255
        picture = channels in (1, 3, 4) and kind.kind == "f" and _usual_scale(kind, low, high) is not None
        return 8 if whole or picture else 16

    def _check_form(self, wanted: int, channels: int, bits: int) -> None:
        name = self._name
        alike = bits == 8 and wanted in (1, 3) and channels in (1, 3, 4)
        if wanted != channels and not alike:
            raise InputError(f"{name} has {channels} channels, where {wanted} are expected: give images of {wanted} channels")
        if bits == 16 and self._volumes[0].dtype == np.uint8:
            raise InputError(f"{name} has 8 bits a value, where 16 are expected: give the values that training had")

    def _choose_range(self, low: np.ndarray, high: np.ndarray, bits: int, channels: int, options: ReadOptions) -> None:
        kind = self._volumes[0].dtype
        self.levels = self.pixel_range = None
        self._kept = kind == np.uint16
        self._scale, self._offset = 1.0, 0.0  # to 0..255
        if bits == 8:
            if kind != np.uint8 and len(self.usable):
                if (usual := _usual_scale(kind, low, high)) is None:
                    said = f"{self._name} has pixels from {low.min():g} to {high.max():g}"
                    raise InputError(f"{said}: scale them to [0, 1] or [0, 255], or save uint8")
                self._scale, self._offset, found = usual
                self.notes.append(f"{kind} pixels {found} were converted to 8 bits")
            return
        if options.pixel_range is not None:
            self.pixel_range = options.pixel_range
        elif options.range is not None:
            self.pixel_range = PixelRange.everywhere(*options.range, channels)
        else:
            self.pixel_range = PixelRange.of(low, high)
            kept = "kept" if self._kept else "counted in 16 bits"
            self.reading.append(f"{kind} values are {kept}; they are normalised {self.pixel_range.said()}")
        self.levels = self.pixel_range if self._kept else PixelRange.everywhere(*FULL_RANGE, channels)

    def _take(self, rows: np.ndarray) -> np.ndarray:
        first = len(self._volumes[0])
        samples, slices = np.divmod(rows, self.slices)
        taken = [self._volumes[0][samples[samples < first], slices[samples < first]]]
        if len(self._volumes) > 1:
            taken.append(self._volumes[1][samples[samples >= first] - first, slices[samples >= first]])
        return taken[0] if len(taken) == 1 else np.concatenate(taken)

    def _chunk_length(self) -> int:
        first = self._volumes[0]
        return max(1, CHUNK_BYTES // max(1, int(np.prod(first.shape[2:])) * first.dtype.itemsize))


def _usual_scale(kind: np.dtype, low: np.ndarray, high: np.ndarray) -> tuple[float, float, str] | None:
    """Scale and offset to 0..255 of pixels in a range that pictures usually have, and its name."""
    least, most = low.min(), high.max()
    if kind.kind == "b" or (kind.kind == "f" and least >= 0 and most <= 1):
        return 255.0, 0.0, "in [0, 1]"
    if kind.kind == "f" and least >= -1 and most <= 1:
        return 127.5, 127.5, "in [-1, 1]"
    if least >= 0 and most <= 255:
        return 1.0, 0.0, "in [0, 255]"
    return (1 / 257, 0.0, "of 16 bits") if kind == np.uint16 else None


# --- the order of axes ---------------------------------------------------------------------------------------------------


def _samples_first(x: np.ndarray, options: ReadOptions) -> tuple[np.ndarray, str, str]:
    """A view with the samples along the first axis, its axes, and what is to be said of them."""
    axes, note = options.axes, ""
    # The axes of a trained network's data are those of arrays like it.
    if axes is None or (options.bits is not None and len(axes) != x.ndim):
        axes, note = _likely_axes(x.shape, options)
    if len(axes) != x.ndim:
        raise InputError(
            f"{options.where} has shape {x.shape}, and the axes {axes} are {len(axes)}: give {x.ndim} letters of {AXES}"
        )
    if "N" not in axes:
        if "D" in axes:
            axes = axes.replace("D", "N")  # slices of one volume are samples already
        else:
            x, axes = x[None], f"N{axes}"
    place = axes.index("N")
    return np.moveaxis(x, place, 0), f"N{axes[:place]}{axes[place + 1 :]}", note


def _oriented(x: np.ndarray, axes: str, note: str) -> tuple[np.ndarray, list[str]]:
    """A view (n, d, h, w, c), and sentences to print."""
    missing = [letter for letter in AXES if letter not in axes]
    x = x[(..., *[None] * len(missing))]
    there = [*axes, *missing]
    volumes = x.transpose([there.index(letter) for letter in AXES])
    notes = [note] if note else []
    if volumes.shape[1] > 1:
        notes.append(f"{len(volumes)} volumes of {volumes.shape[1]} slices: every slice is an image")
    return volumes, notes


def _likely_axes(shape: tuple[int, ...], options: ReadOptions) -> tuple[str, str]:
    """As the shape suggests, with a sentence where another reading is possible; refused where two are as likely."""
    name, first_said = options.where, "the arrays were read as (n, c, h, w)"
    if len(shape) == 3:
        return "NHW", ""
    if len(shape) != 4:
        raise InputError(
            f"{name} has shape {shape}: images are (n, h, w) or (n, h, w, c), vectors (n, d), and of others say the axes by"
            " --data.axes, such as NDHWC"
        )
    wanted = options.channels
    usual = (1, 3, 4) if wanted in (None, 1, 3, 4) else (wanted,)
    for axes, place, said in (("NHWC", 3, ""), ("NCHW", 1, f"{first_said}: their last axis is not a channel axis")):
        if shape[place] in usual:
            return axes, said
    last, first = shape[3] < min(FEW_CHANNELS + 1, *shape[1:3]), shape[1] < min(FEW_CHANNELS + 1, *shape[2:])
    if wanted is None and last and not first:
        return "NHWC", f"the arrays were read as (n, h, w, c) with {shape[3]} channels (--data.axes NHWD: as slices of volumes)"
    if wanted is None and first and not last:
        return "NCHW", f"{first_said} with {shape[1]} channels (--data.axes NDHW: as slices of volumes)"
    if wanted is not None:
        form = "(n, h, w)" if wanted == 1 else f"(n, h, w, {wanted})"
        raise InputError(f"{name} has shape {shape}, and images are {form} here: give such ones")
    raise InputError(
        f"{name} has shape {shape}, in which channels could be any axis: say it by --data.axes, NHWC or NCHW for channels,"
        " NDHW or NHWD for slices of volumes"
    )
