"""What commands write: files and folders, checked before the work starts, warnings, and how a training ended."""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from sao.errors import InputError, printable


def shown_channels(given: str | None) -> tuple[int, ...] | None:
    """Numbers from 1, as they are typed, as places from 0."""
    if given is None:
        return None
    words = [word.strip() for word in given.split(",")]
    if len(words) not in (1, 3) or not all(word.isdecimal() and int(word) > 0 for word in words):
        raise InputError(f"--channels is {given!r}: give three numbers from 1 on, such as 3,2,1, or one for grey")
    return tuple(int(word) - 1 for word in words)


def check_shown(channels: tuple[int, ...] | None, there: int, where: str) -> None:
    if channels is not None and max(channels) >= there:
        raise InputError(f"--channels names channel {max(channels) + 1}, and {where} has {there}: give smaller numbers")


def writable(target: Path, overwrite: bool = True) -> None:
    """Refuse a file that cannot be written, or is there and must stay, before an hour of work goes into it. Nothing is made."""
    if target.is_dir():
        raise InputError(f"{target} is a folder: give the name of a file")
    if not overwrite and os.path.lexists(target):
        raise InputError(f"{target} exists already: choose another -o, or add --overwrite")
    _check_parent(target)


def writable_folder(target: Path, overwrite: bool, own: str) -> None:
    """The same of a folder, which may be there if it is empty, or to be replaced if all names in it match `own`."""
    if target.exists() and not target.is_dir():
        raise InputError(f"{target} exists and is not a folder: choose another -o")
    names = sorted(os.listdir(target)) if target.is_dir() else []
    if names and not overwrite:
        raise InputError(f"{target} exists and is not an empty folder: choose another -o, or add --overwrite")
    foreign = next((name for name in names if not re.fullmatch(own, name) or not (target / name).is_file()), None)
    if foreign is not None:
        raise InputError(f"{target / foreign} is not what this command writes, and is kept: choose another -o")
    _check_parent(target)


def _check_parent(target: Path) -> None:
    try:
        there = next(folder for folder in target.absolute().parents if os.path.lexists(folder))
        if not there.is_dir():
            raise InputError(f"{target.parent} cannot be made: {there} is not a folder")
    except OSError as error:
        raise InputError(f"{target.parent} cannot be made: {error.strerror}") from None
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"{there} cannot be written: choose another -o")


def warn(line: str) -> None:
    print(f"sao: warning: {printable(line)}", file=sys.stderr, flush=True)


def exit_code(training: Callable[[], None]) -> int:
    """Of a training, which has logged how it ended; what was an error is said here."""
    from sao.runtime import launch as processes  # torch comes with it
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
