"""What commands write: files, checked before the work starts, and warnings."""

import os
import sys
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
