"""Figure 1: what the features of several runs look like in the plane, coloured by class, with what they are worth below."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from sao.data.dataset import Dataset
from sao.evaluation.evaluator import Plan, chosen_rows, measure, representations, weights_used
from sao.evaluation.result import read_json
from sao.reproduce.figure2 import save_both
from sao.reproduce.figure2_measure import tsne, unit
from sao.reproduce.pool import check_out
from sao.runtime.files import write_text
from sao.training.model import Model, load
from sao.training.run_data import open_run_data
from sao.training.run_folder import Run

SHOWN = 2000  # held-out samples
PLAN = Plan(("svm", "kmeans"), unlabelled=("effective_rank",))
NAMED = {"svm": "SVM", "kmeans": "k-means"}
COLUMNS = 4


@dataclass(frozen=True)
class Source:
    """A run, and what it is called above its panel."""

    folder: Path
    title: str


@dataclass(frozen=True)
class Panel:
    title: str
    plane: np.ndarray  # (n, 2)
    labels: np.ndarray | None
    classes: Sequence[str]
    numbers: dict[str, float]  # accuracies as shares of 1


def draw(sources: Sequence[Source], out: Path, name: str, command: str) -> None:
    """NAME.png, NAME.svg, and NAME.json with the numbers."""
    check_out(out)
    panels = []
    for source in sources:
        panels.append(panel(source))
        print(f"{source.title}: {below(panels[-1])}", flush=True)
    save(panels, out / name)
    numbers = [
        {"run": str(source.folder), "title": one.title, **one.numbers} for source, one in zip(sources, panels, strict=True)
    ]
    content = {"command": command, "date": date.today().isoformat(), "shown": SHOWN, "panels": numbers}
    write_text(out / f"{name}.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    print(f"{out / name}.png, .svg and .json", flush=True)


def panel(source: Source) -> Panel:
    run = Run.open(source.folder)
    config, opened = open_run_data(run)
    model, dataset = load(source.folder, device=config.train.device, report=print), opened.dataset
    rows = chosen_rows(len(dataset.test), dataset.test.labels, SHOWN, config.seed)
    shown = dataset.test.select(rows)
    plane = tsne(unit(model.embed(shown, "backbone")), config.seed)
    labels = shown.labels
    names = dataset.test.class_names or [str(code) for code in range(dataset.classes or 0)]
    return Panel(source.title, plane, labels, names, _numbers(source.folder, model, dataset, config.seed))


def _numbers(folder: Path, model: Model, dataset: Dataset, seed: int) -> dict[str, float]:
    """Those of the table that the run is of; else measured as at the end of a training."""
    table = folder / "eval.json"
    if table.exists():
        found = {row["name"]: row["value"] for row in read_json(table, folder)}
    else:
        pairs = representations(model.method, dataset, PLAN, seed, facts={"weights": weights_used(model.method)})
        found = {metric.name: metric.value for metric in measure(pairs, PLAN, seed).metrics}
    return {name: float(found[name]) for name in NAMED if found.get(name) is not None and np.isfinite(found[name])}


def below(panel: Panel) -> str:
    """The line below a panel."""
    return (
        ", ".join(f"{NAMED[name]} {100 * value:.1f}" for name, value in panel.numbers.items())
        or "no labels, or too few samples to score"
    )


def save(panels: Sequence[Panel], stem: Path) -> None:
    columns = min(COLUMNS, len(panels))
    lines = -(-len(panels) // columns)
    figure = Figure(figsize=(3.4 * columns, 3.8 * lines + 0.5), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False)
    for one in axes.flat:
        one.set_axis_off()
    for one, shown in zip(axes.flat, panels, strict=False):
        _scatter(one, shown)
    known = {tuple(shown.classes) for shown in panels if shown.labels is not None}
    if len(known) == 1 and len(classes := next(iter(known))) <= 20:
        marks = [Line2D([], [], color=_colour(code), marker="o", linestyle="") for code in range(len(classes))]
        figure.legend(marks, classes, loc="outside lower center", ncols=min(10, len(classes)), fontsize=8)
    save_both(figure, stem)


def _scatter(axes: Axes, shown: Panel) -> None:
    axes.set_axis_on()
    colours = "0.5" if shown.labels is None else [_colour(int(code)) for code in shown.labels]
    axes.scatter(*shown.plane.T, s=3, c=colours, linewidths=0)
    axes.set(xticks=[], yticks=[], title=shown.title, xlabel=below(shown))


def _colour(code: int) -> str:
    """Of a class; from the eleventh on paler ones, and from the 21st on the same again."""
    return to_hex(colormaps["tab10" if code < 10 else "tab20"](code if code < 10 else (2 * code + 1) % 20))
