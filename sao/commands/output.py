"""What commands write: files, checked before the work starts, warnings, and how a training ended."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from sao.errors import InputError


def writable(target: Path) -> None:
    """Refuse a target that cannot be written before an hour of work goes into it."""
    if target.is_dir():
        raise InputError(f"{target} is a folder: give the name of a file")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{target.parent} cannot be made: {error.strerror}") from None
    if not os.access(target.parent, os.W_OK):
        raise InputError(f"{target.parent} cannot be written: choose another -o")


def warn(line: str) -> None:
    print(f"sao: warning: {line}", file=sys.stderr, flush=True)


def exit_code(training: Callable[[], None]) -> int:
    """Of a training, which has logged how it ended; what was an error is said here."""
    from sao import processes  # torch comes with it
    from sao.training.loop import Diverged, Interrupted
    from sao.training.trainer import RunGone

    try:
        training()
    except (Interrupted, KeyboardInterrupt):
        return 130
    except Diverged as error:
        processes.say_once(str(error))
        return processes.DIVERGED
    except RunGone as error:
        processes.say_once(str(error))
        return processes.LOST
    return 0
