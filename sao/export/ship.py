"""A run as a small folder for others: EMA weights only, no path of this machine, and a card that says what it is."""

import json
import os
from pathlib import Path

from sao import __version__
from sao import config as configuration
from sao.config import Config, Data, Train
from sao.data.named import NAMES
from sao.errors import InputError
from sao.methods import Use
from sao.runtime.files import write_text
from sao.training import checkpoint
from sao.training.partial_method import PartialMethod
from sao.training.run_folder import CONFIG, FACTS, FORMAT, MARK, DataFacts

CARD = "README.md"


def shared_config(config: Config, name: str) -> Config:
    """Without what is true of one machine only: where data lies, threads, device."""
    source = config.data.source if config.data.source in NAMES else name
    data = config.data.model_copy(update={"source": source, "folder": Data().folder, "label_file": None})
    begun = config.train.start_from
    begun = Path(begun).name if os.path.isabs(begun) else begun
    train = config.train.model_copy(update={"threads": Train().threads, "device": Train().device, "start_from": begun})
    return config.model_copy(update={"data": data, "train": train})


def check_no_paths(config: Config) -> None:
    """A method that learnt from another run knows where that was."""
    for key, value in config.by_name().items():
        if isinstance(value, str) and os.path.isabs(value):
            raise InputError(f"the run's option {key} is a path of this machine, {value}: such a run cannot be given away")


def write_copy(
    folder: Path, partial: PartialMethod, config: Config, facts: DataFacts, step: int, half: bool, card: str
) -> list[Use]:
    """A folder that `sao.load` opens; returns what it can be used for."""
    uses: list[Use] = ["backbone", "embedding"]
    if partial.outline is not None and partial.outline.has_layers:
        uses.append("layers")
    if config.method.generates:
        uses.append("decode")
    kept: dict[Use, set[str]] = {use: needed for use in uses if (needed := partial.names_for(use)) is not None}
    if "backbone" not in kept:
        raise InputError(f"a {config.method.name} run needs more than its checkpoint holds, so it cannot be shipped")
    names = sorted(set().union(*kept.values()))
    write_text(folder / MARK, json.dumps({"sao": __version__, "format": FORMAT, "copy": True}) + "\n")
    write_text(folder / FACTS, facts.as_text())
    configuration.save(config, folder / CONFIG)
    write_text(folder / CARD, card)
    checkpoint.save_some(folder / "checkpoints", checkpoint.some_tensors(partial.path, names), step, list(kept), half)
    return list(kept)
