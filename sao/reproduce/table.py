"""Runs as a table (Markdown and JSON, mean ± sample standard deviation over the seeds), with a sheet of samples and curves."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.lines import Line2D

from sao.core.agreement import best
from sao.evaluation.result import Metric, read_json
from sao.reproduce.known import record_of
from sao.reproduce.measure import CLUSTERED
from sao.reproduce.rows import Row, Scores, StudyRun, Table
from sao.runtime.files import write_text
from sao.runtime.machine import processor_name, usable_cores
from sao.training.run_folder import Run

DIVERGED = "diverged_at_step"
SHARES = ("kmeans", "kmeans_best", "svm", "probe", "knn1", "knn5", *CLUSTERED)  # shown in percent
NOTHING = "–"


def read_result(run: StudyRun) -> dict[str, Metric]:
    """Metrics by name, without those that were not finite."""
    rows = read_json(run.evaluation, run.folder)
    return {row["name"]: Metric(**row) for row in rows if row["value"] is not None and math.isfinite(row["value"])}


def write_table(table: Table, runs: Sequence[StudyRun], out: Path, command: str, searched: Scores | None = None) -> None:
    """NAME.md and NAME.json of the runs that are done, and of the search for learning rates."""
    done = [(run, read_result(run)) for run in runs if run.evaluation.exists()]
    rows = {run.row.name: run.row for run in runs}.values()
    lines = [summarised(row, data, done) for data in _ordered(run.data for run in runs) for row in rows]
    lines = [line for line in lines if line["seeds"]]
    facts = facts_of(table, command)
    searches = [{"row": row, "data": data, "scores": dict(found)} for (row, data), found in (searched or {}).items()]
    known = [record_of(run) for run, _ in done]
    content = {**facts, "notes": table.notes, "rows": lines, "search": searches, "runs": known}
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


def summarised(row: Row, data: str, done: list[tuple[StudyRun, dict[str, Metric]]]) -> dict[str, Any]:
    """One row on one data set: of each metric the mean and deviation over the seeds, and the paper's number beside it."""
    own = [(run, found) for run, found in done if run.row.name == row.name and run.data == data]
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
        "seeds": [run.config.seed for run, _ in own],
        "diverged": {str(run.config.seed): int(found[DIVERGED].value) for run, found in own if DIVERGED in found},
        "metrics": metrics,
        "paper": dict(row.paper.get(data, {})),
    }


# --- for people ------------------------------------------------------------------------------------------------------


def _markdown(table: Table, lines: list[dict[str, Any]], facts: dict[str, str], done: list) -> str:
    parts = [f"# {table.title} (scale: {table.scale})", f"`{facts['command']}`, {facts['date']}, {facts['machine']}"]
    parts += [f"- {note}" for note in (*_notes(done), *table.notes)]
    for data in _ordered(line["data"] for line in lines):
        parts += ["", f"## {data}", "", *_rows(table.columns, [line for line in lines if line["data"] == data])]
    return "\n".join([parts[0], "", parts[1], "", *parts[2:]]) + "\n"


def _notes(done: list[tuple[StudyRun, dict[str, Metric]]]) -> list[str]:
    notes = [
        "mean ± standard deviation over the seeds (that of a sample); shares in percent; the JSON file has more metrics",
        "minutes: the steps times the median of a step's time, so without evaluations on the way",
        "runs that earlier commands with the same options finished in this folder are shown too",
    ]
    if any(run.row.paper.get(run.data) for run, _ in done):
        notes.append("in brackets: the paper's number, of its own networks after 1000 epochs")
    compared = any(name.endswith("_classifier") for _, found in done for name in found)
    for run, found in done:
        if compared and run.row.kind == "reference" and "probe" in found:
            notes.append(
                f"…_classifier on {run.data}: in the features of the row {run.row.name!r}, a classifier with test accuracy "
                f"{100 * found['probe'].value:.1f} (linear probe); not comparable with FID"
            )
    return notes


def _rows(columns: Mapping[str, str], lines: list[dict[str, Any]]) -> list[str]:
    """The columns that any line has a value for; the paper's number stands in brackets behind ours."""
    shown = [name for name in columns if any(name in line["metrics"] for line in lines)]
    text = [f"| row | seeds | {' | '.join(columns[name] for name in shown)} |", "|---|---|" + "---|" * len(shown)]
    for line in lines:
        values = " | ".join(_cell(line, name) for name in shown)
        text.append(f"| {line['title']} | {seeds_of(line)} | {values} |")
    return text


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


def _cell(line: dict[str, Any], name: str) -> str:
    factor, digits = (100, 1) if name in SHARES else (1, 2)
    own = NOTHING
    if name in line["metrics"]:
        mean, std, values = (factor * np.array(line["metrics"][name][key]) for key in ("mean", "std", "values"))
        own = f"{mean:.{digits}f}" + (f" ± {std:.{digits}f}" if len(values) > 1 else "")
    return f"{own} ({factor * line['paper'][name]:.{digits}f})" if name in line["paper"] else own


def _ordered(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


# --- one picture with the samples of all rows -----------------------------------------------------------------------------

WIDEST = 42  # letters of a title above a grid


def write_sheet(runs: Sequence[StudyRun], path: Path) -> None:
    """A column for each row of the table and a line for each data set; each grid is of the first seed that has one."""
    grids: dict[tuple[str, str], StudyRun] = {}
    for run in runs:
        if (run.folder / "samples.png").exists():
            grids.setdefault((run.data, run.row.title), run)
    if not grids:
        return
    lines, columns = (list(dict.fromkeys(keys)) for keys in zip(*grids, strict=True))
    figure = Figure(figsize=(3.2 * len(columns), 3.4 * len(lines)), layout="constrained")
    axes = figure.subplots(len(lines), len(columns), squeeze=False)
    for one in axes.flat:
        one.set_axis_off()
    for (data, title), run in grids.items():
        one = axes[lines.index(data), columns.index(title)]
        one.imshow(imread(run.folder / "samples.png"), interpolation="nearest")
        one.set_title(f"{fill(title, WIDEST)}\n{data}", fontsize=9)
    figure.savefig(path, dpi=120)


# --- accuracies on held-out samples while the rows trained ----------------------------------------------------------------

VALIDATED = {"eval/kmeans": "k-means accuracy", "eval/probe": "linear probe"}  # their names go on with the number of samples


def write_curves(runs: Sequence[StudyRun], path: Path) -> None:
    """A column for each data set, a panel for each metric in it, and in that a line for each row of the table."""
    trained = [run for run in runs if run.row.kind == "trained" and any(validated(run.folder, name) for name in VALIDATED)]
    datasets, rows = (list(dict.fromkeys(names)) for names in ([c.data for c in trained], [c.row.title for c in trained]))
    if not trained:
        return
    colours = {row: f"C{index}" for index, row in enumerate(rows)}
    figure = Figure(figsize=(5.5 * len(datasets), 0.5 + 3.3 * len(VALIDATED)), layout="constrained")
    panels = figure.subplots(len(VALIDATED), len(datasets), squeeze=False)
    for axes, (name, label) in zip(panels, VALIDATED.items(), strict=True):
        for panel, data in zip(axes, datasets, strict=True):
            _draw(panel, [run for run in trained if run.data == data], name, colours)
            panel.set(title=data, xlabel="step", ylabel=f"{label}, held out")
    lines = [Line2D([], [], color=colour, marker="o") for colour in colours.values()]
    figure.legend(lines, rows, loc="outside lower center", ncols=3 * len(datasets), fontsize=8)
    figure.savefig(path, dpi=110)


def _draw(panel: Axes, runs: Sequence[StudyRun], name: str, colours: Mapping[str, str]) -> None:
    """The mean over the seeds that got as far."""
    lines: dict[str, dict[int, list[float]]] = {}
    for run in runs:
        for step, value in validated(run.folder, name):
            lines.setdefault(run.row.title, {}).setdefault(step, []).append(value)
    for title, points in lines.items():
        panel.plot(list(points), [np.mean(values) for values in points.values()], marker="o", color=colours[title])


def validated(folder: Path, name: str) -> list[tuple[int, float]]:
    """Steps and values; none for a run that has not begun, or is shorter than the time to its first evaluation."""
    if not (folder / "metrics.jsonl").exists():
        return []
    return [(int(row["step"]), value) for row in Run.open(folder).rows() for key, value in row.items() if key.startswith(name)]
