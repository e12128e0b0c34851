"""The runs of a study: ordinary run folders, each begun, or gone on with where it was stopped."""

from pathlib import Path

from sao.config import Config
from sao.data.dataset import Dataset
from sao.engine import checkpoint
from sao.engine.device import choose_device, set_threads
from sao.engine.log import Log
from sao.engine.loop import new_method, train
from sao.engine.run import DataFacts, Run
from sao.errors import InputError
from sao.methods import Method
from sao.other_runs import begin


def train_run(folder: Path, config: Config, dataset: Dataset) -> Method:
    """The method at the end of its run; nothing is left to do for a complete one."""
    set_threads(config.train.threads)
    method = new_method(config, dataset, choose_device(config.train.device))
    with Run(folder).held():
        begun = checkpoint.steps_in(folder / "checkpoints")
        if not begun:  # or killed before its first checkpoint: it starts anew
            begin(method)
        run = Run.open(folder) if begun else Run.create(folder, config, DataFacts.of(dataset), overwrite=True)
        first = checkpoint.load_newest(run.checkpoints, method, print) if begun else 0
        run.cut_metrics(first)
        log = Log(run.folder)
        try:
            train(run, config, dataset, method, log, first)
        finally:
            log.close()
    return method


def check_folder(folder: Path, config: Config) -> None:
    """Refuse to take a run that learnt something else for this one."""
    if (folder / "config.yaml").exists() and not Run(folder).config.learns_as(config):
        raise InputError(f"{folder} was trained with other options: choose another --out, or remove it")


def check_out(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror}; choose another --out") from None
