"""sao train: data → run folder → loop → a table that says whether it was worth it."""

from argparse import Namespace
from collections.abc import Set
from pathlib import Path

from sao import config as configuration
from sao.cli.output import exit_code
from sao.config import Config
from sao.config.presets import preset_names
from sao.errors import InputError, typed


def run(arguments: Namespace) -> int:
    config = configuration.load_preset(preset_of(arguments), typed_options(arguments))
    from sao.core import distributed
    from sao.runtime import launch as processes  # torch, which takes seconds, only once the arguments are known to be good

    with processes.joined(config.train.device, config.train.timeout_seconds):
        from sao.training.trainer import start

        config, automatic = planned(arguments, config, arguments.options.keys())
        if arguments.dry_run:
            if distributed.world_size() > 1:
                raise InputError("--dry-run prices one process: leave torchrun out")
            from sao.cli.pricing import price_run

            return exit_code(lambda: price_run(config, automatic))
        out = Path(f"runs/{run_name(arguments)}" if arguments.out is None else arguments.out)
        return exit_code(lambda: start(config, out, arguments.overwrite, automatic, why=arguments.why))


def planned(arguments: Namespace, config: Config, typed: Set[str]) -> tuple[Config, Set[str] | None]:
    """With the networks of another run; and the options that stay, where the rest is chosen for the data."""
    from sao.training.warm_start import with_source_networks

    chosen = {"method"} if arguments.preset is not None else set()  # a preset by name is one of a method
    config, taken = with_source_networks(config, typed | chosen)
    automatic = arguments.auto or (arguments.source is not None and arguments.preset is None)
    return config, typed | taken if automatic else None


def typed_options(arguments: Namespace) -> dict[str, str]:
    """Those of the configuration, flags included."""
    options = dict(arguments.options)
    for given, key, value in (
        (arguments.source is not None, "data.source", arguments.source),
        (arguments.start_from is not None, "train.start_from", arguments.start_from),
        (arguments.keep is not None, "log.keep", arguments.keep),
        (arguments.labels is not None, "data.label_file", arguments.labels),
        (arguments.no_labels, "data.labels", "false"),
        (arguments.strict, "data.strict", "true"),
    ):
        if given:
            options[key] = value
    if arguments.labels is not None and arguments.no_labels:
        raise InputError("--labels and --no-labels contradict each other: give one of them")
    if arguments.start_from == "":
        raise InputError("--start-from is empty: name a run folder, or a model that comes with sao")
    if arguments.out == "":
        raise InputError("--out is empty: name a folder for the run")
    return options


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
