"""How each row's representation came about: accuracies on held-out samples while it trained."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from sao.reproduce.tables.cells import Cell
from sao.training.run_folder import Run

VALIDATED = {"eval/kmeans": "k-means accuracy", "eval/probe": "linear probe"}  # their names go on with the number of samples


def write_curves(cells: Sequence[Cell], path: Path) -> None:
    """A column for each data set, a panel for each metric in it, and in that a line for each row of the table."""
    trained = [cell for cell in cells if cell.row.kind == "trained" and any(validated(cell.folder, name) for name in VALIDATED)]
    datasets, rows = (list(dict.fromkeys(names)) for names in ([c.data for c in trained], [c.row.title for c in trained]))
    if not trained:
        return
    colours = {row: f"C{index}" for index, row in enumerate(rows)}
    figure = Figure(figsize=(5.5 * len(datasets), 0.5 + 3.3 * len(VALIDATED)), layout="constrained")
    panels = figure.subplots(len(VALIDATED), len(datasets), squeeze=False)
    for axes, (name, label) in zip(panels, VALIDATED.items(), strict=True):
        for panel, data in zip(axes, datasets, strict=True):
            _draw(panel, [cell for cell in trained if cell.data == data], name, colours)
            panel.set(title=data, xlabel="step", ylabel=f"{label}, held out")
    lines = [Line2D([], [], color=colour, marker="o") for colour in colours.values()]
    figure.legend(lines, rows, loc="outside lower center", ncols=3 * len(datasets), fontsize=8)
    figure.savefig(path, dpi=110)


def _draw(panel: Axes, cells: Sequence[Cell], name: str, colours: Mapping[str, str]) -> None:
    """The mean over the seeds that got as far."""
    lines: dict[str, dict[int, list[float]]] = {}
    for cell in cells:
        for step, value in validated(cell.folder, name):
            lines.setdefault(cell.row.title, {}).setdefault(step, []).append(value)
    for title, points in lines.items():
        panel.plot(list(points), [np.mean(values) for values in points.values()], marker="o", color=colours[title])


def validated(folder: Path, name: str) -> list[tuple[int, float]]:
    """Steps and values; none for a run that has not begun, or is shorter than the time to its first evaluation."""
    if not (folder / "metrics.jsonl").exists():
        return []
    return [(int(row["step"]), value) for row in Run.open(folder).rows() for key, value in row.items() if key.startswith(name)]
