"""Tables for a notebook: plain HTML without styles or scripts, in which every text is text."""

from collections.abc import Iterable, Sequence
from html import escape
from itertools import repeat

from sao.evaluation.result import Metric, as_grid


def table(
    rows: Iterable[Sequence[str]], header: Sequence[str] | None = None, titles: Iterable[Sequence[str]] | None = None
) -> str:
    """Rows of cells; `titles`, where given, are shown when the mouse rests on a cell."""
    lines = ["<table>"]
    if header is not None:
        lines.append("<tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in header) + "</tr>")
    for row, hints in zip(rows, titles or repeat(()), strict=False):
        cells = zip(row, [*hints, *[""] * len(row)], strict=False)
        lines.append("<tr>" + "".join(f"<td{_title(hint)}>{escape(cell)}</td>" for cell, hint in cells) + "</tr>")
    return "\n".join([*lines, "</table>"])


def metric_table(metrics: Sequence[Metric], below: str = "") -> str:
    """As the command line shows it: a row for each representation; a metric's protocol when the mouse rests on its name."""
    grid, *reasons = as_grid(metrics, width=10**6).split("\n\n")[0].split("\n– ")
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in grid.splitlines()]
    protocols = {metric.name: ", ".join(f"{key}: {value}" for key, value in metric.protocol.items()) for metric in metrics}
    header, rows = lines[0], lines[2:]
    hints = [
        ["", *(protocols.get(name if row[0] == "learnt" else f"{row[0]}/{name}", "") for name in header[1:])] for row in rows
    ]
    notes = [f"<p>– {escape(reason)}</p>" for reason in reasons]
    return "\n".join([table(rows, header, hints), *notes, *([f"<p>{escape(below)}</p>"] if below else [])])


def _title(hint: str) -> str:
    return f' title="{escape(hint)}"' if hint else ""
