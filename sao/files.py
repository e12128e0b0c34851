"""Files and folders that appear whole or not at all: written beside their place, synced to disk, then renamed into it."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# The name of what a killed process left behind: .STEM.writing-PID.ENDING, and of a folder .NAME.writing-PID
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


@contextmanager
def written_folder(target: Path) -> Iterator[Path]:
    """An empty folder beside the target, which takes its place when the block ends well; only an empty one may be there."""
    temporary = target.with_name(f".{target.name}.writing-{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        sync_all(temporary)
        temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    sync(target.parent)


def write_text(target: Path, text: str, errors: str = "strict") -> None:
    """A reader sees the old text or the new one."""
    with written(target) as temporary:
        temporary.write_text(text, encoding="utf-8", errors=errors)


def sync_all(folder: Path) -> None:
    """Make the files of a folder, and their names, last through a power cut."""
    for path in (*folder.iterdir(), folder):
        sync(path)


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, last through a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
