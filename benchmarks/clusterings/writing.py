"""What the benchmark found, in Markdown for people and in JSON for programs, and as curves over the minutes of training."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from benchmark import PUBLISHED
from matplotlib.figure import Figure

from sao.reproduce.rows import StudyRun, Table
from sao.reproduce.table import NOTHING, facts_of, read_result, seeds_of, summarised, validated
from sao.runtime.files import write_text
from sao.training.run_folder import Run

# Heading, and the metrics of which each column has accuracy, NMI and ARI.
NAMED = {"best of 20": "kmeans_best", "UMAP": "manifold", "UMAP, all images": "together", "spectral": "spectral", "own": "own"}
COLUMNS = {"k-means": ("kmeans", "nmi", "ari")}
COLUMNS |= {heading: (name, f"{name}_nmi", f"{name}_ari") for heading, name in NAMED.items()}
MOST_POINTS = 12  # of a curve that a person reads; the JSON file has all


def write_benchmark(table: Table, runs: Sequence[StudyRun], out: Path, command: str) -> None:
    """NAME.md and NAME.json of the runs that are done."""
    done = [(run, read_result(run)) for run in runs if run.evaluation.exists()]
    datasets = list(dict.fromkeys(run.data for run in runs))
    lines = [summarised(row, data, done) for data in datasets for row in table.rows]
    lines = [line for line in lines if line["seeds"]]
    minutes = {run.name: found["minutes"].protocol for run, found in done if "minutes" in found}
    epochs = {name: protocol["epochs"] for name, protocol in minutes.items() if "epochs" in protocol}
    curve, facts = over_time([run for run, _ in done]), facts_of(table, command)
    published = [asdict(one) for one in PUBLISHED if one.data in datasets]
    content = {**facts, "notes": table.notes, "rows": lines, "published": published, "epochs": epochs, "over_time": curve}
    write_text(out / f"{table.name}.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    parts = [f"# {table.title}", "", f"`{facts['command']}`, {facts['date']}, {facts['machine']}", ""]
    parts += [f"- {note}" for note in ("runs that earlier commands with the same options finished are shown too", *table.notes)]
    for data in dict.fromkeys(line["data"] for line in lines):
        parts += ["", f"## {data}", "", *_rows([line for line in lines if line["data"] == data], data)]
        for title in dict.fromkeys(point["row"] for point in curve if point["data"] == data):
            parts += _curve(title, [point for point in curve if (point["data"], point["row"]) == (data, title)])
    write_text(out / f"{table.name}.md", "\n".join(parts) + "\n")


def _rows(lines: list[dict[str, Any]], data: str) -> list[str]:
    published = {one.row: one for one in PUBLISHED if one.data == data and one.row is not None}
    headings = ["row", "seeds", *COLUMNS, "minutes", "published"]
    shown = [f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]
    for line in lines:
        metrics = line["metrics"]
        judged = [_judged(metrics, names) for names in COLUMNS.values()]
        minutes = f"{metrics['minutes']['mean']:.1f}" if "minutes" in metrics else NOTHING
        elsewhere = published.pop(line["row"], None)
        said = NOTHING if elsewhere is None else f"{elsewhere.said} ({elsewhere.source})"
        shown.append(f"| {' | '.join([line['title'], seeds_of(line), *judged, minutes, said])} |")
    others = [one for one in PUBLISHED if one.data == data and (one.row is None or one.row in published)]
    for one in others:
        empty = [NOTHING] * (len(headings) - 3)
        shown.append(f"| {' | '.join([f'{one.title}, not run here', *empty, NOTHING, f'{one.said} ({one.source})'])} |")
    return shown


def _judged(metrics: dict[str, Any], names: tuple[str, str, str]) -> str:
    if names[0] not in metrics:
        return NOTHING
    first, *others = (metrics[name] for name in names)
    spread = f" ± {first['std']:.3f}" if len(first["values"]) > 1 else ""
    return " / ".join([f"{first['mean']:.3f}{spread}", *(f"{other['mean']:.3f}" for other in others)])


def _curve(title: str, points: list[dict[str, Any]]) -> list[str]:
    chosen = [points[int(place)] for place in np.unique(np.linspace(0, len(points) - 1, MOST_POINTS).round())]
    rows = [
        ("minutes of training", [f"{point['minutes']:.1f}" for point in chosen]),
        ("step", [str(point["step"]) for point in chosen]),
        ("k-means", [f"{np.mean(point['kmeans']):.3f}" for point in chosen]),
    ]
    lines = [f"| {heading} | {' | '.join(values)} |" for heading, values in rows]
    measured = "measured during training (mean of 5 starts, at most 5,000 test samples, mean over the seeds)"
    heading = f"{title[0].upper()}{title[1:]}, over time, {measured}:"
    return ["", heading, "", lines[0], "|" + "---|" * (len(chosen) + 1), *lines[1:]]


# --- how ours came about: k-means accuracy on held-out samples over the minutes of training -------------------------------

VALIDATED = "eval/kmeans"  # its name goes on with the number of samples


def over_time(runs: Sequence[StudyRun]) -> list[dict[str, Any]]:
    """Of each data set and row the evaluations on the way: step, minutes of training, and the accuracy of each seed."""
    points: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    for run in (run for run in runs if run.row.kind == "trained"):
        for minutes, step, value in _points(run):
            points.setdefault((run.data, run.row.title, step), []).append((minutes, value))
    found = []
    for (data, row, step), pairs in sorted(points.items()):
        minutes, values = (list(part) for part in zip(*pairs, strict=True))
        found.append({"data": data, "row": row, "step": step, "minutes": float(np.mean(minutes)), "kmeans": values})
    return found


def write_curves(runs: Sequence[StudyRun], path: Path) -> None:
    points = over_time(runs)
    datasets = [data for data in dict.fromkeys(run.data for run in runs) if any(point["data"] == data for point in points)]
    if not datasets:
        return
    figure = Figure(figsize=(4.5 * len(datasets), 3.6), layout="constrained")
    for panel, data in zip(figure.subplots(1, len(datasets), squeeze=False)[0], datasets, strict=True):
        for row in dict.fromkeys(point["row"] for point in points if point["data"] == data):
            own = [point for point in points if (point["data"], point["row"]) == (data, row)]
            minutes = [point["minutes"] for point in own]
            panel.plot(minutes, [np.mean(point["kmeans"]) for point in own], marker="o", label=row)
            panel.fill_between(minutes, [min(p["kmeans"]) for p in own], [max(p["kmeans"]) for p in own], alpha=0.2)
        panel.set(title=data, xlabel="minutes of training", ylabel="k-means accuracy, held out")
        panel.legend(loc="lower right", fontsize=8)
    figure.savefig(path, dpi=110)


def _points(run: StudyRun) -> list[tuple[float, int, float]]:
    """Minutes, step and value. The clock begins anew after a stop, so minutes are steps times the median of a step's time."""
    evaluated = validated(run.folder, VALIDATED)
    if not evaluated:
        return []
    stored = Run.open(run.folder)
    last = max(row["step"] for row in stored.rows() if "time/seconds" in row)
    each = stored.training_seconds() / last
    return [(step * each / 60, step, value) for step, value in evaluated]
