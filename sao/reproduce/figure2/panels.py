"""The six panels, each alone and all on one sheet, as PNG and SVG. Every panel's number stands above it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.quiver import Quiver

from sao.data.named import SPIRAL_BOX
from sao.reproduce.figure2.measure import Learnt
from sao.reproduce.figure2.numbers import unit

ARM_COLOURS = np.array(["#1f6fb4", "#d9622b"])
LIMIT = 1.12 * SPIRAL_BOX
DPI = 150


def save_figure(learnt: Learnt, without_smoothness: float | None, folder: Path) -> list[Path]:
    """figure2.png and .svg, and a.png … f.svg; returns what was written."""
    drawings: dict[str, Callable[[Axes], None]] = {
        "a": lambda axes: _data(axes, learnt),
        "b": lambda axes: _generated(axes, learnt),
        "c": lambda axes: _embedding(axes, learnt),
        "d": lambda axes: _palette(axes, learnt),
        "e": lambda axes: _gradient(axes, learnt, without_smoothness),
        "f": lambda axes: _updates(axes, learnt),
    }
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, draw in drawings.items():
        single = Figure(figsize=(5, 5.2), layout="constrained")
        draw(single.subplots())
        written += _save(single, folder / name)
    sheet = Figure(figsize=(15, 10.4), layout="constrained")
    for axes, (name, draw) in zip(sheet.subplots(2, 3).flat, drawings.items(), strict=True):
        draw(axes)
        axes.text(0.01, 0.99, f"({name})", transform=axes.transAxes, va="top", fontsize=14, fontweight="bold")
    return [*_save(sheet, folder / "figure2"), *written]


def palette(plane: np.ndarray) -> np.ndarray:
    """Colours (n, 3) that vary smoothly with the place in the plane: hue around its middle, lightness outwards.

    The rank of each coordinate is used and not its value, so that all colours occur alike often.
    """
    from matplotlib.colors import hsv_to_rgb

    ranks = plane.argsort(0).argsort(0) / max(1, len(plane) - 1) * 2 - 1
    hue = np.arctan2(ranks[:, 1], ranks[:, 0]) / (2 * np.pi) % 1
    radius = np.minimum(1, np.linalg.norm(ranks, axis=1))
    return hsv_to_rgb(np.stack([hue, 0.25 + 0.75 * radius, 0.95 - 0.25 * radius], axis=1))


def _data(axes: Axes, learnt: Learnt) -> None:
    axes.scatter(*learnt.points.T, s=5, c=ARM_COLOURS[learnt.arm], linewidths=0)
    found = learnt.numbers["a"]
    _plane_of_data(axes, "data by arm", f"linear accuracy of the raw coordinates {found['raw_linear_accuracy']:.3f}")


def _generated(axes: Axes, learnt: Learnt) -> None:
    axes.scatter(*learnt.generated[: len(learnt.points)].T, s=5, color="#3d7a4b", linewidths=0)
    found = learnt.numbers["b"]
    note = f"{found['share_on_arms']:.3f} on an arm, {found['bins_hit']} of {found['bins']} parts of the arms hit"
    _plane_of_data(axes, "generated samples", note)


def _embedding(axes: Axes, learnt: Learnt) -> None:
    axes.scatter(*learnt.plane.T, s=6, c=ARM_COLOURS[learnt.arm], linewidths=0)
    found = learnt.numbers["c"]
    note = f"arms: 1-NN {found['nearest_neighbour_accuracy']:.3f}, linear {found['linear_accuracy']:.3f}"
    _plane_of_tsne(axes, "t-SNE of the embeddings by arm", note)


def _palette(axes: Axes, learnt: Learnt) -> None:
    axes.scatter(*learnt.points.T, s=7, c=palette(learnt.plane), linewidths=0)
    inset = axes.inset_axes((0.76, 0.76, 0.24, 0.24))
    inset.scatter(*learnt.plane.T, s=1.5, c=palette(learnt.plane), linewidths=0)
    inset.set(xticks=[], yticks=[])
    found = learnt.numbers["d"]
    note = f"neighbours kept {found['shared_neighbours_with_data']:.2f} (chance {found['chance']:.3f})"
    _plane_of_data(axes, "place in the t-SNE as colour", note)


def _gradient(axes: Axes, learnt: Learnt, without_smoothness: float | None) -> None:
    axes.scatter(*learnt.points.T, s=3, color="0.82", linewidths=0)
    _arrows(axes, learnt.grid, unit(learnt.paths), color="#e08a3c", label="optimal transport")
    _arrows(axes, learnt.grid, unit(learnt.pull), color="#2b4c8c", label="−∂L/∂x")
    axes.legend(loc="upper right", fontsize=8, framealpha=0.9)
    note = f"mean cosine {learnt.numbers['e']['transport_cosine']:.3f}"
    if without_smoothness is not None:
        note += f"; without smoothness {without_smoothness:.3f}"
    _plane_of_data(axes, "gradient and optimal transport", note)


def _updates(axes: Axes, learnt: Learnt) -> None:
    colours = ARM_COLOURS[learnt.arm]
    axes.scatter(*learnt.plane.T, s=4, c=colours, alpha=0.35, linewidths=0)
    shown = np.arange(0, len(learnt.plane), 3)  # every third arrow: more hide each other
    arrows = learnt.arrows[shown] / (np.quantile(np.linalg.norm(learnt.arrows, axis=1), 0.9) + 1e-12)
    axes.quiver(*learnt.plane[shown].T, *arrows.T, color=colours[shown], angles="xy", scale=22, width=0.0035)
    found = learnt.numbers["f"]
    note = f"mean cosine within an arm {found['update_cosine_within']:.2f}, between {found['update_cosine_between']:.2f}"
    _plane_of_tsne(axes, "direction of one update", note)


def _arrows(axes: Axes, places: np.ndarray, directions: np.ndarray, color: str, label: str) -> Quiver:
    return axes.quiver(
        *places.T, *directions.T, color=color, label=label, angles="xy", scale_units="xy", scale=1.5, width=0.003
    )


def _plane_of_data(axes: Axes, title: str, note: str) -> None:
    axes.set(xlim=(-LIMIT, LIMIT), ylim=(-LIMIT, LIMIT), xticks=[], yticks=[], aspect="equal")
    axes.set_title(f"{title}\n{note}", fontsize=10)


def _plane_of_tsne(axes: Axes, title: str, note: str) -> None:
    axes.set(xticks=[], yticks=[])
    axes.set_title(f"{title}\n{note}", fontsize=10)


def _save(figure: Figure, stem: Path) -> list[Path]:
    paths = [stem.with_suffix(suffix) for suffix in (".png", ".svg")]
    for path in paths:
        # Without a date in it, the same run draws the same bytes.
        figure.savefig(path, dpi=DPI, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths
