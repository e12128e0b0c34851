"""Arrays of numbers in .npy and .npz files, never unpickled, or in memory: rows of numbers, or images brought to one size."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from sao.data import dataset
from sao.data.dataset import Images, usable_rows
from sao.data.files.archives import file_digest
from sao.data.files.decode import Recipe, fit
from sao.data.files.images import FORMAT_VERSION, LARGEST, choose_size, fit_note
from sao.data.files.npz import npz_names, read_npz
from sao.data.files.reading import Found, Numbers, ReadOptions, Skipped, Splits, codes_and_names
from sao.data.split import Labels, labels_or_note
from sao.errors import InputError, printable

DATA_NAMES = ("x", "images", "data", "features")
LABEL_NAMES = ("y", "labels", "label", "target", "targets")
CHUNK_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Arrays:
    """Samples along the first axis and their labels; the test pair only if the file has one."""

    x: np.ndarray
    y: np.ndarray | None = None
    x_test: np.ndarray | None = None
    y_test: np.ndarray | None = None

    def names(self, rows: Iterable[int]) -> list[str]:
        """By the split of a row, where there are two."""
        if self.x_test is None:
            return [f"row {row}" for row in rows]
        first = len(self.x)
        return [f"train row {row}" if row < first else f"test row {row - first}" for row in rows]

    def splits(self, usable: np.ndarray) -> Splits | None:
        if self.x_test is None or len(self.x_test) == 0:
            return None
        first = int(np.searchsorted(usable, len(self.x)))
        if first in (0, len(usable)):
            raise InputError("the training or the test array has no usable sample: mend it, or save one array x")
        return np.arange(first), np.arange(first, len(usable))

    def labels(self, usable: np.ndarray) -> tuple[Labels | None, list[str]]:
        if self.y is None:
            return None, []
        if self.x_test is None:
            return labels_or_note(self.y.reshape(-1)[usable])
        if self.y_test is None:
            return None, ["the labels were not used: there are some for the training set only"]
        return labels_or_note(np.concatenate([self.y.reshape(-1), self.y_test.reshape(-1)])[usable])


def read_arrays(path: Path, options: ReadOptions) -> Found:
    name = printable(str(path))
    try:
        with open(path, "rb") as stream:
            zipped = stream.read(2) == b"PK"
        arrays = _from_npz(path) if zipped else Arrays(np.load(path, mmap_mode="r", allow_pickle=False))
    except InputError:
        raise
    except Exception as error:  # numpy lets parser and memory errors through on damaged files
        reason = printable(str(error).split("\n")[0])[:120] or type(error).__name__
        raise InputError(
            f"{name} cannot be read ({reason}): save a plain array with numpy.save, without pickled objects"
        ) from None
    for x, y in ((arrays.x, arrays.y), (arrays.x_test, arrays.y_test)):
        if x is not None and x.dtype.kind not in "biuf":
            raise InputError(f"{name} holds values of type {x.dtype}: save numbers (uint8 or float32)")
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
    if arrays.x.ndim == 2:
        values = np.asarray(arrays.x if arrays.x_test is None else np.concatenate([arrays.x, arrays.x_test]), np.float64)
        if values.shape[1] == 0:
            raise InputError(f"{options.where} has rows of length 0: give vectors of shape (n, d)")
        usable, count, what = np.flatnonzero(usable_rows(values)), len(values), "value"
    else:
        images = ArrayImages(arrays, options)
        usable, count, what = images.usable, len(images), "pixel"
    bad = np.setdiff1d(np.arange(count), usable)
    skipped = [Skipped(name, f"a {what} is not a finite number") for name in arrays.names(bad)]
    options.check(len(usable), skipped)
    labels, notes = arrays.labels(usable) if options.use_labels else (None, [])
    splits, about = arrays.splits(usable), codes_and_names(labels, arrays.names(usable))
    if images is not None:
        pixels = _pixels(images, options, path)
        return Found(Images(pixels, *about), splits, skipped, images.notes + notes)
    assert values is not None
    columns = [f"column {i}" for i in range(values.shape[1])] if columns is None else columns
    return Found(Numbers(columns, values[usable], *about), splits, skipped, notes)


def _pixels(images: "ArrayImages", options: ReadOptions, path: Path | None) -> np.ndarray:
    """The finished images: as they lie in the file where they may, else in memory up to a size, beyond it in the cache."""
    if (unchanged := images.unchanged()) is not None:
        return unchanged
    recipe, count = images.recipe, len(images.usable)
    shape = (recipe.size, recipe.size, recipe.channels)
    if path is None or count * math.prod(shape) <= dataset.IN_MEMORY_BYTES:
        return np.concatenate(list(images.chunks()))
    key = f"arrays-{FORMAT_VERSION}-{recipe.size}-{recipe.channels}-{recipe.fit}-{file_digest(path).hex()}"
    if (stored := options.cache.read(key)) is not None:
        return stored.pixels
    with options.cache.writer({"pixels": shape}, count) as writer:
        for chunk in images.chunks():
            writer.append(pixels=chunk)
        return writer.commit(key, {}).pixels


class ArrayImages:
    """Images (n, h, w[, c]) or (n, c, h, w) of any number type, as a recipe's uint8 squares, a chunk at a time."""

    def __init__(self, arrays: Arrays, options: ReadOptions) -> None:
        name = options.where
        self.notes: list[str] = []
        self._arrays = [self._channels_last(x, name) for x in (arrays.x, arrays.x_test) if x is not None]
        height, width, channels = self._arrays[0].shape[1:]
        if min(height, width) < 1:
            raise InputError(f"{name} has images without pixels: save arrays of shape (n, h, w) or (n, h, w, c)")
        size = options.size
        if size is None:
            keep = height == width <= LARGEST and height in (8, 16, 32, 64, 128)
            size, note = (height, None) if keep else choose_size([min(height, width)])
            self.notes += [note] if note else []
        self.recipe = Recipe(size, options.channels or (1 if channels == 1 else 3), options.fit)
        self._scale, self._offset, bad = self._find_scale(name)
        self.usable = np.setdiff1d(np.arange(len(self)), bad)
        if note := fit_note(Counter({(width, height): 1}), self.recipe):
            self.notes.append(note)
        if channels == 4:
            self.notes.append("the images have transparency and were composited on white")

    def __len__(self) -> int:
        return sum(map(len, self._arrays))

    def chunks(self) -> Iterator[np.ndarray]:
        """The finished images of all usable rows, counted through training and test array."""
        step = self._chunk_length()
        for start in range(0, len(self.usable), step):
            yield self._finish(self._take(self.usable[start : start + step]))

    def unchanged(self) -> np.ndarray | None:
        """The array itself where every image of it is used as it is."""
        images = self._arrays[0]
        finished = (self.recipe.size, self.recipe.size, self.recipe.channels)
        same = len(self._arrays) == 1 and images.dtype == np.uint8 and images.shape[1:] == finished
        return images if same else None

    def _finish(self, values: np.ndarray) -> np.ndarray:
        if values.dtype != np.uint8:
            scaled = values.astype(np.float64 if values.dtype.kind == "f" else np.float32)
            values = (scaled * self._scale + self._offset + 0.5).astype(np.uint8)
        shape = (self.recipe.size, self.recipe.size, self.recipe.channels)
        if values.shape[1:] == shape:
            return values
        images = (Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image) for image in values)
        return np.stack([fit(image, self.recipe) for image in images])

    def _find_scale(self, name: str) -> tuple[float, float, np.ndarray]:
        """(scale, offset) to 0..255 and the rows with NaN or infinity, from one pass over all values."""
        kind = self._arrays[0].dtype
        if kind == np.uint8:
            return 1, 0, np.zeros(0, np.int64)
        low, high, bad = np.inf, -np.inf, []
        step = self._chunk_length()
        for start in range(0, len(self), step):
            chunk = self._take(np.arange(start, min(start + step, len(self))))
            finite = np.isfinite(chunk).all(axis=(1, 2, 3))
            bad.append(start + np.flatnonzero(~finite))
            if finite.any():
                low, high = min(low, chunk[finite].min()), max(high, chunk[finite].max())
        low, high = float(low), float(high)
        if kind.kind == "b" or (kind.kind == "f" and low >= 0 and high <= 1):
            scale, offset, found = 255.0, 0.0, "in [0, 1]"
        elif kind.kind == "f" and low >= -1 and high <= 1:
            scale, offset, found = 127.5, 127.5, "in [-1, 1]"
        elif low >= 0 and high <= 255:
            scale, offset, found = 1.0, 0.0, "in [0, 255]"
        elif kind == np.uint16:
            scale, offset, found = 1 / 257, 0.0, "of 16 bits"
        else:
            raise InputError(f"{name} has pixels from {low:g} to {high:g}: scale them to [0, 1] or [0, 255], or save uint8")
        self.notes.append(f"{kind} pixels {found} were converted to 8 bits")
        return scale, offset, np.concatenate(bad)

    def _take(self, rows: np.ndarray) -> np.ndarray:
        first = len(self._arrays[0])
        taken = [self._arrays[0][rows[rows < first]]]
        if len(self._arrays) > 1:
            taken.append(self._arrays[1][rows[rows >= first] - first])
        return taken[0] if len(taken) == 1 else np.concatenate(taken)

    def _channels_last(self, x: np.ndarray, name: str) -> np.ndarray:
        if x.ndim == 3:
            return x[..., None]
        if x.ndim == 4 and x.shape[-1] in (1, 3, 4):
            return x
        if x.ndim == 4 and x.shape[1] in (1, 3, 4):
            note = "the arrays were read as (n, c, h, w): their last axis is not a channel axis"
            self.notes += [] if note in self.notes else [note]
            return np.moveaxis(x, 1, -1)
        raise InputError(
            f"{name} has shape {x.shape}: images are (n, h, w) or (n, h, w, c) with 1, 3 or 4 channels, vectors (n, d)"
        )

    def _chunk_length(self) -> int:
        first = self._arrays[0]
        return max(1, CHUNK_BYTES // max(1, int(np.prod(first.shape[1:])) * first.dtype.itemsize))
