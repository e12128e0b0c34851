"""sao train: data → run folder → loop → a table that says whether it was worth it."""

from argparse import Namespace
from pathlib import Path

from sao import config as configuration
from sao.config import Config
from sao.errors import InputError


def run(arguments: Namespace) -> int:
    config = _config(arguments)
    from sao import distributed  # torch, which takes seconds, only once the arguments are known to be good

    with distributed.processes(config.train.device):
        from sao.commands.training import price, start

        out = Path(arguments.out or f"runs/{_name(arguments)}")
        if arguments.dry_run:
            return price(config)
        automatic = arguments.auto or (arguments.source is not None and arguments.preset is None)
        return start(config, out, arguments.overwrite, arguments.options if automatic else None)


def _config(arguments: Namespace) -> Config:
    options = dict(arguments.options)
    for flag, key, value in (
        (arguments.source, "data.source", arguments.source),
        (arguments.keep, "log.keep", arguments.keep),
        (arguments.no_labels, "data.labels", "false"),
        (arguments.strict, "data.strict", "true"),
    ):
        if flag:
            options[key] = value
    if arguments.preset is not None and not arguments.preset.endswith(".yaml") and Path(arguments.preset).exists():
        names = configuration.preset_names()
        if arguments.preset not in names:
            raise InputError(f"{arguments.preset} is a path, not a preset: sao train --data {arguments.preset}")
    return configuration.load_preset(arguments.preset or ("own" if arguments.source else "digits"), options)


def _name(arguments: Namespace) -> str:
    if arguments.preset is not None:
        return Path(arguments.preset).stem
    return "digits" if arguments.source is None else Path(arguments.source).stem or "own"
