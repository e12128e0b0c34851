"""Tables for spreadsheets: no text is taken for a formula, and names keep their letters.

A text that a spreadsheet would compute (it begins with = + - @, a tab or a line break, and is no number) gets an apostrophe,
which `original` takes off again. The byte order mark says UTF-8; read it as "utf-8-sig".
"""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

FORMULA = re.compile(r"'*[=+\-@＝＋－＠\t\r\n]")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8-sig", errors="backslashreplace") as file:
        _write(file, [header], ",")
        _write(file, rows, ",")


def tsv_text(rows: Iterable[Iterable[Any]]) -> str:
    """The same as a text with tabs, its byte order mark included."""
    text = io.StringIO(newline="")
    _write(text, rows, "\t")
    return "\ufeff" + text.getvalue()


def original(cell: str) -> str:
    """The text that `write_csv` or `tsv_text` was given."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell


def _write(file: Any, rows: Iterable[Iterable[Any]], delimiter: str) -> None:
    lines = csv.writer(file, delimiter=delimiter, lineterminator="\n" if delimiter == "\t" else "\r\n")
    lines.writerows([_cell(value) if isinstance(value, str) else value for value in row] for row in rows)


def _cell(text: str) -> str:
    return f"'{text}" if FORMULA.match(text) and not NUMBER.fullmatch(text) else text
