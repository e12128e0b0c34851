"""Tables of numbers (.csv, .parquet) to rows of float64, and the transform from such rows to what a network sees."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from sao.csv_files import original
from sao.errors import InputError, printable

LABEL_COLUMNS = ("label", "target", "class", "y")
LARGEST_VALUE = 1e30  # beyond this the squares that standardising needs leave float range
ROWS_AT_ONCE = 8192
PAIRS_SAMPLED = 2000


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


@dataclass(frozen=True)
class Standardiser:
    """x → factor · (x − mean) / std on the kept columns, with training statistics; stored with a run to embed new rows.

    `factor` sets the length scale: with the Jacobian's norm held near 1 the discriminator cannot tell apart points whose
    distance is small against 1 (design: "The Lipschitz target is a length scale"), so rows are spread until the
    median distance between two of them is `length_scale`.
    """

    columns: tuple[str, ...]
    kept: tuple[int, ...]
    width: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    factor: float

    @classmethod
    def fit(cls, rows: np.ndarray, columns: Sequence[str], length_scale: float, seed: int) -> "Standardiser":
        if not 0 < length_scale < np.inf:
            raise InputError(f"length_scale {length_scale} is not possible: give a positive number, such as 16")
        mean, std = rows.mean(axis=0), rows.std(axis=0)
        # Not by std alone: that of one repeated value can be a rounding error, and dividing by it would make noise.
        kept = np.flatnonzero((np.ptp(rows, axis=0) > 0) & (std > 0))
        if len(kept) == 0:
            raise InputError("every column has the same value in all rows: give a table in which something varies")
        scaled = (rows[:, kept] - mean[kept]) / std[kept]
        generator = np.random.default_rng([seed % 2**63, len(rows)])
        left, right = generator.integers(0, len(rows), (2, PAIRS_SAMPLED))
        distances = np.linalg.norm(scaled[left] - scaled[right], axis=1)
        distances = distances[distances > 0]
        factor = length_scale / float(np.median(distances)) if len(distances) else length_scale
        names = tuple(columns[i] for i in kept.tolist())
        return cls(names, tuple(kept.tolist()), rows.shape[1], _floats(mean[kept]), _floats(std[kept]), factor)

    def apply(self, rows: np.ndarray) -> np.ndarray:
        """float32 (n, kept) from rows with either all of the original columns or just the kept ones."""
        if rows.ndim != 2 or rows.shape[1] not in (self.width, len(self.kept)):
            raise InputError(
                f"rows of shape {rows.shape} do not fit: the network was trained on {self.width} columns"
                f" ({len(self.kept)} of them in use)"
            )
        if rows.shape[1] == self.width:
            rows = rows[:, list(self.kept)]
        scaled = (rows.astype(np.float64) - np.array(self.mean)) / np.array(self.std) * self.factor
        return scaled.astype(np.float32)

    def invert(self, rows: np.ndarray) -> np.ndarray:
        """Rows (n, kept) in the original units of the kept columns."""
        return rows.astype(np.float64) / self.factor * np.array(self.std) + np.array(self.mean)

    def to_dict(self) -> dict[str, Any]:
        return {
            "columns": list(self.columns),
            "kept": list(self.kept),
            "width": self.width,
            "mean": list(self.mean),
            "std": list(self.std),
            "factor": self.factor,
        }

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> "Standardiser":
        sequences = {name: tuple(stored[name]) for name in ("columns", "kept", "mean", "std")}
        return cls(width=int(stored["width"]), factor=float(stored["factor"]), **sequences)


def usable_rows(values: np.ndarray) -> np.ndarray:
    """Which rows have only numbers that can be computed with."""
    with np.errstate(invalid="ignore"):
        return np.all(np.abs(values) <= LARGEST_VALUE, axis=1)


def read_table(path: Path, wanted: Sequence[str] | None = None) -> Table:
    """The numeric columns of a table; `wanted` takes exactly these columns, in this order, instead of all numeric ones."""
    with open(path, "rb") as stream:
        parquet = stream.read(4) == b"PAR1"
    try:
        return _assemble(_parquet_blocks(path) if parquet else _csv_blocks(path), path, wanted)
    except InputError:
        raise
    except Exception as error:  # csv, codec and arrow errors alike
        reason = printable(str(error).split("\n")[0])[:120] or type(error).__name__
        raise InputError(f"{printable(str(path))} cannot be read as a table ({reason}): save it again as CSV") from None


@dataclass
class _Block:
    """A run of rows: one list of cells (strings) or one array of numbers per column; rows of the wrong width apart."""

    columns: list[str]
    cells: list[Sequence[str] | np.ndarray]
    rows: np.ndarray
    odd_rows: list[tuple[int, str]]


def _csv_blocks(path: Path) -> Iterator[_Block]:
    with open(path, "rb") as raw:
        start = raw.read(4)
        raw.seek(0)
        encoding = "utf-16" if start[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
        # Bytes that are not text become lone surrogates: a strange cell is one skipped row, not the end of the reading.
        text = io.TextIOWrapper(
            raw, encoding=encoding, errors="surrogateescape" if encoding != "utf-16" else "replace", newline=""
        )
        first_line = text.readline(10**6)
        text.seek(0)
        delimiter = max(",;\t|", key=first_line.count)
        reader = csv.reader(text, delimiter=delimiter, skipinitialspace=True)
        first = next(reader, [])
        if not first:
            raise InputError(f"{printable(str(path))} is empty: give a table with a row for each sample")
        has_header = all(np.isnan(_number(cell)) for cell in first)
        columns = _distinct([cell.strip() for cell in first]) if has_header else _numbered(len(first))
        pending = iter(reader) if has_header else _chain_first(first, reader)
        position = 0
        while lines := list(islice(pending, ROWS_AT_ONCE)):
            lines = [line for line in lines if line]  # blank lines are no rows
            whole = [(position + i, line) for i, line in enumerate(lines) if len(line) == len(columns)]
            odd = [
                (position + i, f"{len(line)} cells where {len(columns)} are expected")
                for i, line in enumerate(lines)
                if len(line) != len(columns)
            ]
            cells: list = list(zip(*(line for _, line in whole), strict=True)) or [()] * len(columns)
            yield _Block(columns, cells, np.array([i for i, _ in whole], np.int64), odd)
            position += len(lines)


def _parquet_blocks(path: Path) -> Iterator[_Block]:
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise InputError("reading .parquet needs pyarrow: pip install 'sao[tables]', or save the table as .csv") from None
    position = 0
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(ROWS_AT_ONCE):
            cells: list[Sequence[str] | np.ndarray] = []
            for column in batch.columns:
                kind = column.type
                if arrow.types.is_integer(kind) or arrow.types.is_floating(kind) or arrow.types.is_boolean(kind):
                    numbers = column.cast(arrow.uint8()) if arrow.types.is_boolean(kind) else column
                    cells.append(numbers.cast(arrow.float64(), safe=False).fill_null(np.nan).to_numpy(zero_copy_only=False))
                else:
                    cells.append(["" if value is None else str(value) for value in column.to_pylist()])
            rows = np.arange(position, position + batch.num_rows)
            yield _Block(_distinct([str(name) for name in batch.schema.names]), cells, rows, [])
            position += batch.num_rows


def _assemble(blocks: Iterator[_Block], path: Path, wanted: Sequence[str] | None) -> Table:
    columns: list[str] = []
    label: int | None = None
    values, labels, rows, odd = [], [], [], []
    filled = numeric = np.zeros(0, np.int64)
    for block in blocks:
        if not columns:
            columns = block.columns
            label = _label_column(columns, wanted)
            filled, numeric = np.zeros(len(columns), np.int64), np.zeros(len(columns), np.int64)
        numbers = np.empty((len(block.rows), len(columns)))
        for j, cells in enumerate(block.cells):
            numbers[:, j] = cells if isinstance(cells, np.ndarray) else _numbers(cells)
            filled[j] += np.isfinite(numbers[:, j]).sum() if isinstance(cells, np.ndarray) else sum(map(bool, cells))
            numeric[j] += np.isfinite(numbers[:, j]).sum()
        values.append(numbers)
        rows.append(block.rows)
        odd += block.odd_rows
        if label is not None:
            labels += [_label_text(cell) for cell in block.cells[label]]
    total = sum(map(len, rows))
    if not total:
        raise InputError(f"{printable(str(path))} has no row of data: give a table with a row for each sample")
    kept, notes = _choose(columns, label, filled, numeric, total, wanted, path)
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
    columns: list[str],
    label: int | None,
    filled: np.ndarray,
    numeric: np.ndarray,
    total: int,
    wanted: Sequence[str] | None,
    path: Path,
) -> tuple[list[int], list[str]]:
    """Which columns to keep, and what to say about the others."""
    if wanted is not None:
        if missing := [name for name in wanted if name not in columns]:
            raise InputError(f"{printable(str(path))} lacks the column {printable(missing[0])} that the network was trained on")
        return [columns.index(name) for name in wanted], []
    others = [j for j in range(len(columns)) if j != label]
    text = [j for j in others if 2 * numeric[j] < filled[j]]
    empty = [j for j in others if 2 * filled[j] < total and j not in text]
    kept = [j for j in others if j not in text and j not in empty]
    if not kept:
        raise InputError(f"{printable(str(path))} has no column of numbers: give a table of numeric columns")
    notes = [f"columns dropped because they are text: {listed([columns[j] for j in text])}"] if text else []
    if empty:
        notes.append(f"columns dropped because most of their cells are empty: {listed([columns[j] for j in empty])}")
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


def _numbered(count: int) -> list[str]:
    return [f"column {i}" for i in range(count)]


def _chain_first(first: list[str], rest: Iterator[list[str]]) -> Iterator[list[str]]:
    yield first
    yield from rest


def listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


def _floats(values: np.ndarray) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
