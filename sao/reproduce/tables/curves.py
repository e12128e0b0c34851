"""How each row's representation came about: k-means accuracy on held-out samples while it trained."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from sao.engine.run import Run
from sao.reproduce.tables.cells import Cell

WATCHED = "eval/kmeans"  # the name goes on with the number of samples


def write_curves(cells: Sequence[Cell], path: Path) -> None:
    """A panel for each data set and a line for each row, the mean over the seeds that got as far."""
    curves: dict[str, dict[str, dict[int, list[float]]]] = {}
    for cell in cells:
        if cell.row.kind == "trained" and (cell.folder / "metrics.jsonl").exists():
            for step, value in watched(cell.folder):
                curves.setdefault(cell.data, {}).setdefault(cell.row.title, {}).setdefault(step, []).append(value)
    if not curves:
        return
    figure = Figure(figsize=(5.5 * len(curves), 4), layout="constrained")
    for axes, (data, rows) in zip(figure.subplots(1, len(curves), squeeze=False)[0], curves.items(), strict=True):
        for title, points in rows.items():
            axes.plot(list(points), [np.mean(values) for values in points.values()], marker="o", label=title)
        axes.set(title=data, xlabel="step", ylabel="k-means accuracy, held out")
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def watched(folder: Path) -> list[tuple[int, float]]:
    return [
        (int(row["step"]), value) for row in Run.open(folder).rows() for name, value in row.items() if name.startswith(WATCHED)
    ]
