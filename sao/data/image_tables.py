"""Tables with a column of images, in Parquet or Arrow files as Hugging Face writes them: {bytes, path}, or bytes alone."""

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sao.data.file_source import Entry, Skipped
from sao.data.files.archives import file_digest
from sao.data.files.decode import Failure, Loaded
from sao.data.files.tables import LABEL_COLUMNS
from sao.errors import InputError, printable

ROWS_AT_ONCE = 256
ARROW_STARTS = (b"ARROW1", b"\xff\xff\xff\xff")  # a file, and a stream, which is what Hugging Face's cache holds
HELD_OUT = ("test", "validation", "valid", "val")  # the first that there is


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


def image_tables(folder: Path) -> list[Path]:
    """The Parquet or Arrow files of a folder, as Hugging Face saves a data set in several; none where they hold no images."""
    places = [folder, *(place for name in ("data", "train", *HELD_OUT) if (place := folder / name).is_dir())]
    names = [
        os.path.join(place, name) for place in places for name in os.listdir(place)
    ]  # of a million pictures, not a stat each
    paths = sorted(Path(name) for name in names if name.lower().endswith((".parquet", ".arrow")) and os.path.isfile(name))
    return [path for path in paths if image_column(path) is not None]


class ImageTable:
    """The images of one column, row by row; names are the paths beside the bytes, or the number of the row.

    A folder holds several tables, one behind another; those named train and test are parts.
    """

    def __init__(self, path: Path) -> None:
        self.paths = image_tables(path) if path.is_dir() else [path]
        self.entries: list[Entry] = []
        self.skipped: list[Skipped] = []
        labels: list[str] | None = []
        sides: list[str] = []
        for table in self.paths:
            before = len(self.entries)
            found = self._add(table)
            labels = None if labels is None or found is None else labels + found
            sides += [_side(table.relative_to(path)) if path.is_dir() else ""] * (len(self.entries) - before)
        self.labels = labels
        held_out = next((side for side in HELD_OUT if side in sides), None)
        rows = np.array(sides)
        self.parts = (
            (np.flatnonzero(rows == "train"), np.flatnonzero(rows == held_out)) if held_out and "train" in sides else None
        )

    def _add(self, path: Path) -> list[str] | None:
        """The entries of a table, and their labels."""
        schema = _schema(path)
        label = next((name for name in schema.names if name.lower() in LABEL_COLUMNS), None)
        labels: list[Any] = []
        column = _column(path)
        for batch in _batches(path, [column] + ([label] if label else [])):
            for cell in batch.column(column).to_pylist():
                content, name = _parts(cell)
                number = len(self.entries)
                self.entries.append(Entry(name or f"row {number}", len(content or b"")))
            labels += batch.column(label).to_pylist() if label else []
        return _named(labels, schema, label) if label else None

    def load(self) -> Iterator[Loaded]:
        for path in self.paths:
            column = _column(path)
            for batch in _batches(path, [column]):
                for cell in batch.column(column).to_pylist():
                    yield _loaded(cell, path)

    def digest(self) -> bytes | None:
        whole = hashlib.blake2b(digest_size=16)
        for path in self.paths:
            whole.update(file_digest(path))
        return whole.digest()


def _column(path: Path) -> str:
    column = image_column(path)
    if column is None:
        raise InputError(f"{printable(str(path))} holds no images any more: it was changed while it was read")
    return column


def _side(table: Path) -> str:
    """train, test and so on, where the file or its folder is called so: train-00000-of-00002.parquet, test/data.arrow."""
    words = [re.split(r"[^a-z]", part.lower())[0] for part in table.parts]
    return next((word for word in words if word in ("train", *HELD_OUT)), "")


def _loaded(cell: Any, table: Path) -> Loaded:
    content, name = _parts(cell)
    if content is not None:
        return content
    if name and os.path.isfile(beside := table.parent / name):
        return os.path.realpath(beside)
    return Failure("the cell holds no image")


def _parts(cell: Any) -> tuple[bytes | None, str | None]:
    if isinstance(cell, dict):
        return cell.get("bytes"), cell.get("path")
    return cell, None


def _named(labels: list[Any], schema: Any, label: str) -> list[str]:
    """Classes by the names that Hugging Face stores beside the table, where it does."""
    import json

    about = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    feature = about.get("info", {}).get("features", {}).get(label, {})
    names = feature.get("names") if isinstance(feature, dict) else None
    return ["" if one is None else str(names[one]) if names and isinstance(one, int) else str(one) for one in labels]


def _schema(path: Path) -> Any:
    with open(path, "rb") as stream:
        start = stream.read(6)
    if not start.startswith((b"PAR1", *ARROW_STARTS)):
        return None
    try:
        import pyarrow.parquet
    except ImportError:
        raise InputError("reading .parquet and .arrow needs pyarrow: pip install 'sao[tables]'") from None
    try:
        if start.startswith(b"PAR1"):
            return pyarrow.parquet.read_schema(path)
        with _arrow_reader(path) as reader:
            return reader.schema
    except (pyarrow.ArrowException, OSError, ValueError):
        return None


def _arrow_reader(path: Path) -> Any:
    import pyarrow
    from pyarrow import ipc

    with open(path, "rb") as stream:
        whole_file = stream.read(6) == b"ARROW1"
    mapped = pyarrow.memory_map(str(path))
    return ipc.open_file(mapped) if whole_file else ipc.open_stream(mapped)


def _batches(path: Path, columns: list[str]) -> Iterator[Any]:
    import pyarrow
    import pyarrow.parquet

    try:
        with open(path, "rb") as stream:
            parquet = stream.read(4) == b"PAR1"
        if parquet:
            with pyarrow.parquet.ParquetFile(path) as file:
                yield from file.iter_batches(ROWS_AT_ONCE, columns=columns)
            return
        with _arrow_reader(path) as reader:
            count = getattr(reader, "num_record_batches", None)
            batches = reader if count is None else (reader.get_batch(index) for index in range(count))
            for batch in batches:
                yield batch.select(columns)
    except (pyarrow.ArrowException, OSError) as error:
        reason = printable(str(error).split("\n")[0])[:120]
        raise InputError(f"{printable(str(path))} cannot be read ({reason}): it is damaged, write it again") from None
