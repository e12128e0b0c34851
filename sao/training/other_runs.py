"""What a run takes of another: what was trained there when its options are read, and the networks before its first step.

The other run is only read. After the first step it is not needed any more.
"""

import os
from pathlib import Path

from sao.config import Config
from sao.methods import Method, OtherRun
from sao.training.model import load
from sao.training.run_folder import Run
from sao.training.warm_start import Begun, take_weights


def with_other_runs(config: Config) -> Config:
    """The configuration with what is in the runs that it names."""
    return config.model_copy(update={"method": config.method.with_runs(_described)})


def begin(method: Method, config: Config, shape: tuple[int, ...]) -> Begun:
    """Before the first step of a run on samples of a shape."""
    method.begin(_learner_of)
    return take_weights(method, config, shape)


def _described(folder: str) -> OtherRun:
    config = Run.open(Path(folder)).config
    return OtherRun(os.path.abspath(folder), config.method, config.encoder, config.seed)


def _learner_of(folder: str) -> tuple[Method, int]:
    model = load(folder, device="cpu")
    return model.method, model.step
