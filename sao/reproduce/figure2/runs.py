"""The runs behind the figure: the method and its controls, each an ordinary run folder that `sao resume` understands."""

import os
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import torch

from sao.config import Config, load_preset
from sao.data.sources import spirals
from sao.engine import checkpoint
from sao.engine.device import set_threads
from sao.engine.log import Log
from sao.engine.loop import new_method, train
from sao.engine.run import DataFacts, Run
from sao.errors import InputError
from sao.methods import Structural

PRESET = "spirals"
METHOD = "structural"
WITHOUT_SMOOTHNESS = "without smoothness"
UNTRAINED = "untrained"
# What each control changes in the preset. A score has one coordinate: a floor under its length would forbid D to be in doubt.
CHANGES: dict[str, dict[str, str]] = {
    METHOD: {},
    "hinge loss": {"objective.distance": "hinge", "objective.cluster_weight": "0", "objective.norm_weight": "0"},
    "without clustering": {"objective.cluster_weight": "0"},
    WITHOUT_SMOOTHNESS: {"objective.smoothness_weight": "0"},
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
    config = load_preset(PRESET, {"train.threads": "1", **options, **CHANGES[variant], "seed": str(seed)})
    if config.data.source != PRESET or config.method != "structural":
        raise InputError("figure2 is drawn from the structural method on the spirals: leave --data.source and --method out")
    return Job(variant, config, runs / f"{variant.replace(' ', '-')}-seed{seed}")


def train_all(jobs: list[Job], processes: int) -> Iterator[tuple[Job, float]]:
    """Train what is not trained yet, `processes` runs at a time; yields each job with its seconds, in the order given.

    A perceptron of this size gains nothing from a second thread, so a second core makes a second run instead.
    """
    waiting = [one for one in jobs if one.variant != UNTRAINED]
    for one in waiting:
        _check_folder(one)
    if processes == 1 or len(waiting) < 2:
        yield from ((one, _train(one)) for one in waiting)
        return
    with ProcessPoolExecutor(processes, get_context("spawn"), initializer=_silence) as pool:
        yield from zip(waiting, pool.map(_train, waiting), strict=True)


def trained(one: Job) -> Structural:
    """The method at the end of its run; the untrained control is the network as it was initialised."""
    method = new_method(one.config, spirals(seed=one.config.seed), torch.device("cpu"))
    assert isinstance(method, Structural)
    if one.variant != UNTRAINED:
        checkpoint.load_newest(Run.open(one.folder).checkpoints, method, lambda line: print(line, file=sys.stderr))
    return method


def _train(one: Job) -> float:
    """Start a run, or go on with it where it was stopped; nothing is left to do for a complete one."""
    set_threads(one.config.train.threads)
    dataset = spirals(seed=one.config.seed)
    method = new_method(one.config, dataset, torch.device("cpu"))
    begun = checkpoint.steps_in(one.folder / "checkpoints")
    overwrite = one.folder.exists() and not begun  # killed before its first checkpoint
    run = Run.open(one.folder) if begun else Run.create(one.folder, one.config, DataFacts.of(dataset), overwrite)
    first = checkpoint.load_newest(run.checkpoints, method, print) if begun else 0
    run.cut_metrics(first)
    log, started = Log(run.folder), time.monotonic()
    try:
        train(run, one.config, dataset, method, log, first)
    finally:
        log.close()
    return time.monotonic() - started


def _check_folder(one: Job) -> None:
    """Refuse to draw a run of other options under this one's name."""
    if (one.folder / "config.yaml").exists() and Run.open(one.folder).config != one.config:
        raise InputError(f"{one.folder} was trained with other options: choose another --out, or remove it")


def _silence() -> None:
    """Progress lines of several runs at once would only hide each other; each run's log.txt and metrics.jsonl have them."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
