"""Labels from names, and which samples are held out."""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from sao.errors import InputError, printable

_EVALUATION_ONLY = "they are used for evaluation only, never for training"
HELD_OUT = ("test", "val", "valid", "validation")  # names of a test set: the first that there is
LABEL_COLUMNS = ("label", "target", "class", "y")
SLICE = " slice "  # between the name of a volume or a stack and the number of its image
_OF_VOLUME = re.compile(rf"(.*){SLICE}\d+", re.DOTALL)


@dataclass(frozen=True)
class Labels:
    """Class numbers int64 (n,) and the classes' names in that order."""

    codes: np.ndarray
    names: list[str]


@dataclass(frozen=True)
class Layout:
    """Rows of the two splits if folders named them (else None), and a class for every row of these or no classes."""

    splits: tuple[np.ndarray, np.ndarray] | None
    labels: Labels | None
    notes: list[str]


def layout_of(names: Sequence[str], use_labels: bool, split: bool = True) -> Layout:
    """What the folders in these paths mean: train/ and test/ are splits, the first level (below those) is classes.

    Folders that every image shares are passed over first, because archives usually wrap everything in one. With `split`
    False every image is wanted, whatever its split.
    """
    paths = [[part for part in name.split("/") if part not in ("", ".")] for name in names]
    while all(len(path) > 1 and path[0] == paths[0][0] for path in paths):
        paths = [path[1:] for path in paths]
    notes: list[str] = []
    splits, used = None, np.arange(len(paths))
    tops = {path[0].lower(): path[0] for path in paths if len(path) > 1}
    test = next((tops[name] for name in HELD_OUT if name in tops), None)
    if "train" in tops and test is not None:
        if split:
            first = np.array([path[0] if len(path) > 1 else "" for path in paths])
            splits = np.flatnonzero(first == tops["train"]), np.flatnonzero(first == test)
            used = np.union1d(*splits)
            left_out = len(paths) - len(used)
            beside = f"; {left_out} images beside them were left out" if left_out else ""
            notes.append(f"the folders {tops['train']} and {test} were used as training and test set{beside}")
        paths = [path[1:] for path in paths]
    classes = [printable(path[0]) if len(path) > 1 else "" for path in paths]
    found = {classes[i] for i in used}
    if not use_labels or len(found) == 1:
        return Layout(splits, None, notes)
    if "" in found:
        notes.append("some images lie in subfolders and some do not, so the subfolders were not taken for classes")
        return Layout(splits, None, notes)
    labels = encode_labels([classes[i] for i in used])
    codes = np.full(len(paths), -1, np.int64)  # -1 stays only on images that are in neither split
    codes[used] = labels.codes
    notes.append(f"{len(found)} class subfolders were found; {_EVALUATION_ONLY}")
    return Layout(splits, Labels(codes, labels.names), notes)


def labels_or_note(values: np.ndarray) -> tuple[Labels | None, list[str]]:
    """Labels from a column or array of them, unless they are incomplete or no classes at all."""
    missing = (values == "") if values.dtype.kind == "U" else ~np.isfinite(values) if values.dtype.kind == "f" else None
    if missing is not None and missing.any():
        return None, [f"the labels were not used: {int(missing.sum())} of {len(values)} samples have none"]
    labels = encode_labels(values)
    if 2 * len(labels.names) > len(values):
        return None, [f"the labels were not used: {len(labels.names)} different values are a measurement, not classes"]
    return labels, [f"labels of {len(labels.names)} classes were found; {_EVALUATION_ONLY}"]


def encode_labels(values: np.ndarray | Sequence[str]) -> Labels:
    """Classes numbered from 0 in their order; numbers are ordered as numbers, also when written as text."""
    array = np.asarray(values)
    if array.dtype.kind == "f" and (array == np.floor(array)).all():
        array = array.astype(np.int64)
    if array.dtype.kind == "S":
        array = np.array([value.decode("utf-8", "replace") for value in array.tolist()])
    if array.dtype.kind == "U":
        names, codes = np.unique(array, return_inverse=True)
        with suppress(ValueError, OverflowError):
            order = np.argsort([int(name) for name in names], kind="stable")
            names, codes = names[order], np.argsort(order)[codes]
    else:
        names, codes = np.unique(array, return_inverse=True)
    return Labels(codes.reshape(-1).astype(np.int64), [printable(str(name)) for name in names.tolist()])


def by_class(labels: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows in a drawn order, brought together by class; of each its place in its class and the size of that class.

    Every stratified draw is made of it: whoever takes the same share of all places takes the same share of all classes.
    """
    codes = np.unique(labels, return_inverse=True)[1][order]
    counts = np.bincount(codes)
    places = np.arange(len(order)) - np.repeat(counts.cumsum() - counts, counts)
    return order[codes.argsort(kind="stable")], places, np.repeat(counts, counts)


def held_out_samples(
    names: Sequence[str], labels: np.ndarray | None, fraction: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """`held_out_rows` with all slices of a volume on one side, for neighbours are nearly equal; of one volume, its slices."""
    volume_of = [found[1] if SLICE in name and (found := _OF_VOLUME.fullmatch(name)) else name for name in names]
    volumes = {name: i for i, name in enumerate(dict.fromkeys(volume_of))}
    if len(volumes) in (1, len(names)):
        return held_out_rows(len(names), labels, fraction, seed)
    of_row = np.array([volumes[name] for name in volume_of])
    first = np.unique(of_row, return_index=True)[1]
    test = np.isin(of_row, held_out_rows(len(volumes), None if labels is None else labels[first], fraction, seed)[1])
    return np.flatnonzero(~test), np.flatnonzero(test)


def held_out_rows(n: int, labels: np.ndarray | None, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Ascending training and held-out rows: a function of (seed, n), and of the labels if there are any.

    Rows are shuffled, sorted by class, and taken at even steps from a random start. So every class gives its fraction to within
    one sample. A class never loses its last training sample.
    """
    if not 0 < fraction < 1:
        raise InputError(f"held_out {fraction} is not possible: give a fraction between 0 and 1, such as 0.1")
    generator = np.random.default_rng([seed % 2**63, n])
    order = generator.permutation(n)
    count = min(max(round(n * fraction), 1), n - 1)
    if labels is not None:
        order = by_class(labels, order)[0]
    picks = order[((np.arange(count) + generator.random()) * n / count).astype(np.int64)]
    test = np.zeros(n, dtype=bool)
    test[picks] = True
    if labels is not None:
        for missing in np.setdiff1d(labels, labels[~test]):
            test[np.flatnonzero(labels == missing)[0]] = False
        if not test.any():  # every class has a single sample: something must be held out all the same
            test[picks] = True
    return np.flatnonzero(~test), np.flatnonzero(test)
