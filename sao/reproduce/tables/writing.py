"""Cells as a table, in Markdown for people and in JSON for programs: mean ± sample standard deviation over the seeds."""

import json
import math
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from sao.agreement import best
from sao.evaluation.result import Metric
from sao.files import write_text
from sao.machine import processor_name, usable_cores
from sao.reproduce.tables.cells import Cell, Row, Scores, Table
from sao.reproduce.tables.clusterings import CLUSTERED

DIVERGED = "diverged_at_step"
COUNTS = ("parameters_encoder", "parameters_d", "parameters_g")  # shown in millions
SHARES = ("kmeans", "svm", "probe", "knn1", "knn5", *CLUSTERED)  # shown in percent
NOTHING = "–"


def read_result(cell: Cell) -> dict[str, Metric]:
    """Metrics by name, without those that were not finite."""
    rows = json.loads(cell.evaluation.read_text(encoding="utf-8"))
    return {row["name"]: Metric(**row) for row in rows if row["value"] is not None and math.isfinite(row["value"])}


def write_table(table: Table, cells: Sequence[Cell], out: Path, command: str, searched: Scores | None = None) -> None:
    """NAME.md and NAME.json of the cells that are done, and of the search for learning rates."""
    done = [(cell, read_result(cell)) for cell in cells if cell.evaluation.exists()]
    lines = [summarised(row, data, done) for data in _ordered(cell.data for cell in cells) for row in _ordered_rows(cells)]
    lines = [line for line in lines if line["seeds"]]
    facts = facts_of(table, command)
    searches = [{"row": row, "data": data, "scores": dict(found)} for (row, data), found in (searched or {}).items()]
    content = {**facts, "notes": table.notes, "rows": lines, "search": searches}
    write_text(out / f"{table.name}.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    text = _markdown(table, lines, facts, done) + _search(searches)
    write_text(out / f"{table.name}.md", text)


def facts_of(table: Table, command: str) -> dict[str, str]:
    return {
        "command": command,
        "date": date.today().isoformat(),
        "machine": f"{usable_cores()} {'core' if usable_cores() == 1 else 'cores'}, {processor_name()}",
        "scale": table.scale,
    }


def summarised(row: Row, data: str, done: list[tuple[Cell, dict[str, Metric]]]) -> dict[str, Any]:
    """One row on one data set: of each metric the mean and deviation over the seeds, and the paper's number beside it."""
    own = [(cell, found) for cell, found in done if cell.row.name == row.name and cell.data == data]
    whole = [found for _, found in own if DIVERGED not in found]
    metrics = {}
    for name in _ordered(name for found in whole for name in found):
        values = [found[name].value for found in whole if name in found]
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        metrics[name] = {"mean": float(np.mean(values)), "std": spread, "values": values}
    return {
        "row": row.name,
        "title": row.title,
        "data": data,
        "seeds": [cell.config.seed for cell, _ in own],
        "diverged": {str(cell.config.seed): int(found[DIVERGED].value) for cell, found in own if DIVERGED in found},
        "metrics": metrics,
        "paper": dict(row.paper.get(data, {})),
    }


# --- for people ------------------------------------------------------------------------------------------------------


def _markdown(table: Table, lines: list[dict[str, Any]], facts: dict[str, str], done: list) -> str:
    parts = [f"# {table.title} (scale: {table.scale})", f"`{facts['command']}`, {facts['date']}, {facts['machine']}"]
    parts += [f"- {note}" for note in (*_notes(done), *table.notes)]
    for data in _ordered(line["data"] for line in lines):
        parts += ["", f"## {data}", "", *_rows([line for line in lines if line["data"] == data])]
    return "\n".join([parts[0], "", parts[1], "", *parts[2:]]) + "\n"


def _notes(done: list[tuple[Cell, dict[str, Metric]]]) -> list[str]:
    notes = [
        "mean ± standard deviation over the seeds (that of a sample); accuracies in percent, parameters in millions",
        "minutes: the steps times the median of a step's time, so without evaluations on the way",
        "runs that earlier commands with the same options finished in this folder are shown too",
    ]
    if any(cell.row.paper.get(cell.data) for cell, _ in done):
        notes.append("(paper): the paper's number, of its own networks, 32x32 images and 1000 epochs")
    compared = any(name.endswith("_classifier") for _, found in done for name in found)
    for cell, found in done:
        if compared and cell.row.kind == "reference" and "probe" in found:
            notes.append(
                f"…_classifier on {cell.data}: in the features of the row {cell.row.name!r}, a classifier with test accuracy "
                f"{100 * found['probe'].value:.1f} (linear probe); not comparable with FID"
            )
    return notes


def _rows(lines: list[dict[str, Any]]) -> list[str]:
    names = _ordered(name for line in lines for name in line["metrics"])
    papers = {name for line in lines for name in line["paper"]}
    columns: list[tuple[str, str]] = []  # (whose, metric)
    for name in names:
        columns += [("ours", name)] + ([("paper", name)] if name in papers else [])
    columns += [("paper", name) for name in sorted(papers - set(names))]
    headings = [name if whose == "ours" else f"{name} (paper)" for whose, name in columns]
    shown = [f"| row | seeds | {' | '.join(headings)} |", "|---|---|" + "---|" * len(headings)]
    for line in lines:
        cells = [_ours(line, name) if whose == "ours" else _papers(line, name) for whose, name in columns]
        shown.append(f"| {line['title']} | {seeds_of(line)} | {' | '.join(cells)} |")
    return shown


def _search(searches: list[dict[str, Any]]) -> str:
    """What each learning rate was worth on training data that was held back, in percent; the best one was taken."""
    if not searches:
        return ""
    lines = ["", "## Learning rates, by SVM on training data that was held back", "", "| row | data | tried |", "|---|---|---|"]
    for one in searches:
        first = best(one["scores"])
        tried = [f"{rate}: {100 * score:.1f}" for rate, score in one["scores"].items()]
        shown = [f"**{text}**" if text.startswith(f"{first}: ") else text for text in tried]
        lines.append(f"| {one['row']} | {one['data']} | {', '.join(shown)} |")
    return "\n".join(lines) + "\n"


def seeds_of(line: dict[str, Any]) -> str:
    steps = line["diverged"]
    marks = [f" (diverged at step {steps[str(seed)]})" if str(seed) in steps else "" for seed in line["seeds"]]
    return ", ".join(f"{seed}{mark}" for seed, mark in zip(line["seeds"], marks, strict=True))


def _ours(line: dict[str, Any], name: str) -> str:
    if name not in line["metrics"]:
        return NOTHING
    mean, std, values = (line["metrics"][name][key] for key in ("mean", "std", "values"))
    if name in COUNTS:
        return f"{mean / 1e6:.2f}"
    factor, digits = (100, 1) if name in SHARES else (1, 2)
    return f"{factor * mean:.{digits}f}" + (f" ± {factor * std:.{digits}f}" if len(values) > 1 else "")


def _papers(line: dict[str, Any], name: str) -> str:
    if name not in line["paper"]:
        return NOTHING
    value = line["paper"][name]
    if name in COUNTS:
        return f"{value / 1e6:.1f}"
    return f"{100 * value:.1f}" if name in SHARES else f"{value:.2f}"


def _ordered(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _ordered_rows(cells: Sequence[Cell]) -> list[Row]:
    return list({cell.row.name: cell.row for cell in cells}.values())
