"""sao reproduce figure2: train, measure, draw, write down."""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

import numpy as np
import torch

from sao.config import Config, load_preset
from sao.data.named import spirals
from sao.errors import InputError
from sao.methods.gan import Adversarial
from sao.reproduce.figure2.measure import Learnt, Numbers, Sizes, measured
from sao.reproduce.figure2.panels import save_figure
from sao.reproduce.pool import run_each
from sao.reproduce.runs import check_folder, check_out
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


def train_all(jobs: list[Job], processes: int) -> Iterator[tuple[Job, float]]:
    """Train what is not trained yet, `processes` runs at a time; yields each job with its seconds, as they are done."""
    waiting = [one for one in jobs if one.variant != UNTRAINED]
    for one in waiting:
        check_folder(one.folder, one.config)
    yield from run_each(_seconds, waiting, processes)


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
    out: Path,
    seeds: Sequence[int],
    controls: bool,
    options: Mapping[str, str],
    command: str,
    processes: int = 1,
    sizes: Sizes | None = None,
) -> list[Row]:
    """The figure of the first seed, and the numbers of every run; returns these.

    Panel (e) compares with a network without smoothness, so that control is always trained; `controls` adds the others.
    """
    started, sizes = time.monotonic(), sizes or Sizes()
    variants = list(CHANGES) if controls else [METHOD, WITHOUT_SMOOTHNESS]
    jobs = [job(variant, seed, out / "runs", options) for seed in seeds for variant in variants]
    check_out(out)
    seconds: dict[str, float] = {}
    for done, spent in train_all(jobs, processes):
        seconds[done.name] = spent
        print(f"trained {done.name} in {clock(spent)}", flush=True)
    rows, drawn = [], None
    for one in jobs:
        learnt = measured(trained(one), one.config, spirals(seed=one.config.seed), sizes)
        drawn = drawn or learnt  # the first is the method's own, of the first seed
        rows.append(Row(one.variant, one.config.seed, seconds.get(one.name, 0.0), learnt.numbers))
    assert drawn is not None
    _write(out, rows, drawn, jobs[0], command, sizes)
    print(table(rows))
    print(f"{out / 'figure2.png'} and {out / 'figure2.json'}; {clock(time.monotonic() - started)} in all", flush=True)
    return rows


def _write(out: Path, rows: list[Row], drawn: Learnt, first: Job, command: str, sizes: Sizes) -> None:
    beside = next(row for row in rows if row.variant == WITHOUT_SMOOTHNESS).numbers["e"]["transport_cosine"]
    save_figure(drawn, beside, out)
    content = {
        "command": command,
        "date": date.today().isoformat(),
        "panels": drawn.numbers | {"e": drawn.numbers["e"] | {"transport_cosine_without_smoothness": beside}},
        "runs": [asdict(row) for row in rows],
        "sizes": asdict(sizes),
        "config": first.config.model_dump(mode="json"),
    }
    write_text(out / "figure2.json", json.dumps(content, indent=1) + "\n")
    write_text(out / "figure2.md", f"`{command}`, {content['date']}\n\n{table(rows)}\n")
