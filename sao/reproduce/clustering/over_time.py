"""How ours came about: k-means accuracy on held-out samples over the minutes of training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sao.reproduce.tables.cells import Cell
from sao.reproduce.tables.curves import validated
from sao.reproduce.tables.measure import training_seconds
from sao.training.run_folder import Run

VALIDATED = "eval/kmeans"  # its name goes on with the number of samples


def over_time(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Of each data set and row the evaluations on the way: step, minutes of training, and the accuracy of each seed."""
    points: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    for cell in (cell for cell in cells if cell.row.kind == "trained"):
        for minutes, step, value in _points(cell):
            points.setdefault((cell.data, cell.row.title, step), []).append((minutes, value))
    found = []
    for (data, row, step), pairs in sorted(points.items()):
        minutes, values = (list(part) for part in zip(*pairs, strict=True))
        found.append({"data": data, "row": row, "step": step, "minutes": float(np.mean(minutes)), "kmeans": values})
    return found


def write_curves(cells: Sequence[Cell], path: Path) -> None:
    points = over_time(cells)
    datasets = [data for data in dict.fromkeys(cell.data for cell in cells) if any(point["data"] == data for point in points)]
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


def _points(cell: Cell) -> list[tuple[float, int, float]]:
    """Minutes, step and value. The clock begins anew after a stop, so minutes are steps times the median of a step's time."""
    evaluated = validated(cell.folder, VALIDATED)
    if not evaluated:
        return []
    run = Run.open(cell.folder)
    last = max(row["step"] for row in run.rows() if "time/seconds" in row)
    each = training_seconds(run) / last
    return [(step * each / 60, step, value) for step, value in evaluated]
