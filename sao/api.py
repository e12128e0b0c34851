"""The public interface: train a model, load one, use it."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import nn

from sao.config import load_preset
from sao.config.outside import register
from sao.config.schema import flat
from sao.data.files.objects import IN_MEMORY, readable
from sao.errors import InputError
from sao.methods import ENCODERS, METHODS, AnyEncoderOptions, MethodOptions
from sao.training.log import OnLog
from sao.training.loop import Interrupted
from sao.training.model import Model, load
from sao.training.trainer import start
from sao.training.warm_start import with_source_networks

__all__ = ["Model", "load", "register", "train"]


def train(
    data: Any,
    out: str | os.PathLike[str] = "runs/python",
    *,
    labels: Any = None,
    steps: int | None = None,
    minutes: float | None = None,
    options: dict[str, Any] | None = None,
    method: str | MethodOptions | None = None,
    encoder: str | AnyEncoderOptions | None = None,
    start_from: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    on_log: OnLog | None = None,
) -> Model:
    """Learn from data, write a run folder as `sao train` does, and return the model.

    `data` is a path, the name of a data set, an array, a tensor, a list of pictures or of paths, a data set of torch,
    torchvision or Hugging Face, or a table of pandas. `labels` are for evaluation only: one for each sample, or of a path the
    file that `--labels` takes, a table of name,label. `options` are those of the configuration by their dotted names, for
    example {"train.batch": 64}; the rest is chosen to fit the data, and the number of steps to fit the `minutes`, if given.
    `method` and `encoder` are names, or options of a class of your own; those options are then not chosen for the data.
    `start_from` is a run folder, or the name of a model that comes with sao, whose weights and networks this run begins with.
    `on_log` is called with each row of metrics.jsonl, a dict of the step and the metrics by their names there. An exception in
    it stops the run as Ctrl-C does, with a checkpoint, and then reaches the caller. KeyboardInterrupt ends the training early.
    """
    named = isinstance(data, str | os.PathLike)
    if named and not isinstance(labels, str | os.PathLike | None):
        raise InputError("labels of a path are a table of name,label: give the path of a CSV file, or load the data first")
    by_hand = {key: _text(value) for key, value in (options or {}).items()}
    by_hand |= _chosen("method", method) | _chosen("encoder", encoder)
    by_hand["data.source"] = os.fspath(data) if named else IN_MEMORY
    if named and labels is not None:
        by_hand["data.label_file"] = os.fspath(labels)
    if steps is not None:
        by_hand["train.steps"] = str(steps)
    if start_from is not None:
        by_hand["train.start_from"] = os.fspath(start_from)
    config, taken = with_source_networks(load_preset("own", by_hand), by_hand.keys())
    with suppress(Interrupted, KeyboardInterrupt):  # what was learnt is kept
        given, inputs = by_hand.keys() | taken, None if named else readable(data, labels)
        start(config, Path(out), overwrite, given, inputs, on_log=on_log, minutes=minutes)
    return load(Path(out))


def _chosen(kind: str, chosen: str | MethodOptions | AnyEncoderOptions | None) -> dict[str, str]:
    """A method or an encoder as a person would type it: its name, and the options that were given."""
    if chosen is None or isinstance(chosen, str):
        return {} if chosen is None else {kind: chosen}
    if not isinstance(chosen, MethodOptions if kind == "method" else AnyEncoderOptions):
        again = ": a run builds its networks again, so give options that do" if isinstance(chosen, nn.Module) else ""
        raise InputError(f"{kind} must be a name, or options such as mine.Options(), got {type(chosen).__name__}{again}")
    if type(chosen) not in (METHODS | ENCODERS).values():
        register(type(chosen))
    given = flat(chosen.model_dump(mode="json", exclude_unset=True, exclude={"name"}), f"{kind}.")
    return {kind: chosen.name} | {key: _text(value) for key, value in given}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
