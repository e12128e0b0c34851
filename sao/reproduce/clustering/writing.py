"""What the benchmark found, in Markdown for people and in JSON for programs."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from sao.files import write_text
from sao.reproduce.clustering.benchmark import PUBLISHED
from sao.reproduce.clustering.over_time import over_time
from sao.reproduce.tables.cells import Cell, Table
from sao.reproduce.tables.writing import NOTHING, facts_of, read_result, seeds_of, summarised

# Heading, and the metrics of which each cell has accuracy, NMI and ARI.
COLUMNS = {
    "k-means": ("kmeans", "nmi", "ari"),
    "best of 20": ("kmeans_best", "kmeans_best_nmi", "kmeans_best_ari"),
    "UMAP": ("manifold", "manifold_nmi", "manifold_ari"),
    "UMAP, all images": ("together", "together_nmi", "together_ari"),
    "spectral": ("spectral", "spectral_nmi", "spectral_ari"),
    "own": ("own", "own_nmi", "own_ari"),
}
MOST_POINTS = 12  # of a curve that a person reads; the JSON file has all


def write_benchmark(table: Table, cells: Sequence[Cell], out: Path, command: str) -> None:
    """NAME.md and NAME.json of the cells that are done."""
    done = [(cell, read_result(cell)) for cell in cells if cell.evaluation.exists()]
    datasets = list(dict.fromkeys(cell.data for cell in cells))
    lines = [summarised(row, data, done) for data in datasets for row in table.rows]
    lines = [line for line in lines if line["seeds"]]
    epochs = {cell.name: found["minutes"].protocol["epochs"] for cell, found in done if "epochs" in _protocol(found)}
    curve, facts = over_time([cell for cell, _ in done]), facts_of(table, command)
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
        judged = [_cell(line["metrics"], names) for names in COLUMNS.values()]
        elsewhere = published.pop(line["row"], None)
        said = NOTHING if elsewhere is None else f"{elsewhere.said} ({elsewhere.source})"
        shown.append(f"| {' | '.join([line['title'], seeds_of(line), *judged, _minutes(line['metrics']), said])} |")
    others = [one for one in PUBLISHED if one.data == data and (one.row is None or one.row in published)]
    for one in others:
        empty = [NOTHING] * (len(headings) - 3)
        shown.append(f"| {' | '.join([f'{one.title}, not run here', *empty, NOTHING, f'{one.said} ({one.source})'])} |")
    return shown


def _cell(metrics: dict[str, Any], names: tuple[str, str, str]) -> str:
    if names[0] not in metrics:
        return NOTHING
    first, *others = (metrics[name] for name in names)
    spread = f" ± {first['std']:.3f}" if len(first["values"]) > 1 else ""
    return " / ".join([f"{first['mean']:.3f}{spread}", *(f"{other['mean']:.3f}" for other in others)])


def _minutes(metrics: dict[str, Any]) -> str:
    return f"{metrics['minutes']['mean']:.1f}" if "minutes" in metrics else NOTHING


def _curve(title: str, points: list[dict[str, Any]]) -> list[str]:
    chosen = [points[int(place)] for place in np.unique(np.linspace(0, len(points) - 1, MOST_POINTS).round())]
    rows = [
        ("minutes of training", [f"{point['minutes']:.1f}" for point in chosen]),
        ("step", [str(point["step"]) for point in chosen]),
        ("k-means", [f"{np.mean(point['kmeans']):.3f}" for point in chosen]),
    ]
    lines = [f"| {heading} | {' | '.join(cells)} |" for heading, cells in rows]
    measured = "measured during training (mean of 5 starts, at most 5,000 test samples, mean over the seeds)"
    return [
        "",
        f"{title[0].upper()}{title[1:]}, over time, {measured}:",
        "",
        lines[0],
        "|" + "---|" * (len(chosen) + 1),
        *lines[1:],
    ]


def _protocol(found: dict[str, Any]) -> dict[str, Any]:
    return found["minutes"].protocol if "minutes" in found else {}
