"""Labels from a table that a person wrote: name,label, a row for each sample that has one."""

import csv
import io
import os
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sao.data.dataset import UNLABELLED, Dataset
from sao.data.split import LABEL_COLUMNS, encode_labels
from sao.errors import InputError, counted, printable
from sao.runtime.csv_files import original

NAME_COLUMNS = ("name", "file", "filename", "path", "image")
LARGEST = 2**26  # bytes
NO_LABEL = "no label"


@dataclass(frozen=True)
class Assigned:
    """A class number for each sample, `UNLABELLED` where it has none; the names of the classes; one line about the rest."""

    codes: np.ndarray
    class_names: list[str]
    note: str


@dataclass(frozen=True)
class LabelFile:
    """The label of each name. A name that came with two different labels has none."""

    where: str
    text: str
    labels: dict[str, str]
    repeated: int  # names in more than one row
    contradicted: int  # of these, with different labels

    def assign(self, names: Sequence[str]) -> Assigned:
        """Of samples by their names: the path inside the folder, or the file name alone where only one file has it."""
        place = {_plain(name): i for i, name in enumerate(names)}
        of_file: dict[str, list[int]] = defaultdict(list)
        for name, i in place.items():
            of_file[name.rpartition("/")[2]].append(i)
        found, unknown, ambiguous = {}, [], 0
        for name, label in self.labels.items():
            alone = of_file.get(name, [])
            if name in place:
                found[place[name]] = label
            elif len(alone) == 1:
                found.setdefault(alone[0], label)
            elif alone:
                ambiguous += 1
            else:
                unknown.append(name)
        if not found:
            there = f"; names there are like {printable(names[0])}" if len(names) else ""
            first = f" (the first: {printable(next(iter(self.labels)))})" if self.labels else ""
            raise InputError(f"{self.where} names no sample of the data{first}{there}: write paths as seen from the folder")
        rows = sorted(found)
        encoded = encode_labels([found[i] for i in rows])
        codes = np.full(len(names), UNLABELLED, np.int64)
        codes[rows] = encoded.codes
        return Assigned(codes, encoded.names, self._note(len(names), len(rows), len(encoded.names), unknown, ambiguous))

    def _note(self, samples: int, labelled: int, classes: int, unknown: list[str], ambiguous: int) -> str:
        against = f", {self.contradicted} of them with different labels and left out" if self.contradicted else ""
        parts = [
            f"{self.where}: {labelled} of {samples} samples have a label, of {counted(classes, 'class', 'classes')}",
            samples > labelled and f"{samples - labelled} have none",
            unknown and f"{counted(len(unknown), 'name is', 'names are')} unknown (the first: {printable(unknown[0])})",
            ambiguous and f"{counted(ambiguous, 'file name is', 'file names are')} in several folders: write their paths",
            self.repeated and f"{counted(self.repeated, 'name comes', 'names come')} more than once{against}",
        ]
        return "; ".join(part for part in parts if part)


def read_labels(path: str | os.PathLike[str]) -> LabelFile:
    """From a file in UTF-8, with or without a byte order mark."""
    where = printable(os.fspath(path))
    try:
        if os.path.getsize(path) > LARGEST:
            raise InputError(f"{where} is larger than {LARGEST >> 20} MB: give a table of name,label")
        text = Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"there is no file {where}: give a table of name,label") from None
    except OSError as error:
        raise InputError(f"{where} cannot be read ({error.strerror}): give a table of name,label") from None
    except UnicodeError:
        raise InputError(f"{where} is not UTF-8: save it as CSV in UTF-8") from None
    return parsed_labels(text, Path(where).name)


def parsed_labels(text: str, where: str) -> LabelFile:
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=text.partition("\n")[0].count))
    try:
        header = [cell.strip().lower() for cell in next(lines, [])]
        rows = [line for line in lines if line]
    except csv.Error as error:
        raise InputError(f"{where} cannot be read as a table ({error}): save it again as CSV") from None
    name, label = (_place(header, wanted) for wanted in (NAME_COLUMNS, LABEL_COLUMNS))
    if name is None or label is None:
        there = ", ".join(map(printable, header)) or "none"
        raise InputError(f"{where} needs the columns name and label, and has {there}: write them into its first line")
    cells = [(_plain(original(row[name])), row[label].strip()) for row in rows if len(row) > max(name, label)]
    cells = [(one, original(value)) for one, value in cells if one and value]
    if not cells:
        raise InputError(f"{where} has no row with a name and a label: write one for each labelled sample")
    labels, different = {}, set()
    for one, value in cells:
        if labels.setdefault(one, value) != value:
            different.add(one)
    repeated = sum(count > 1 for count in Counter(one for one, _ in cells).values())
    return LabelFile(where, text, {k: v for k, v in labels.items() if k not in different}, repeated, len(different))


def _place(header: list[str], wanted: Sequence[str]) -> int | None:
    return next((header.index(known) for known in wanted if known in header), None)


def label_dataset(dataset: Dataset, file: LabelFile) -> tuple[Dataset, str]:
    """The data set with the labels of the file and no others, and the line to print."""
    parts = (dataset.train, dataset.test)
    if any(part.names is None for part in parts):
        raise InputError(f"the samples of {dataset.name} have no names, so {file.where} cannot name them: give a folder")
    names = [name for part in parts for name in part.names or ()]
    found = file.assign(names)
    codes = np.split(found.codes, [len(dataset.train)])
    train, test = (replace(p, labels=c, class_names=found.class_names) for p, c in zip(parts, codes, strict=True))
    return Dataset(dataset.name, train, test), found.note


def with_class_for_unlabelled(dataset: Dataset) -> Dataset:
    """For pictures of all samples: those without a label are a class of that name."""
    parts = (dataset.train, dataset.test)
    codes = [part.labels for part in parts if part.labels is not None]
    if len(codes) < len(parts) or all(bool((one >= 0).all()) for one in codes):
        return dataset
    names = [*(dataset.train.class_names or map(str, range(dataset.classes or 0))), NO_LABEL]
    codes = [np.where(one < 0, len(names) - 1, one) for one in codes]
    train, test = (replace(part, labels=one, class_names=names) for part, one in zip(parts, codes, strict=True))
    return Dataset(dataset.name, train, test)


def _plain(name: str) -> str:
    """As names are compared: escaped as they are printed, "/" between folders, letters in one form."""
    return unicodedata.normalize("NFC", printable(name.strip())).replace("\\", "/").removeprefix("./")
