"""Tables with a column of images, in Parquet or Arrow files as Hugging Face writes them: {bytes, path}, or bytes alone."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sao.data.archives import file_digest
from sao.data.decode import Failure, Loaded
from sao.data.file_source import Entry, Skipped
from sao.data.tables import LABEL_COLUMNS
from sao.errors import InputError, printable

ROWS_AT_ONCE = 256
ARROW_STARTS = (b"ARROW1", b"\xff\xff\xff\xff")  # a file, and a stream, which is what Hugging Face's cache holds


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


class ImageTable:
    """The images of one column, row by row; names are the paths beside the bytes, or the number of the row."""

    def __init__(self, path: Path, column: str) -> None:
        self.path, self.column = path, column
        self.entries: list[Entry] = []
        self.skipped: list[Skipped] = []
        labels: list[Any] = []
        schema = _schema(path)
        label = next((name for name in schema.names if name.lower() in LABEL_COLUMNS), None) if schema is not None else None
        for batch in _batches(path, [column] + ([label] if label else [])):
            for cell in batch.column(column).to_pylist():
                content, name = _parts(cell)
                number = len(self.entries)
                self.entries.append(Entry(name or f"row {number}", len(content or b"")))
            labels += batch.column(label).to_pylist() if label else []
        self.labels = _named(labels, schema, label) if label else None

    def load(self) -> Iterator[Loaded]:
        for batch in _batches(self.path, [self.column]):
            for cell in batch.column(self.column).to_pylist():
                content, name = _parts(cell)
                if content is not None:
                    yield content
                elif name and os.path.isfile(beside := self.path.parent / name):
                    yield os.path.realpath(beside)
                else:
                    yield Failure("the cell holds no image")

    def digest(self) -> bytes | None:
        return file_digest(self.path)


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
