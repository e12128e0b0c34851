"""Arrays, from a file or from memory, as samples: rows of numbers, or images brought to one size."""

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from sao.data import rows
from sao.data.file_source import Skipped
from sao.data.files.archives import file_digest
from sao.data.files.arrays import ArrayImages, Arrays
from sao.data.files.cache import Cache
from sao.data.files.images import FORMAT_VERSION, ImageRequest, Reading, check_enough, strict_error
from sao.data.files.tables import usable_rows
from sao.data.split import Labels, labels_or_note
from sao.data.unsplit import Read, UnsplitImages, UnsplitVectors
from sao.errors import InputError


def from_arrays(
    arrays: Arrays, request: ImageRequest, use_labels: bool, cache: Cache, reading: Reading, path: Path | None = None
) -> Read:
    """Rows of numbers or images, from a file or from memory."""
    if arrays.x.ndim == 2:
        return _from_vectors(arrays, use_labels, reading)
    return _from_images(path, arrays, request, use_labels, cache, reading)


def _from_images(
    path: Path | None, arrays: Arrays, request: ImageRequest, use_labels: bool, cache: Cache, reading: Reading
) -> Read:
    images = ArrayImages(arrays, request, reading.where)
    skipped = [Skipped(name, "a pixel is not a finite number") for name in _row_names(arrays, images.bad_rows)]
    check_usable(len(images.usable), skipped, reading)
    labels, notes = _array_labels(arrays, images.usable, use_labels)
    parts = _array_parts(arrays, images.usable)
    names = _row_names(arrays, images.usable)
    pixels = _array_pixels(path, images, cache)
    return UnsplitImages(pixels, names, labels, parts), skipped, images.notes + notes


def _array_pixels(path: Path | None, images: ArrayImages, cache: Cache) -> np.ndarray:
    """The finished images: as they lie in the file where they may, else in memory up to a size, beyond it in the cache."""
    if (unchanged := images.unchanged()) is not None:
        return unchanged
    recipe, count = images.recipe, len(images.usable)
    shape = (recipe.size, recipe.size, recipe.channels)
    if path is None or count * math.prod(shape) <= rows.IN_MEMORY_BYTES:
        return np.concatenate(list(images.blocks()))
    key = f"arrays-{FORMAT_VERSION}-{recipe.size}-{recipe.channels}-{recipe.fit}-{file_digest(path).hex()}"
    if (stored := cache.read(key)) is not None:
        return stored.pixels
    with cache.writer(shape, count) as writer:
        for block in images.blocks():
            writer.append(block)
        return writer.commit(key, {}).pixels


def _from_vectors(arrays: Arrays, use_labels: bool, reading: Reading) -> Read:
    values = np.asarray(arrays.x if arrays.x_test is None else np.concatenate([arrays.x, arrays.x_test]), np.float64)
    if values.shape[1] == 0:
        raise InputError(f"{reading.where} has rows of length 0: give vectors of shape (n, d)")
    usable = np.flatnonzero(usable_rows(values))
    bad = np.setdiff1d(np.arange(len(values)), usable)
    skipped = [Skipped(name, "a value is not a finite number") for name in _row_names(arrays, bad)]
    check_usable(len(usable), skipped, reading)
    labels, notes = _array_labels(arrays, usable, use_labels)
    columns = [f"column {i}" for i in range(values.shape[1])]
    names = _row_names(arrays, usable)
    found = UnsplitVectors(columns, values[usable], names, labels, _array_parts(arrays, usable))
    return found, skipped, notes


def _row_names(arrays: Arrays, numbers: Iterable[int]) -> list[str]:
    """By the part that a row is in, where there are two."""
    if arrays.x_test is None:
        return [f"row {row}" for row in numbers]
    first = len(arrays.x)
    return [f"train row {row}" if row < first else f"test row {row - first}" for row in numbers]


def _array_parts(arrays: Arrays, usable: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    if arrays.x_test is None or len(arrays.x_test) == 0:
        return None
    first = int(np.searchsorted(usable, len(arrays.x)))
    if first in (0, len(usable)):
        raise InputError("the training or the test array has no usable sample: mend it, or save one array x")
    return np.arange(first), np.arange(first, len(usable))


def _array_labels(arrays: Arrays, usable: np.ndarray, use_labels: bool) -> tuple[Labels | None, list[str]]:
    if not use_labels or arrays.y is None:
        return None, []
    if arrays.x_test is None:
        values = arrays.y.reshape(-1)
    elif arrays.y_test is None:
        return None, ["the labels were not used: there are some for the training part only"]
    else:
        values = np.concatenate([arrays.y.reshape(-1), arrays.y_test.reshape(-1)])
    return labels_or_note(values[usable])


def check_usable(usable: int, skipped: list[Skipped], reading: Reading) -> None:
    if reading.strict and skipped:
        raise strict_error(skipped[0])
    check_enough(usable, reading, skipped)
