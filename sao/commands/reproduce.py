"""sao reproduce: a table or a figure of the paper, from training to the file."""

import os
import shlex
import sys
from argparse import Namespace
from pathlib import Path

from sao.errors import InputError

TARGETS = ("figure2",)


def run(arguments: Namespace) -> int:
    match arguments.target:
        case "figure2":
            return _figure2(arguments)
        case other:
            raise InputError(f"there is no {other!r} to reproduce; there is: {', '.join(TARGETS)}")


def _figure2(arguments: Namespace) -> int:
    seeds = _seeds(arguments.seeds)
    options = dict(arguments.options)
    if arguments.steps is not None:
        options["train.steps"] = str(_positive("--steps", arguments.steps))
    processes = _positive("--jobs", arguments.jobs) if arguments.jobs is not None else os.cpu_count() or 1
    if "seed" in options:
        raise InputError("sao reproduce takes --seeds 0,1,2 instead of --seed")
    from sao.engine.loop import Diverged, Interrupted
    from sao.reproduce.figure2.study import reproduce

    command = shlex.join(["sao", *sys.argv[1:]])
    try:
        reproduce(Path(arguments.out or "runs/figure2"), seeds, arguments.controls, options, command, processes)
    except Interrupted:
        print("sao: stopped; the same command goes on from here", file=sys.stderr)
        return 130
    except Diverged as error:
        print(f"sao: {error}", file=sys.stderr)
        return 3
    return 0


def _seeds(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words):
        raise InputError(f"--seeds takes whole numbers with commas between them, for example 0,1,2; got {text!r}")
    return list(dict.fromkeys(int(word) for word in words))


def _positive(flag: str, value: int) -> int:
    if value < 1:
        raise InputError(f"{flag} must be at least 1, got {value}")
    return value
