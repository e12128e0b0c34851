"""sao reproduce: a table or a figure of the paper, from training to the file."""

import os
import shlex
import sys
from argparse import Namespace
from pathlib import Path

from sao.errors import InputError
from sao.machine import usable_cores

TARGETS = ("figure2", "table1", "table2", "table4")


def run(arguments: Namespace) -> int:
    if arguments.target not in TARGETS:
        raise InputError(f"there is no {arguments.target!r} to reproduce; there is: {', '.join(TARGETS)}")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError("sao reproduce starts processes of its own: leave torchrun out, and give --jobs")
    _check_taken(arguments)
    seeds, options = seeds_in(arguments.seeds), dict(arguments.options)
    if arguments.steps is not None:
        options["train.steps"] = str(_positive("--steps", arguments.steps))
    if arguments.jobs is not None:
        _positive("--jobs", arguments.jobs)
    from sao.engine.loop import Diverged, Interrupted

    try:
        if arguments.target == "figure2":
            _figure2(arguments, seeds, options)
        else:
            _table(arguments, seeds, options)
    except (Interrupted, KeyboardInterrupt):
        print("sao: stopped; the same command goes on from here", file=sys.stderr)
        return 130
    except Diverged as error:
        print(f"sao: {error}", file=sys.stderr)
        return 3
    except OSError as error:  # a disk that is full or gone
        raise InputError(f"{error}; what is done is kept, and the same command goes on") from None
    return 0


def _figure2(arguments: Namespace, seeds: list[int], options: dict[str, str]) -> None:
    from sao.reproduce.figure2.study import reproduce

    out = Path(arguments.out or "runs/figure2")
    reproduce(out, seeds, arguments.controls, options, _command(), arguments.jobs or usable_cores())


def _table(arguments: Namespace, seeds: list[int], options: dict[str, str]) -> None:
    from sao.reproduce.tables.cells import add_finished_cells, cells_of, check_options, chosen_data, chosen_rows
    from sao.reproduce.tables.table1 import table1
    from sao.reproduce.tables.table2 import table2
    from sao.reproduce.tables.table4 import table4

    scale = arguments.scale or "cpu"
    table = {"table1": table1, "table2": table2, "table4": table4}[arguments.target](scale)
    out = Path(arguments.out or f"runs/{table.name}-{scale}")
    rows, data = chosen_rows(table, _words("--rows", arguments.rows)), chosen_data(table, _words("--data", arguments.data))
    check_options(table, rows, options)
    cells = cells_of(table, rows, data, seeds, options, out / "runs")
    processes = arguments.jobs or _at_a_time(scale)
    if arguments.dry_run:
        from sao.reproduce.tables.price import price_study

        price_study(cells, processes)
        return
    from sao.reproduce.tables.study import reproduce

    shown = add_finished_cells(table, cells, options, out / "runs")
    reproduce(table, cells, shown, out, _command(), processes)


def _check_taken(arguments: Namespace) -> None:
    """A flag of one target is not silently without effect on another."""
    figure = arguments.target == "figure2"
    flags = ("scale", "data", "rows", "dry_run") if figure else ("controls",)
    for flag in flags:
        if getattr(arguments, flag) not in (None, False):
            raise InputError(f"sao reproduce {arguments.target} does not take --{flag.replace('_', '-')}")


def _at_a_time(scale: str) -> int:
    """Runs: one for each GPU. Without one, narrow networks have a core each, and the paper's have all cores to themselves."""
    import torch

    return torch.cuda.device_count() or (usable_cores() if scale == "cpu" else 1)


def _command() -> str:
    return shlex.join(["sao", *sys.argv[1:]])


def _words(flag: str, text: str | None) -> list[str] | None:
    words = None if text is None else [word.strip() for word in text.split(",") if word.strip()]
    if words == []:
        raise InputError(f"{flag} is empty: give names with commas between them, or leave it out")
    return words


def seeds_in(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words):
        raise InputError(f"--seeds takes whole numbers with commas between them, for example 0,1,2; got {text!r}")
    return list(dict.fromkeys(int(word) for word in words))


def _positive(flag: str, value: int) -> int:
    if value < 1:
        raise InputError(f"{flag} must be at least 1, got {value}")
    return value
