"""Anyone's data: a folder or archive of images, an array, or a table, as a Dataset; bad items are skipped and named."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from sao.data import rows
from sao.data.archives import file_digest, open_source
from sao.data.arrays import ArrayImages, Arrays, read_arrays
from sao.data.cache import Cache
from sao.data.file_source import Skipped
from sao.data.image_files import FORMAT_VERSION, ImageRequest, Progress, Reading, check_enough, read_pictures, strict_error
from sao.data.kind import kind_of
from sao.data.samples import Dataset, Samples
from sao.data.shard_names import shard_paths
from sao.data.shards import Shards
from sao.data.split import Labels, held_out_rows, labels_or_note, layout_of
from sao.data.tables import LARGEST_VALUE, Standardiser, listed, read_table, usable_rows
from sao.data.unsplit import UnsplitImages, UnsplitVectors
from sao.errors import InputError, printable

_Read = tuple[UnsplitImages | UnsplitVectors, list[Skipped], list[str]]

FEWEST_SAMPLES = 10
Fit = Literal["crop", "pad", "centre"]


@dataclass(frozen=True)
class Opened:
    """The data, the items left out of it, sentences to print, and for vectors the transform that new rows need."""

    dataset: Dataset
    skipped: list[Skipped]
    notes: list[str]
    standardiser: Standardiser | None = None


def open_path(
    path: str | os.PathLike[str],
    *,
    size: int | None = None,
    channels: int | None = None,
    fit: Fit = "crop",
    crop: float | None = None,
    use_labels: bool = True,
    strict: bool = False,
    held_out: float = 0.1,
    seed: int = 0,
    length_scale: float = 16.0,
    shape: Sequence[int] | None = None,
    standardiser: Standardiser | None = None,
    cache_folder: Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Opened:
    """A training and a held-out part from any path; labels, if there are any, are for evaluation only.

    With `crop`, training sees random crops of whole image files, which keep at least that share of their area.
    With the `shape` and the `standardiser` of a trained network, the data is brought into the form that it expects.
    """
    path = Path(path)
    reading = Reading(printable(str(path)), FEWEST_SAMPLES, True, workers, strict, progress)
    request = ImageRequest(size, channels, fit, crop) if shape is None else _request_for(shape, fit)
    found, skipped, notes = _read(path, request, use_labels, Cache(cache_folder), reading, standardiser)
    if shape is not None:
        _check_kind(found, shape, reading)
    if found.parts is None:
        classes = None if found.labels is None else found.labels.codes
        parts = held_out_rows(len(found.names), classes, held_out, seed)
        kind = ", of every class its share" if classes is not None else ""
        notes.append(f"{len(parts[1])} of {len(found.names)} samples are held out{kind} (seed {seed})")
    else:
        parts = found.parts
        notes.append(f"{len(parts[0])} samples to train on, {len(parts[1])} held out")
    name = printable(path.resolve().stem) or "data"
    if isinstance(found, UnsplitImages):
        return Opened(Dataset(name, found.take(parts[0], to_train=True), found.take(parts[1])), skipped, notes)
    if shape is None:
        standardiser = Standardiser.fit(found.values[parts[0]], found.columns, length_scale, seed)
        notes += _standardiser_notes(standardiser, found.columns, length_scale)
    train, test = (found.take(rows, standardiser) for rows in parts)
    if shape is not None:
        _check_columns(train, shape, reading)
    return Opened(Dataset(name, train, test), skipped, notes, standardiser)


def open_for_embedding(
    path: str | os.PathLike[str],
    *,
    shape: Sequence[int],
    standardiser: Standardiser | None = None,
    fit: Fit = "crop",
    use_labels: bool = True,
    strict: bool = False,
    cache_folder: Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> tuple[Samples, list[Skipped], list[str]]:
    """Every usable sample of a path, in order and unsplit, in the shape (c, h, w) or (d,) that a trained network expects."""
    path = Path(path)
    reading = Reading(printable(str(path)), 1, False, workers, strict, progress)
    found, skipped, notes = _read(path, _request_for(shape, fit), use_labels, Cache(cache_folder), reading, standardiser)
    _check_kind(found, shape, reading)
    everything = np.arange(len(found.names))
    if isinstance(found, UnsplitImages):
        return found.take(everything), skipped, notes
    samples = found.take(everything, standardiser)
    _check_columns(samples, shape, reading)
    return samples, skipped, notes


def _request_for(shape: Sequence[int], fit: Fit) -> ImageRequest:
    """Images as a network of this input shape expects them."""
    if len(shape) != 3:
        return ImageRequest(None, None, fit)
    if shape[1] != shape[2]:
        raise InputError(f"the network expects images of shape {tuple(shape)}, and only square ones can be read")
    return ImageRequest(shape[1], shape[0], fit)


def _check_kind(found: UnsplitImages | UnsplitVectors, shape: Sequence[int], reading: Reading) -> None:
    if isinstance(found, UnsplitImages) != (len(shape) == 3):
        kinds = ("vectors", "images") if isinstance(found, UnsplitImages) else ("images", "vectors")
        raise InputError(f"the network was trained on {kinds[0]} and {reading.where} holds {kinds[1]}: give {kinds[0]}")


def _check_columns(samples: Samples, shape: Sequence[int], reading: Reading) -> None:
    if samples.shape != tuple(shape):
        raise InputError(f"{reading.where} has {samples.shape[0]} columns and the network expects {shape[0]}")


def _read(
    path: Path, request: ImageRequest, use_labels: bool, cache: Cache, reading: Reading, standardiser: Standardiser | None
) -> _Read:
    kind = kind_of(path)
    if request.crop is not None and kind != "files":
        raise InputError(f"data.crop takes crops of whole image files, and {reading.where} holds none: leave it out")
    match kind:
        case "files":
            return _from_files(path, request, use_labels, cache, reading)
        case "arrays":
            arrays = read_arrays(path)
            if arrays.x.ndim == 2:
                return _from_vectors(arrays, use_labels, reading)
            return _from_images(path, arrays, request, use_labels, cache, reading)
        case _:
            return _from_table(path, use_labels, reading, standardiser)


def _from_files(path: Path, request: ImageRequest, use_labels: bool, cache: Cache, reading: Reading) -> _Read:
    shards = shard_paths(path)
    source = open_source(path, cache.folder) if shards is None else Shards(shards)
    pictures = read_pictures(source, request, cache, reading)
    layout = layout_of(pictures.names, use_labels, reading.split)
    names = [printable(name) for name in pictures.names]
    found = UnsplitImages(pictures.pixels, names, layout.labels, layout.parts, pictures.frames)
    return found, pictures.skipped, pictures.notes + layout.notes


def _from_images(path: Path, arrays: Arrays, request: ImageRequest, use_labels: bool, cache: Cache, reading: Reading) -> _Read:
    images = ArrayImages(arrays, request, reading.where)
    skipped = [Skipped(f"row {row}", "a pixel is not a finite number") for row in images.bad_rows]
    _check(len(images.usable), skipped, reading)
    labels, notes = _array_labels(arrays, images.usable, use_labels)
    parts = _array_parts(arrays, images.usable)
    names = [f"row {row}" for row in images.usable]
    pixels = _array_pixels(path, images, cache)
    return UnsplitImages(pixels, names, labels, parts), skipped, images.notes + notes


def _array_pixels(path: Path, images: ArrayImages, cache: Cache) -> np.ndarray:
    """The finished images: as they lie in the file where they may, else in memory up to a size, beyond it in the cache."""
    if (unchanged := images.unchanged()) is not None:
        return unchanged
    recipe, count = images.recipe, len(images.usable)
    shape = (recipe.size, recipe.size, recipe.channels)
    if count * math.prod(shape) <= rows.IN_MEMORY_BYTES:
        return np.concatenate(list(images.blocks()))
    key = f"arrays-{FORMAT_VERSION}-{recipe.size}-{recipe.channels}-{recipe.fit}-{file_digest(path).hex()}"
    if (stored := cache.read(key)) is not None:
        return stored.pixels
    with cache.writer(shape, count) as writer:
        for block in images.blocks():
            writer.append(block)
        return writer.commit(key, {}).pixels


def _from_vectors(arrays: Arrays, use_labels: bool, reading: Reading) -> _Read:
    values = np.asarray(arrays.x if arrays.x_test is None else np.concatenate([arrays.x, arrays.x_test]), np.float64)
    if values.shape[1] == 0:
        raise InputError(f"{reading.where} has rows of length 0: give vectors of shape (n, d)")
    usable = np.flatnonzero(usable_rows(values))
    bad = np.setdiff1d(np.arange(len(values)), usable)
    skipped = [Skipped(f"row {row}", "a value is not a finite number") for row in bad]
    _check(len(usable), skipped, reading)
    labels, notes = _array_labels(arrays, usable, use_labels)
    columns = [f"column {i}" for i in range(values.shape[1])]
    names = [f"row {row}" for row in usable]
    found = UnsplitVectors(columns, values[usable], names, labels, _array_parts(arrays, usable))
    return found, skipped, notes


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


def _from_table(path: Path, use_labels: bool, reading: Reading, standardiser: Standardiser | None) -> _Read:
    table = read_table(path, None if standardiser is None else standardiser.columns)
    good = usable_rows(table.values)
    first_bad = np.argmin(np.abs(np.nan_to_num(table.values, nan=np.inf)) <= LARGEST_VALUE, axis=1)
    bad = [(int(table.rows[i]), f"{table.columns[first_bad[i]]} is not a finite number") for i in np.flatnonzero(~good)]
    skipped = [Skipped(f"row {row}", reason) for row, reason in sorted(table.odd_rows + bad)]
    _check(int(good.sum()), skipped, reading)
    labels, notes = None, list(table.notes)
    if table.labels is not None:
        if use_labels:
            labels, said = labels_or_note(table.labels[good])
            notes += said
        else:
            notes.append(f"the column {table.label_column} was left out because its name says that it holds labels")
    names = [f"row {row}" for row in table.rows[good]]
    return UnsplitVectors(table.columns, table.values[good], names, labels, None), skipped, notes


def _check(usable: int, skipped: list[Skipped], reading: Reading) -> None:
    if reading.strict and skipped:
        raise strict_error(skipped[0])
    check_enough(usable, reading, skipped)


def _standardiser_notes(standardiser: Standardiser, columns: Sequence[str], length_scale: float) -> list[str]:
    constant = [name for name in columns if name not in standardiser.columns]
    notes = [f"columns dropped because they have one value in all training rows: {listed(constant)}"] if constant else []
    notes.append(
        f"{len(standardiser.columns)} columns were standardised by the training part and multiplied by"
        f" {standardiser.factor:.3g}, so that the median distance between rows is {length_scale:g}"
    )
    return notes
