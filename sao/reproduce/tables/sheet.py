"""One picture with the samples of all rows."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

from matplotlib.figure import Figure
from matplotlib.image import imread

from sao.reproduce.tables.cells import Cell

WIDEST = 42  # letters of a title above a grid


def write_sheet(cells: Sequence[Cell], path: Path) -> None:
    """A column for each row of the table and a line for each data set; each grid is of the first seed that has one."""
    grids: dict[tuple[str, str], Cell] = {}
    for cell in cells:
        if (cell.folder / "samples.png").exists():
            grids.setdefault((cell.data, cell.row.title), cell)
    if not grids:
        return
    lines, columns = (list(dict.fromkeys(keys)) for keys in zip(*grids, strict=True))
    figure = Figure(figsize=(3.2 * len(columns), 3.4 * len(lines)), layout="constrained")
    axes = figure.subplots(len(lines), len(columns), squeeze=False)
    for one in axes.flat:
        one.set_axis_off()
    for (data, title), cell in grids.items():
        one = axes[lines.index(data), columns.index(title)]
        one.imshow(imread(cell.folder / "samples.png"), interpolation="nearest")
        one.set_title(f"{fill(title, WIDEST)}\n{data}", fontsize=9)
    figure.savefig(path, dpi=120)
