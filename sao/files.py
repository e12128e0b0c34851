"""Files that appear whole or not at all: written beside their place, synced to disk, then renamed into it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# The name of what a killed process left behind: .STEM.writing-PID.ENDING
UNFINISHED = r"\.[^/]*\.writing-\d+(\.[^/]*)?"


@contextmanager
def written(target: Path) -> Iterator[Path]:
    """A temporary path beside the target, which takes its place when the block ends well."""
    temporary = target.with_name(f".{target.stem}.writing-{os.getpid()}{target.suffix}")
    try:
        yield temporary
        sync(temporary)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    sync(target.parent)


def write_text(target: Path, text: str, errors: str = "strict") -> None:
    """A reader sees the old text or the new one."""
    with written(target) as temporary:
        temporary.write_text(text, encoding="utf-8", errors=errors)


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, last through a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
