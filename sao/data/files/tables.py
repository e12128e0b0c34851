"""Tables of numbers (.csv, .parquet, .arrow) as rows of float64: which columns are numbers, labels, or neither."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np

from sao.data.dataset import LARGEST_VALUE, usable_rows
from sao.data.files.arrow import batches, table_start
from sao.data.files.reading import Found, Numbers, ReadOptions, Skipped, codes_and_names
from sao.data.split import LABEL_COLUMNS, labels_or_note
from sao.errors import InputError, explained, printable
from sao.runtime.csv_files import original

ROWS_AT_ONCE = 8192


@dataclass(frozen=True)
class Table:
    """Numeric columns, float64 (n, d) with NaN where a cell is no usable number; labels as written, "" where missing."""

    columns: list[str]
    values: np.ndarray
    labels: np.ndarray | None
    rows: np.ndarray  # each row's number in the file, counted from 0 without the header
    odd_rows: list[tuple[int, str]]
    notes: list[str]
    label_column: str | None


def read_numbers(path: Path, options: ReadOptions) -> Found:
    """Rows of numbers; one with a cell that is none is left out."""
    table = read_table(path, options.columns)
    good = usable_rows(table.values)
    first_bad = np.argmin(np.abs(np.nan_to_num(table.values, nan=np.inf)) <= LARGEST_VALUE, axis=1)
    bad = [(int(table.rows[i]), f"{table.columns[first_bad[i]]} is not a finite number") for i in np.flatnonzero(~good)]
    skipped = [Skipped(f"row {row}", reason) for row, reason in sorted(table.odd_rows + bad)]
    options.check(int(good.sum()), skipped)
    labels, said = None, []
    if table.labels is not None and options.use_labels:
        labels, said = labels_or_note(table.labels[good])
    elif table.labels is not None:
        said = [f"the column {table.label_column} was left out because its name says that it holds labels"]
    about = codes_and_names(labels, [f"row {row}" for row in table.rows[good]])
    return Found(Numbers(table.columns, table.values[good], *about), None, skipped, table.notes + said)


def read_table(path: Path, wanted: Sequence[str] | None = None) -> Table:
    """The numeric columns of a table; `wanted` takes exactly these columns, in this order, instead of all numeric ones."""
    with explained(path, " as a table", "save it again as CSV"):
        chunks = _csv_chunks(path) if table_start(path) is None else _arrow_chunks(path)
        return _assemble(chunks, path, wanted)


@dataclass
class _Chunk:
    """A run of rows: one list of cells (strings) or one array of numbers per column; rows of the wrong width apart."""

    columns: list[str]
    cells: list[Sequence[str] | np.ndarray]
    rows: np.ndarray
    odd_rows: list[tuple[int, str]]


def _csv_chunks(path: Path) -> Iterator[_Chunk]:
    with open(path, "rb") as raw:
        wide = raw.read(2) in (b"\xff\xfe", b"\xfe\xff")
        raw.seek(0)
        # Bytes that are not text become lone surrogates: a strange cell is one skipped row, not the end of the reading.
        encoding, errors = ("utf-16", "replace") if wide else ("utf-8-sig", "surrogateescape")
        text = io.TextIOWrapper(raw, encoding=encoding, errors=errors, newline="")
        first_line = text.readline(10**6)
        text.seek(0)
        delimiter = max(",;\t|", key=first_line.count)
        reader = csv.reader(text, delimiter=delimiter, skipinitialspace=True)
        first = next(reader, [])
        if not first:
            raise InputError(f"{printable(str(path))} is empty: give a table with a row for each sample")
        has_header = all(np.isnan(_number(cell)) for cell in first)
        columns = _distinct([cell.strip() for cell in first]) if has_header else [f"column {i}" for i in range(len(first))]
        pending = reader if has_header else chain([first], reader)
        position = 0
        while lines := list(islice(pending, ROWS_AT_ONCE)):
            numbered = list(enumerate((line for line in lines if line), position))  # blank lines are no rows
            whole = [(i, line) for i, line in numbered if len(line) == len(columns)]
            expected = f"cells where {len(columns)} are expected"
            odd = [(i, f"{len(line)} {expected}") for i, line in numbered if len(line) != len(columns)]
            cells: list = list(zip(*(line for _, line in whole), strict=True)) or [()] * len(columns)
            yield _Chunk(columns, cells, np.array([i for i, _ in whole], np.int64), odd)
            position += len(numbered)


def _arrow_chunks(path: Path) -> Iterator[_Chunk]:
    import pyarrow as arrow

    position = 0
    for batch in batches(path, None, ROWS_AT_ONCE):
        cells: list[Sequence[str] | np.ndarray] = []
        for column in batch.columns:
            kind = column.type
            if arrow.types.is_integer(kind) or arrow.types.is_floating(kind) or arrow.types.is_boolean(kind):
                numbers = column.cast(arrow.uint8()) if arrow.types.is_boolean(kind) else column
                cells.append(numbers.cast(arrow.float64(), safe=False).fill_null(np.nan).to_numpy(zero_copy_only=False))
            else:
                cells.append(["" if value is None else str(value) for value in column.to_pylist()])
        rows = np.arange(position, position + batch.num_rows)
        yield _Chunk(_distinct([str(name) for name in batch.schema.names]), cells, rows, [])
        position += batch.num_rows


def _assemble(chunks: Iterator[_Chunk], path: Path, wanted: Sequence[str] | None) -> Table:
    columns: list[str] = []
    label: int | None = None
    values, labels, rows, odd = [], [], [], []
    filled = numeric = np.zeros(0, np.int64)
    for chunk in chunks:
        if not columns:
            columns = chunk.columns
            label = _label_column(columns, wanted)
            filled, numeric = np.zeros((2, len(columns)), np.int64)
        numbers = np.empty((len(chunk.rows), len(columns)))
        for j, cells in enumerate(chunk.cells):
            numbers[:, j] = cells if isinstance(cells, np.ndarray) else _numbers(cells)
            finite = np.isfinite(numbers[:, j]).sum()
            filled[j] += finite if isinstance(cells, np.ndarray) else sum(map(bool, cells))
            numeric[j] += finite
        values.append(numbers)
        rows.append(chunk.rows)
        odd += chunk.odd_rows
        if label is not None:
            labels += [_label_text(cell) for cell in chunk.cells[label]]
    total = sum(map(len, rows))
    if not total:
        raise InputError(f"{printable(str(path))} has no row of data: give a table with a row for each sample")
    if wanted is None:
        kept, notes = _choose([j for j in range(len(columns)) if j != label], columns, filled, numeric, total, path)
    elif missing := [name for name in wanted if name not in columns]:
        raise InputError(f"{printable(str(path))} lacks the column {printable(missing[0])} that the network was trained on")
    else:
        kept, notes = [columns.index(name) for name in wanted], []
    return Table(
        [columns[j] for j in kept],
        np.concatenate(values)[:, kept],
        None if label is None else np.array(labels),
        np.concatenate(rows),
        odd,
        notes,
        None if label is None else columns[label],
    )


def _choose(
    among: list[int], columns: list[str], filled: np.ndarray, numeric: np.ndarray, total: int, path: Path
) -> tuple[list[int], list[str]]:
    """Which columns to keep, and what to say about the others."""
    text = [j for j in among if 2 * numeric[j] < filled[j]]
    empty = [j for j in among if 2 * filled[j] < total and j not in text]
    kept = [j for j in among if j not in text and j not in empty]
    if not kept:
        raise InputError(f"{printable(str(path))} has no column of numbers: give a table of numeric columns")
    notes = []
    for dropped, why in ((text, "they are text"), (empty, "most of their cells are empty")):
        if dropped:
            notes.append(f"columns dropped because {why}: {listed([columns[j] for j in dropped])}")
    return kept, notes


def _label_column(columns: list[str], wanted: Sequence[str] | None) -> int | None:
    lowered = [name.strip().lower() for name in columns]
    return next((lowered.index(name) for name in LABEL_COLUMNS if name in lowered and name not in (wanted or ())), None)


def _label_text(cell: object) -> str:
    if isinstance(cell, float):
        return "" if not np.isfinite(cell) else str(int(cell)) if cell == int(cell) else str(cell)
    return printable(original(str(cell).strip()))


def _numbers(cells: Sequence[str]) -> np.ndarray:
    try:
        return np.array(cells, dtype=np.float64)
    except ValueError:
        return np.array([_number(cell) for cell in cells])


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return np.nan


def _distinct(names: list[str]) -> list[str]:
    """Column names made different, since later tables are matched to them by name."""
    seen: dict[str, int] = {}
    result = []
    for i, name in enumerate(names):
        name = printable(name) or f"column {i}"
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return result


def listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
