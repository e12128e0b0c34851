"""sao resume: go on from the latest whole checkpoint, with other options where some are given."""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sao.cli.output import exit_code
from sao.errors import InputError
from sao.models import run_folder

if TYPE_CHECKING:  # torch comes with it
    from sao.config import Config

# What a run is; a network of another size does not fit its checkpoint anyway.
FIXED = ("seed", "method", "train.start_from", "train.start_weights")


def add_options(parser: ArgumentParser) -> None:
    parser.set_defaults(takes_options=True)
    parser.add_argument("run", metavar="RUN", help="folder of a trained run")
    parser.add_argument("--data", dest="source", help="where the data of the run is now, if it was moved")


def run(arguments: Namespace) -> int:
    from sao.training.run_folder import Run

    run = Run.open(run_folder(arguments.run))
    if run.is_copy:
        raise InputError(f"{arguments.run} holds nothing to train on: `sao train` begins a run of your own")
    config = changed_config(run.config, arguments.options)
    from sao.runtime import launch as processes

    with processes.joined(config.train.device, config.train.timeout_seconds):
        from sao.config import outside
        from sao.training.trainer import resume

        source = None if arguments.source is None else outside.named(outside.SOURCE, arguments.source)
        return exit_code(lambda: resume(run.folder, source, config))


def changed_config(config: "Config", options: Mapping[str, str]) -> "Config":
    from sao.config import build
    from sao.config.overrides import current_name

    for key in options:
        name = current_name(key).removesuffix(".name")
        if name.startswith("data."):
            raise InputError(f"--{key} cannot be changed when a run goes on; data that was moved is --data PATH")
        if name in FIXED:
            raise InputError(f"--{key} cannot be changed when a run goes on: start another one")
    return build(config.model_dump(mode="json"), options)
