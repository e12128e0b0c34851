"""Anyone's data: a folder or archive of images, an array, or a table, as a Dataset; bad items are skipped and named."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from sao.data.array_samples import check_usable, from_arrays
from sao.data.dataset import Dataset, Samples
from sao.data.file_source import Skipped, Source
from sao.data.files.archives import open_source
from sao.data.files.arrays import read_arrays
from sao.data.files.cache import Cache
from sao.data.files.images import ImageRequest, Progress, Reading, read_pictures
from sao.data.files.tables import LARGEST_VALUE, Standardiser, listed, read_table, usable_rows
from sao.data.image_tables import ImageTable
from sao.data.items import PathList
from sao.data.kind import kind_of
from sao.data.path_list import paths_in
from sao.data.shard_names import shard_paths
from sao.data.shards import Shards
from sao.data.split import held_out_rows, labels_or_note, layout_of
from sao.data.unsplit import Read, UnsplitImages, UnsplitVectors
from sao.errors import InputError, printable

FEWEST_SAMPLES = 10
Fit = Literal["crop", "pad", "centre"]


class Readable(Protocol):
    """Data that is at no path: how it is called, and how it is read."""

    @property
    def name(self) -> str: ...

    def read(self, request: ImageRequest, use_labels: bool, cache: Cache, reading: Reading) -> Read: ...


@dataclass(frozen=True)
class Opened:
    """The data, the items left out of it, sentences to print, and for vectors the transform that new rows need."""

    dataset: Dataset
    skipped: list[Skipped]
    notes: list[str]
    standardiser: Standardiser | None = None


def open_path(
    path: str | os.PathLike[str] | Readable,
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
    path = Path(path) if isinstance(path, str | os.PathLike) else path
    reading = Reading(_called(path), FEWEST_SAMPLES, True, workers, strict, progress)
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
    name = (printable(path.resolve().stem) if isinstance(path, Path) else path.name) or "data"
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
    path: str | os.PathLike[str] | Readable,
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
    path = Path(path) if isinstance(path, str | os.PathLike) else path
    reading = Reading(_called(path), 1, False, workers, strict, progress)
    found, skipped, notes = _read(path, _request_for(shape, fit), use_labels, Cache(cache_folder), reading, standardiser)
    _check_kind(found, shape, reading)
    everything = np.arange(len(found.names))
    if isinstance(found, UnsplitImages):
        return found.take(everything), skipped, notes
    samples = found.take(everything, standardiser)
    _check_columns(samples, shape, reading)
    return samples, skipped, notes


def _called(path: Path | Readable) -> str:
    return printable(str(path)) if isinstance(path, Path) else path.name


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
    path: Path | Readable,
    request: ImageRequest,
    use_labels: bool,
    cache: Cache,
    reading: Reading,
    standardiser: Standardiser | None,
) -> Read:
    if not isinstance(path, Path):
        return path.read(request, use_labels, cache, reading)
    kind = kind_of(path)
    if request.crop is not None and kind not in ("files", "paths", "image table"):
        raise InputError(f"data.crop takes crops of whole image files, and {reading.where} holds none: leave it out")
    match kind:
        case "files":
            shards = shard_paths(path)
            source = open_source(path, cache.folder) if shards is None else Shards(shards)
            return from_source(source, request, use_labels, cache, reading)
        case "paths":
            source = PathList(paths_in(path) or [], str(path.parent))
            return from_source(source, request, use_labels, cache, reading)
        case "image table":
            table = ImageTable(path)
            return from_source(table, request, use_labels, cache, reading, table.labels, table.parts)
        case "arrays":
            arrays = read_arrays(path)
            return from_arrays(arrays, request, use_labels, cache, reading, path)
        case _:
            return _from_table(path, use_labels, reading, standardiser)


def from_source(
    source: Source,
    request: ImageRequest,
    use_labels: bool,
    cache: Cache,
    reading: Reading,
    labels: Sequence[str] | None = None,
    parts: tuple[np.ndarray, np.ndarray] | None = None,
) -> Read:
    """Image files; classes and parts are what is given of every entry, or else what the folders in their names mean."""
    pictures = read_pictures(source, request, cache, reading)
    names = [printable(name) for name in pictures.names]
    if labels is None and parts is None:
        layout = layout_of(pictures.names, use_labels, reading.split)
        found = UnsplitImages(pictures.pixels, names, layout.labels, layout.parts, pictures.frames)
        return found, pictures.skipped, pictures.notes + layout.notes
    classes, notes = None, []
    usable = pictures.usable
    if labels is not None and use_labels:
        classes, notes = labels_or_note(np.array(labels)[usable])
    if parts is not None:
        place = np.full(len(source.entries), -1)
        place[usable] = np.arange(len(usable))
        parts = place[parts[0]][place[parts[0]] >= 0], place[parts[1]][place[parts[1]] >= 0]
    return UnsplitImages(pictures.pixels, names, classes, parts, pictures.frames), pictures.skipped, pictures.notes + notes


def _from_table(path: Path, use_labels: bool, reading: Reading, standardiser: Standardiser | None) -> Read:
    table = read_table(path, None if standardiser is None else standardiser.columns)
    good = usable_rows(table.values)
    first_bad = np.argmin(np.abs(np.nan_to_num(table.values, nan=np.inf)) <= LARGEST_VALUE, axis=1)
    bad = [(int(table.rows[i]), f"{table.columns[first_bad[i]]} is not a finite number") for i in np.flatnonzero(~good)]
    skipped = [Skipped(f"row {row}", reason) for row, reason in sorted(table.odd_rows + bad)]
    check_usable(int(good.sum()), skipped, reading)
    labels, notes = None, list(table.notes)
    if table.labels is not None:
        if use_labels:
            labels, said = labels_or_note(table.labels[good])
            notes += said
        else:
            notes.append(f"the column {table.label_column} was left out because its name says that it holds labels")
    names = [f"row {row}" for row in table.rows[good]]
    return UnsplitVectors(table.columns, table.values[good], names, labels, None), skipped, notes


def _standardiser_notes(standardiser: Standardiser, columns: Sequence[str], length_scale: float) -> list[str]:
    constant = [name for name in columns if name not in standardiser.columns]
    notes = [f"columns dropped because they have one value in all training rows: {listed(constant)}"] if constant else []
    notes.append(
        f"{len(standardiser.columns)} columns were standardised by the training part and multiplied by"
        f" {standardiser.factor:.3g}, so that the median distance between rows is {length_scale:g}"
    )
    return notes
