"""sao train: data → run folder → loop → a table that says whether it was worth it."""

from argparse import ArgumentParser, Namespace
from collections.abc import Set
from pathlib import Path
from typing import TYPE_CHECKING

from sao.cli.flags import PRESET, add_labels
from sao.cli.output import exit_code
from sao.config.presets import preset_names
from sao.errors import InputError, typed

if TYPE_CHECKING:  # torch comes with it
    from sao.config import Config


def add_options(parser: ArgumentParser) -> None:
    add_what_is_trained(parser)
    parser.add_argument("--out", help="folder of the run (default: runs/PRESET)")
    parser.add_argument("--overwrite", action="store_true", help="replace a run that is there")
    parser.add_argument("--minutes", type=float, help="as many steps as fit into so many minutes (with --auto)")
    parser.add_argument("--why", action="store_true", help="print what was found in the data, and the reason of each choice")
    parser.add_argument("--dry-run", action="store_true", help="make two steps and price the whole run on this machine")


def add_what_is_trained(parser: ArgumentParser) -> None:
    parser.set_defaults(takes_options=True)
    parser.add_argument("preset", nargs="?", default=None, help=PRESET)
    parser.add_argument(
        "--data",
        dest="source",
        help="a folder or archive of images, .txt of paths, .npy, .npz, .csv, .parquet, .arrow, or a data set's name",
    )
    parser.add_argument("--auto", action="store_true", help="choose networks and batch for the data (the default with --data)")
    parser.add_argument(
        "--start-from",
        metavar="NAME|RUN",
        help="begin with the weights of a run, or of a model that comes with sao (with --data photographs take photos32; "
        "none: fresh ones)",
    )
    add_labels(parser)


def run(arguments: Namespace) -> int:
    preset, options = preset_of(arguments), typed_options(arguments)
    from sao.config import load_preset

    config = load_preset(preset, options)
    from sao.core import distributed
    from sao.runtime import launch as processes  # torch, which takes seconds, only once the arguments are known to be good

    with processes.joined(config.train.device, config.train.timeout_seconds):
        from sao.training.trainer import start

        config, automatic = planned(arguments, config, arguments.options.keys())
        minutes = arguments.minutes
        if minutes is not None and automatic is None:
            raise InputError("--minutes is for options that are chosen for the data: add --auto, or give --train.steps")
        if arguments.dry_run:
            if distributed.world_size() > 1:
                raise InputError("--dry-run prices one process: leave torchrun out")
            from sao.cli.pricing import price_run

            return exit_code(lambda: price_run(config, automatic, minutes))
        out = Path(f"runs/{run_name(arguments)}" if arguments.out is None else arguments.out)
        return exit_code(lambda: start(config, out, arguments.overwrite, automatic, why=arguments.why, minutes=minutes))


def planned(arguments: Namespace, config: "Config", given: Set[str]) -> "tuple[Config, Set[str] | None]":
    """With the networks of another run; and the options that stay, where the rest is chosen for the data."""
    from sao.training.warm_start import with_source_networks

    given = given | ({"train.start_from"} if arguments.start_from is not None else set())
    chosen = {"method"} if arguments.preset is not None else set()  # a preset by name is one of a method
    config, taken = with_source_networks(config, given | chosen)
    automatic = arguments.auto or (arguments.source is not None and arguments.preset is None)
    return config, given | taken if automatic else None


def typed_options(arguments: Namespace) -> dict[str, str]:
    """Those of the configuration, flags included."""
    flags = {"data.source": arguments.source, "train.start_from": arguments.start_from, "data.label_file": arguments.labels}
    if arguments.start_from == "":
        raise InputError("--start-from is empty: name a run folder, or a model that comes with sao")
    if arguments.out == "":
        raise InputError("--out is empty: name a folder for the run")
    return arguments.options | {key: value for key, value in flags.items() if value is not None}


def preset_of(arguments: Namespace) -> str:
    preset = arguments.preset
    if preset is None:
        return "digits" if arguments.source is None else "own"
    if not preset.endswith((".yaml", ".yml")) and preset not in preset_names() and Path(preset).exists():
        raise InputError(f"{preset} is a path, not a preset: {typed('train', '--data', preset)}")
    return preset


def run_name(arguments: Namespace) -> str:
    if arguments.preset is not None:
        return Path(arguments.preset).stem
    return "digits" if arguments.source is None else Path(arguments.source).resolve().stem or "own"
