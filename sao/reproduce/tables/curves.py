"""How each row's representation came about: accuracies on held-out samples while it trained."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sao.engine.run import Run
from sao.reproduce.tables.cells import Cell

WATCHED = {"eval/kmeans": "k-means accuracy", "eval/probe": "linear probe"}  # their names go on with the number of samples


def write_curves(cells: Sequence[Cell], path: Path) -> None:
    """A column for each data set, a panel for each metric in it, and in that a line for each row of the table."""
    trained = [cell for cell in cells if cell.row.kind == "trained" and (cell.folder / "metrics.jsonl").exists()]
    datasets = list(dict.fromkeys(cell.data for cell in trained))
    if not datasets:
        return
    figure = Figure(figsize=(5.5 * len(datasets), 3.5 * len(WATCHED)), layout="constrained")
    panels = figure.subplots(len(WATCHED), len(datasets), squeeze=False)
    for axes, (name, label) in zip(panels, WATCHED.items(), strict=True):
        for panel, data in zip(axes, datasets, strict=True):
            _draw(panel, [cell for cell in trained if cell.data == data], name)
            panel.set(title=data, xlabel="step", ylabel=f"{label}, held out")
    panels[0, -1].legend(fontsize=8)
    figure.savefig(path, dpi=110)


def _draw(panel: Axes, cells: Sequence[Cell], name: str) -> None:
    """The mean over the seeds that got as far."""
    lines: dict[str, dict[int, list[float]]] = {}
    for cell in cells:
        for step, value in watched(cell.folder, name):
            lines.setdefault(cell.row.title, {}).setdefault(step, []).append(value)
    for title, points in lines.items():
        panel.plot(list(points), [np.mean(values) for values in points.values()], marker="o", label=title)


def watched(folder: Path, name: str) -> list[tuple[int, float]]:
    return [(int(row["step"]), value) for row in Run.open(folder).rows() for key, value in row.items() if key.startswith(name)]
