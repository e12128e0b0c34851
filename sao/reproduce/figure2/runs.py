"""The runs behind the figure: the method and its controls, each an ordinary run folder that `sao resume` understands."""

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from sao.config import Config, load_preset
from sao.data.named import spirals
from sao.errors import InputError
from sao.methods.adversarial import Adversarial
from sao.reproduce.pool import run_each
from sao.reproduce.runs import check_folder
from sao.training import checkpoint
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
