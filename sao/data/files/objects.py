"""Data that a person has in Python: arrays, tensors, pictures, paths, data sets of torch and Hugging Face, tables of pandas.

Only numpy and Pillow are asked for by type; every other library is known by its objects' own words, and need not be there.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from sao.data.dataset import Images
from sao.data.files.arrays import Arrays, from_arrays
from sao.data.files.decode import ENDINGS
from sao.data.files.images import PathList, read_images
from sao.data.files.reading import EMPTY, Found, Readable, ReadOptions, Source, Splits
from sao.data.files.streams import Items, spooled
from sao.data.split import HELD_OUT, LABEL_COLUMNS
from sao.errors import InputError, printable

IMAGE_COLUMNS = ("image", "img", "picture", "photo", "path", "file", "filename", "file_name", "image_path")
IN_MEMORY = "an object in memory"  # stands in a run where a path would


@dataclass(frozen=True)
class InMemory:
    """Rows of numbers or images."""

    arrays: Arrays
    columns: Sequence[str] | None = None
    name: str = "the array"

    def read(self, options: ReadOptions) -> Found:
        return from_arrays(self.arrays, options, columns=self.columns)


@dataclass(frozen=True)
class Listed:
    """Images one by one, of which a source hands out the files."""

    source: Callable[[ReadOptions], Source]
    name: str
    labels: Sequence[str] | None = None
    splits: Splits | None = None

    def read(self, options: ReadOptions) -> Found:
        source = self.source(options)
        source.labels, source.splits = self.labels, self.splits
        return read_images(source, options)


def readable(data: Any, labels: Any = None) -> Readable:
    """Any of these objects as data to read; an object of another kind is an error that says which ones can be."""
    library = type(data).__module__.partition(".")[0]
    if library == "torch" and callable(getattr(data, "numpy", None)):
        data = data.detach().cpu().numpy()
    if library == "pandas":
        return _of_frame(data, labels)
    if isinstance(data, np.ndarray) and data.dtype != object:
        return InMemory(Arrays(data, None if labels is None else np.asarray(labels)))
    if isinstance(data, Mapping) and {"train"} < set(data):
        return _of_splits(data)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        return _of_sequence(data, labels)
    if isinstance(data, Iterable):
        return Listed(lambda options: spooled(data, options.cache, options.progress), f"the {type(data).__name__}", labels)
    raise InputError(
        f"data of type {type(data).__name__} is not known: give an array, a tensor, a list of pictures or of paths,"
        " a data set of torch or Hugging Face, or a table of pandas"
    )


def holds_pictures(data: Any) -> bool:
    """Whether an object is images one by one, rather than an array, a tensor, or rows of numbers."""
    if type(data).__module__.partition(".")[0] == "pandas":
        return isinstance(_of_frame(data, None), Listed)
    if isinstance(data, str | bytes | os.PathLike) or hasattr(data, "__array__") or not hasattr(data, "__getitem__"):
        return False
    if isinstance(data, list | tuple):
        first = data[0] if data else None
        return isinstance(first, Image.Image | os.PathLike) or (isinstance(first, str) and first.lower().endswith(ENDINGS))
    return hasattr(data, "__len__") and (hasattr(data, "column_names") or not hasattr(data, "shape"))


def pictures_of(data: Any, shape: Sequence[int] | None) -> np.ndarray:
    """The images of such an object, uint8 (n, h, w, c), in the given shape (c, h, w) or one that fits them.

    Every image is needed: one that cannot be read is an error.
    """
    asked = readable(data)
    channels, size = (None, None) if shape is None else shape[:2]
    found = asked.read(ReadOptions(asked.name, size=size, channels=channels, bits=8, use_labels=False, strict=True))
    if not isinstance(found.samples, Images):
        raise InputError(f"{asked.name} holds rows of numbers where images are expected")
    return np.asarray(found.samples.pixels)


# --- sequences -----------------------------------------------------------------------------------------------------------


def _of_sequence(data: Any, labels: Any) -> Readable:
    first, name = _first(data), f"the {type(data).__name__}"
    if isinstance(first, str | os.PathLike):
        return Listed(lambda _: PathList(list(data)), name, _texts(labels))
    if isinstance(data, list | tuple) and _is_row(first):
        return InMemory(Arrays(np.asarray(data, dtype=np.float64), None if labels is None else np.asarray(labels)))
    picture, label = _pickers(first)
    if labels is None:
        labels = _labels_of(data, label)
    if _is_row(picture(first)):
        rows = np.stack([np.asarray(picture(data[index]), dtype=np.float64) for index in range(len(data))])
        return InMemory(Arrays(rows, None if labels is None else np.asarray(labels)))
    names = _names_of(data)
    digest = getattr(data, "_fingerprint", None)
    content = digest.encode() if isinstance(digest, str) else None  # of Hugging Face: it changes when the data does
    return Listed(lambda _: Items(lambda i: picture(data[i]), names, content), name, _texts(labels))


def _of_splits(data: Mapping[str, Any]) -> Readable:
    """A training and a test set, as in a DatasetDict of Hugging Face."""
    other = next((name for name in HELD_OUT if name in data), None)
    if other is None:
        raise InputError(f"a mapping must hold train and test, got {', '.join(map(str, data))}")
    pair = [data["train"], data[other]]
    counts = [len(split) for split in pair]
    pickers = [_pickers(_first(split)) for split in pair]
    labels = [_labels_of(split, pick[1]) for split, pick in zip(pair, pickers, strict=True)]
    names = [f"{title} {name}" for title, split in zip(("train", "test"), pair, strict=True) for name in _names_of(split)]

    def get(index: int) -> Any:
        side = int(index >= counts[0])
        return pickers[side][0](pair[side][index - side * counts[0]])

    both = None if labels[0] is None or labels[1] is None else [*labels[0], *labels[1]]
    splits = np.arange(counts[0]), np.arange(counts[0], sum(counts))
    return Listed(lambda _: Items(get, names), "the data set", _texts(both), splits)


def _first(data: Any) -> Any:
    """What the others are taken to be like; a data set of someone else's may raise anything."""
    if len(data) == 0:
        raise InputError(EMPTY)
    try:
        return data[0]
    except Exception as error:
        raise InputError(f"the first sample cannot be read: {type(error).__name__}: {printable(str(error))[:100]}") from None


def _is_row(first: Any) -> bool:
    if isinstance(first, list | tuple):
        return bool(first) and all(isinstance(value, int | float | np.number) for value in first)
    return hasattr(first, "__array__") and getattr(first, "ndim", None) == 1


Picker = Callable[[Any], Any]


def _pickers(first: Any) -> tuple[Picker, Picker | None]:
    """How the image and the label of an item are found: items are images, (image, label), (image,), or mappings of columns."""
    if isinstance(first, Mapping) and not {"bytes"} <= first.keys():
        image = _image_key(first)
        label = next((key for key in first if str(key).lower() in LABEL_COLUMNS), None)
        return (lambda item: item[image]), None if label is None else (lambda item: item[label])
    if isinstance(first, tuple | list) and first:
        return (lambda item: item[0]), (lambda item: item[1]) if len(first) > 1 else None
    return (lambda item: item), None


def _image_key(first: Mapping) -> Any:
    def is_image(value: Any) -> bool:
        return isinstance(value, Image.Image) or (isinstance(value, Mapping) and bool({"bytes", "path"} & value.keys()))

    found = next((key for key, value in first.items() if is_image(value)), None)
    if found is None:
        found = next((key for key in first if str(key).lower() in IMAGE_COLUMNS), None)
    if found is None:
        raise InputError(f"none of the columns {', '.join(map(str, first))} holds images: call one of them image")
    return found


def _labels_of(data: Any, pick: Picker | None) -> list[Any] | None:
    """Without reading the images where the data set knows its labels: `targets` of torchvision, a column of Hugging Face."""
    targets = getattr(data, "targets", None)
    if targets is not None and len(targets) == len(data):
        classes = getattr(data, "classes", None)
        return [classes[int(one)] if classes else one for one in targets]
    columns = getattr(data, "column_names", None)
    if isinstance(columns, list):
        label = next((name for name in columns if name.lower() in LABEL_COLUMNS), None)
        if label is None:
            return None
        names = getattr(data.features[label], "names", None)
        return [names[one] if names and one is not None and one >= 0 else one for one in data[label]]
    return None if pick is None else [_plain(pick(data[index])) for index in range(len(data))]


def _names_of(data: Any) -> list[str]:
    """Paths where the data set knows them, as torchvision's ImageFolder does; else numbers."""
    samples, root = getattr(data, "samples", None), getattr(data, "root", None)
    if isinstance(samples, list) and len(samples) == len(data) and root is not None:
        return [os.path.relpath(os.fspath(path), os.fspath(root)) for path, *_ in samples]
    return [f"row {index}" for index in range(len(data))]


def _plain(label: Any) -> Any:
    return label.item() if callable(getattr(label, "item", None)) else label


def _texts(labels: Any) -> list[str] | None:
    return None if labels is None else ["" if one is None else str(_plain(one)) for one in labels]


# --- tables of pandas ----------------------------------------------------------------------------------------------------


def _of_frame(frame: Any, labels: Any) -> Readable:
    """Columns of numbers; or, where a column is named so or is the only one of text, the paths of images."""
    if not hasattr(frame, "columns"):
        frame = frame.to_frame()
    if len(frame) == 0:
        raise InputError(EMPTY)
    named = {str(column).lower(): column for column in frame.columns}
    label = next((named[name] for name in LABEL_COLUMNS if name in named), None)
    if labels is None and label is not None:
        labels = frame[label].tolist()
    numbers = [column for column in frame.columns if frame[column].dtype.kind in "biuf" and column != label]
    others = [column for column in frame.columns if column not in numbers and column != label]
    paths = next((named[name] for name in IMAGE_COLUMNS if name in named and named[name] in others), None)
    if paths is None and len(others) == 1 and not numbers:
        paths = others[0]
    if paths is not None:
        items = frame[paths].tolist()
        if isinstance(items[0], str | os.PathLike):
            return Listed(lambda _: PathList(items), "the table", _texts(labels))
        names = [f"row {index}" for index in frame.index]
        return Listed(lambda _: Items(items.__getitem__, names), "the table", _texts(labels))
    if not numbers:
        raise InputError("the table has no column of numbers and none of paths: call the one with paths image")
    rows = frame[numbers].to_numpy(dtype=np.float64)
    return InMemory(Arrays(rows, None if labels is None else np.array(_texts(labels))), [str(name) for name in numbers])
