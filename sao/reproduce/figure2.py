"""sao reproduce figure2: train, measure, draw, write down."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sao.config import Config, load_preset
from sao.data.named import SPIRAL_BOX, spirals
from sao.errors import InputError
from sao.methods.gan import Adversarial
from sao.reproduce.figure2_measure import Learnt, Numbers, Sizes, measured, unit
from sao.reproduce.pool import check_folder, check_out, run_each
from sao.runtime.files import write_text
from sao.training import checkpoint
from sao.training.log import clock
from sao.training.loop import new_method
from sao.training.run_folder import Run
from sao.training.trainer import train_run

PRESET = "spirals"
METHOD = "structural"
WITHOUT_SMOOTHNESS = "without smoothness"
UNTRAINED = "untrained"
# What each control changes in the preset.
CHANGES: dict[str, dict[str, str]] = {
    METHOD: {},
    "hinge loss": {"method": "hinge"},
    "without clustering": {"method.cluster_weight": "0"},
    WITHOUT_SMOOTHNESS: {"method.smoothness_weight": "0"},
    UNTRAINED: {},
}


@dataclass(frozen=True)
class Job:
    """One run: a variant, a seed, and where its folder is."""

    variant: str
    config: Config
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.variant}, seed {self.config.seed}"


def job(variant: str, seed: int, runs: Path, options: Mapping[str, str]) -> Job:
    """Options given by hand hold for every variant; what makes it a control is put on top of them."""
    if "method" in options:
        raise InputError("figure2 sets the method of each panel itself: leave --method out")
    config = load_preset(PRESET, {"train.threads": "1", **options, **CHANGES[variant], "seed": str(seed)})
    if config.data.source != PRESET:
        raise InputError("figure2 is drawn from the spirals: leave --data.source out")
    return Job(variant, config, runs / f"{variant.replace(' ', '-')}-seed{seed}")


def trained(one: Job) -> Adversarial:
    """The method at the end of its run; the untrained control is the network as it was initialised."""
    method = new_method(one.config, spirals(seed=one.config.seed), torch.device("cpu"))
    assert isinstance(method, Adversarial), "every variant is a GAN"
    if one.variant != UNTRAINED:
        checkpoint.load_latest(Run.open(one.folder).checkpoints, method, lambda line: print(line, file=sys.stderr))
    return method


def _seconds(one: Job) -> float:
    started = time.monotonic()
    train_run(one.folder, one.config, spirals(seed=one.config.seed))
    return time.monotonic() - started


# --- the table: mean ± standard deviation over the seeds ------------------------------------------------------------------

COLUMNS = {  # heading → panel and name
    "on an arm": ("b", "share_on_arms"),
    "parts hit (of 40)": ("b", "bins_hit"),
    "1-NN": ("c", "nearest_neighbour_accuracy"),
    "linear": ("c", "linear_accuracy"),
    "neighbours kept": ("d", "shared_neighbours_with_data"),
    "transport cosine": ("e", "transport_cosine"),
    "update cosine within": ("f", "update_cosine_within"),
    "between": ("f", "update_cosine_between"),
}


@dataclass(frozen=True)
class Row:
    """One run."""

    variant: str
    seed: int
    seconds: float
    numbers: Numbers


def table(rows: list[Row]) -> str:
    """Markdown, one line for each variant in the order in which they first occur."""
    variants = list(dict.fromkeys(row.variant for row in rows))
    lines = [f"| run | seeds | {' | '.join(COLUMNS)} |", "|---|---|" + "---|" * len(COLUMNS)]
    for variant in variants:
        own = [row for row in rows if row.variant == variant]
        means = [_mean([row.numbers[panel][name] for row in own]) for panel, name in COLUMNS.values()]
        lines.append(f"| {variant} | {', '.join(str(row.seed) for row in own)} | {' | '.join(means)} |")
    return "\n".join(lines)


def _mean(values: list[float]) -> str:
    mean = f"{np.mean(values):.3f}".removesuffix(".000") if all(value > 1 for value in values) else f"{np.mean(values):.3f}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values):.3f}"


# --- the figure and its numbers -------------------------------------------------------------------------------------------


def reproduce(
    out: Path, seeds: Sequence[int], controls: bool, options: Mapping[str, str], command: str, processes: int
) -> None:
    """The figure of the first seed, and the numbers of every run; the control of panel (e) is always among them."""
    started, sizes = time.monotonic(), Sizes()
    variants = list(CHANGES) if controls else [METHOD, WITHOUT_SMOOTHNESS]
    jobs = [job(variant, seed, out / "runs", options) for seed in seeds for variant in variants]
    check_out(out)
    waiting = [one for one in jobs if one.variant != UNTRAINED]
    for one in waiting:
        check_folder(one.folder, one.config)
    seconds: dict[str, float] = {}
    for done, spent in run_each(_seconds, waiting, processes):
        seconds[done.name] = spent
        print(f"trained {done.name} in {clock(spent)}", flush=True)
    learnt = [measured(trained(one), one.config, spirals(seed=one.config.seed), sizes) for one in jobs]
    numbers = [found.numbers for found in learnt]
    rows = [Row(job.variant, job.config.seed, seconds.get(job.name, 0.0), n) for job, n in zip(jobs, numbers, strict=True)]
    _write(out, rows, learnt[0], jobs[0], command, sizes)  # the first is the method's own, of the first seed
    print(table(rows))
    print(f"{out / 'figure2.png'} and {out / 'figure2.json'}; {clock(time.monotonic() - started)} in all", flush=True)


def _write(out: Path, rows: list[Row], drawn: Learnt, first: Job, command: str, sizes: Sizes) -> None:
    beside = next(row for row in rows if row.variant == WITHOUT_SMOOTHNESS).numbers["e"]["transport_cosine"]
    panels = drawn.numbers | {"e": drawn.numbers["e"] | {"transport_cosine_without_smoothness": beside}}
    save_figure(replace(drawn, numbers=panels), out)
    content = {
        "command": command,
        "date": date.today().isoformat(),
        "panels": panels,
        "runs": [asdict(row) for row in rows],
        "sizes": asdict(sizes),
        "config": first.config.model_dump(mode="json"),
    }
    write_text(out / "figure2.json", json.dumps(content, indent=1) + "\n")
    write_text(out / "figure2.md", f"`{command}`, {content['date']}\n\n{table(rows)}\n")


ARM_COLOURS = np.array(["#1f6fb4", "#d9622b"])
LIMIT = 1.12 * SPIRAL_BOX
DPI = 150


def save_figure(learnt: Learnt, folder: Path) -> None:
    """figure2.png and .svg, and a.png … f.svg."""
    sheet = Figure(figsize=(15, 10.4), layout="constrained")
    drawings = (_data, _generated, _embedding, _palette, _gradient, _updates)
    for axes, name, draw in zip(sheet.subplots(2, 3).flat, "abcdef", drawings, strict=True):
        single = Figure(figsize=(5, 5.2), layout="constrained")
        draw(single.subplots(), learnt)
        save_both(single, folder / name)
        draw(axes, learnt)
        axes.text(0.01, 0.99, f"({name})", transform=axes.transAxes, va="top", fontsize=14, fontweight="bold")
    save_both(sheet, folder / "figure2")


def palette(plane: np.ndarray) -> np.ndarray:
    """Colours (n, 3) by the rank of each coordinate in the plane: hue around its middle, lightness outwards."""
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


def _gradient(axes: Axes, learnt: Learnt) -> None:
    axes.scatter(*learnt.points.T, s=3, color="0.82", linewidths=0)
    style: dict[str, Any] = {"angles": "xy", "scale_units": "xy", "scale": 1.5, "width": 0.003}
    axes.quiver(*learnt.grid.T, *unit(learnt.paths).T, color="#e08a3c", label="optimal transport", **style)
    axes.quiver(*learnt.grid.T, *unit(learnt.pull).T, color="#2b4c8c", label="−∂L/∂x", **style)
    axes.legend(loc="upper right", fontsize=8, framealpha=0.9)
    ours, without = (learnt.numbers["e"][f"transport_cosine{which}"] for which in ("", "_without_smoothness"))
    _plane_of_data(axes, "gradient and optimal transport", f"mean cosine {ours:.3f}; without smoothness {without:.3f}")


def _updates(axes: Axes, learnt: Learnt) -> None:
    colours = ARM_COLOURS[learnt.arm]
    axes.scatter(*learnt.plane.T, s=4, c=colours, alpha=0.35, linewidths=0)
    shown = np.arange(0, len(learnt.plane), 3)  # every third arrow: more hide each other
    arrows = learnt.arrows[shown] / (np.quantile(np.linalg.norm(learnt.arrows, axis=1), 0.9) + 1e-12)
    axes.quiver(*learnt.plane[shown].T, *arrows.T, color=colours[shown], angles="xy", scale=22, width=0.0035)
    found = learnt.numbers["f"]
    note = f"mean cosine within an arm {found['update_cosine_within']:.2f}, between {found['update_cosine_between']:.2f}"
    _plane_of_tsne(axes, "direction of one update", note)


def _plane_of_data(axes: Axes, title: str, note: str) -> None:
    axes.set(xlim=(-LIMIT, LIMIT), ylim=(-LIMIT, LIMIT), xticks=[], yticks=[], aspect="equal")
    axes.set_title(f"{title}\n{note}", fontsize=10)


def _plane_of_tsne(axes: Axes, title: str, note: str) -> None:
    axes.set(xticks=[], yticks=[])
    axes.set_title(f"{title}\n{note}", fontsize=10)


def save_both(figure: Figure, stem: Path) -> None:
    """STEM.png and STEM.svg; without a date in it, the same run draws the same bytes."""
    for suffix, metadata in ((".png", None), (".svg", {"Date": None})):
        figure.savefig(stem.with_name(stem.name + suffix), dpi=DPI, metadata=metadata)
