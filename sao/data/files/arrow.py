"""Parquet and Arrow files: their rows in batches, and tables with a column of images, as Hugging Face writes them."""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sao.data.files.archives import file_digest
from sao.data.files.decode import Failure, Loaded
from sao.data.files.reading import Entry, Source, inside, leaves
from sao.data.split import HELD_OUT, LABEL_COLUMNS
from sao.errors import InputError, explained, printable

ROWS_AT_ONCE = 256
TABLE_STARTS = (b"PAR1", b"ARROW1", b"\xff\xff\xff\xff")  # the last is a stream, which is what Hugging Face's cache holds


class ImageTable(Source):
    """The images of one column, row by row, as Hugging Face writes them: {bytes, path}, or bytes alone.

    Names are the paths beside the bytes, or the number of the row. A path without bytes is a file in the table's folder: a
    table may come from a stranger, so it names nothing outside. Several tables are one behind another; those named train and
    test are splits.
    """

    def __init__(self, tables: list[Path], root: Path | None = None) -> None:
        """`root` is the folder in which the tables were found, if it was one; their names below it name splits."""
        super().__init__()
        self.tables = [table for table in tables if not self._leaves(table, root) and image_column(table) is not None]
        labels: list[str] | None = []
        sides: list[str] = []
        for table in self.tables:
            before = len(self.entries)
            found = self._add(table)
            labels = None if labels is None or found is None else labels + found
            sides += [_side(table.relative_to(root)) if root else ""] * (len(self.entries) - before)
        self.labels = labels
        held_out = next((side for side in HELD_OUT if side in sides), None)
        if held_out and "train" in sides:
            rows = np.array(sides)
            self.splits = np.flatnonzero(rows == "train"), np.flatnonzero(rows == held_out)

    def _leaves(self, table: Path, root: Path | None) -> bool:
        target = None if root is None else inside(str(table), os.path.realpath(root))
        if isinstance(target, Failure):
            self.skip(str(table.relative_to(root or "")), target.reason)
        return isinstance(target, Failure)

    def _add(self, path: Path) -> list[str] | None:
        """The entries of a table, and their labels."""
        schema = _schema(path)
        label = next((name for name in schema.names if name.lower() in LABEL_COLUMNS), None)
        labels: list[Any] = []
        for content, name, *others in _cells(path, [label] if label else []):
            self.entries.append(Entry(name or f"row {len(self.entries)}", len(content or b"")))
            labels += others
        return _named(labels, schema, label) if label else None

    def load(self) -> Iterator[Loaded]:
        for path in self.tables:
            folder = os.path.realpath(path.parent)
            for content, name in _cells(path):
                yield _beside(folder, name) if content is None else content

    def digest(self) -> bytes | None:
        whole = hashlib.blake2b(digest_size=16)
        for path in self.tables:
            whole.update(file_digest(path))
        return whole.digest()


def image_column(path: Path) -> str | None:
    """The first column that holds images; None where the file is no table, or a table without such a column."""
    schema = _schema(path)
    if schema is None:
        return None
    import pyarrow as arrow

    for field in schema:
        kind = field.type
        fields = {kind.field(i).name for i in range(kind.num_fields)} if arrow.types.is_struct(kind) else set()
        if "bytes" in fields or ((arrow.types.is_binary(kind) or arrow.types.is_large_binary(kind)) and "image" in field.name):
            return field.name
    return None


def _cells(path: Path, others: Sequence[str] = ()) -> Iterator[list[Any]]:
    """Of each row the bytes of its image and the path beside them, either of which may be None, and its other columns."""
    column = image_column(path)
    if column is None:
        raise InputError(f"{printable(str(path))} holds no images any more: it was changed while it was read")
    with explained(path, "", "it is damaged, write it again"):
        for batch in batches(path, [column, *others], ROWS_AT_ONCE):
            for cell, *rest in zip(*(batch.column(name).to_pylist() for name in (column, *others)), strict=True):
                yield [*((cell.get("bytes"), cell.get("path")) if isinstance(cell, dict) else (cell, None)), *rest]


def _side(table: Path) -> str:
    """train, test and so on, where the file or its folder is called so: train-00000-of-00002.parquet, test/data.arrow."""
    words = [re.split(r"[^a-z]", part.lower())[0] for part in table.parts]
    return next((word for word in words if word in ("train", *HELD_OUT)), "")


def _beside(folder: str, name: str | None) -> Loaded:
    """The file that a cell names, as long as it lies in the table's folder."""
    if name and leaves(name):
        return Failure("its path leaves the table's folder")
    path = os.path.join(folder, name or "")
    return inside(path, folder) if name and os.path.isfile(path) else Failure("the cell holds no image")


def _named(labels: list[Any], schema: Any, label: str) -> list[str]:
    """Classes by the names that Hugging Face stores beside the table, where it does."""
    about = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    feature = about.get("info", {}).get("features", {}).get(label, {})
    names = feature.get("names") if isinstance(feature, dict) else None
    return ["" if one is None else str(names[one]) if names and isinstance(one, int) else str(one) for one in labels]


# --- Parquet and Arrow files ---------------------------------------------------------------------------------------------


def table_start(path: Path) -> bytes | None:
    """The mark by which such a file begins, or None."""
    with open(path, "rb") as stream:
        start = stream.read(6)
    return next((mark for mark in TABLE_STARTS if start.startswith(mark)), None)


def _schema(path: Path) -> Any:
    if (start := table_start(path)) is None:
        return None
    try:
        import pyarrow.parquet
    except ImportError:
        raise InputError("reading .parquet and .arrow needs pyarrow: pip install 'sao[tables]'") from None
    try:
        if start == b"PAR1":
            return pyarrow.parquet.read_schema(path)
        with _arrow_reader(path, start) as reader:
            return reader.schema
    except (pyarrow.ArrowException, OSError, ValueError):
        return None


def _arrow_reader(path: Path, start: bytes | None) -> Any:
    import pyarrow
    from pyarrow import ipc

    mapped = pyarrow.memory_map(str(path))
    return ipc.open_file(mapped) if start == b"ARROW1" else ipc.open_stream(mapped)


def batches(path: Path, columns: list[str] | None, rows: int) -> Iterator[Any]:
    import pyarrow.parquet

    if (start := table_start(path)) == b"PAR1":
        with pyarrow.parquet.ParquetFile(path) as file:
            yield from file.iter_batches(rows, columns=columns)
        return
    with _arrow_reader(path, start) as reader:
        count = getattr(reader, "num_record_batches", None)
        for batch in reader if count is None else map(reader.get_batch, range(count)):
            yield batch if columns is None else batch.select(columns)
