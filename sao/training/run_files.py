"""Which files in a folder are a run's own, and how a new run takes the place of an old one.

A new run begins in the hidden folder .new, which appears by one rename. Before that the old run is untouched; after it the
old run is over, and whoever opens the folder next finishes what a kill left undone. So there is always one of the two.
"""

import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from sao.errors import InputError
from sao.runtime.files import UNFINISHED, check_no_links, delete, opened, read_json, sync, sync_all, walk, written

MARK = "sao-run.json"  # only sao writes it: a folder without it is never replaced
LOCK, NEW, WRITING = "lock", ".new", ".new-writing"
PATIENCE_SECONDS = 10.0  # for another process that is just replacing the run

_STEP = r"step-\d{8,}"
_CHECKPOINT = rf"(checkpoints|steadiest)/({_STEP}|{UNFINISHED}|\.writing-\d{{8,}}-\d+)"  # some by earlier versions
_FIRST = r"sao-run\.json|config\.yaml|data\.json|skipped\.tsv|launch\.txt|labels\.csv"  # what a run begins with
_FILES = re.compile(
    rf"({re.escape(WRITING)}/)?({_FIRST})"
    r"|metrics\.jsonl|log\.txt|lock|eval\.json|report\.html|estimator\.(json|safetensors)"
    rf"|{_CHECKPOINT}/[a-z]+\.(safetensors|json)"
    rf"|samples/{_STEP}\.png"
    rf"|eval/{_STEP}-clusters\.npy"
    rf"|eval/(summary|verdict|{_STEP}-[a-z]+-[a-z]+(-on-[A-Za-z0-9._]+)?)\.json"
    r"|tensorboard/events\.out\.tfevents\.[^/]*"
    rf"|((samples|eval|{re.escape(WRITING)})/)?{UNFINISHED}"
)
_FOLDERS = re.compile(rf"checkpoints|steadiest|{_CHECKPOINT}|samples|eval|tensorboard|{re.escape(WRITING)}")


def read_mark(folder: Path, inside: Path | None = None) -> dict | None:
    """What sao wrote into its mark, {"sao": version, "format": number}; None where there is no mark or no whole one."""
    try:
        mark = read_json(folder / MARK, inside)
    except (OSError, ValueError):
        return None
    whole = isinstance(mark, dict) and isinstance(mark.get("sao"), str) and type(mark.get("format")) is int
    return mark if whole else None


def foreign_file(folder: Path) -> Path | None:
    """The first thing in a folder that a run does not write there. A link is foreign: it may lead to anyone's files."""
    return next((path for path in walk(folder) if not _is_own(path, folder)), None)


@contextmanager
def new_run(folder: Path) -> Iterator[Path]:
    """A hidden folder for the first files of a run, which replace those of the old run when the block ends well."""
    writing = folder / WRITING
    with suppress(FileNotFoundError):
        delete(writing)
    writing.mkdir()
    try:
        yield writing
        sync_all(writing)
        writing.rename(folder / NEW)
        sync(folder)
    except BaseException:
        shutil.rmtree(writing, ignore_errors=True)
        raise
    _take_place(folder)


def settle(folder: Path) -> None:
    """Finish a replacement that a kill cut short."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while read_mark(folder / NEW, inside=folder) is not None:
        try:
            with run_lock(folder).acquire(timeout=0.1):
                _take_place(folder)
        except Timeout:
            if time.monotonic() > deadline:
                raise InputError(f"{folder} is in use: another process begins a run there; wait for it, or stop it") from None


def run_lock(folder: Path) -> FileLock:
    """One for each folder and process, so that what holds it can call what asks for it again."""
    return FileLock(folder / LOCK, is_singleton=True)


def _take_place(folder: Path) -> None:
    """Remove the old run and put the new one's first files there. Done twice, it does no harm: they are copied, not moved."""
    new = folder / NEW
    if read_mark(new, inside=folder) is None:
        return
    check_no_links(new)
    for path in sorted(walk(folder), reverse=True):  # what is inside a folder before the folder
        if path == folder / LOCK or not _is_own(path, folder):
            continue
        if path.is_dir():
            with suppress(OSError):  # someone's file came into it meanwhile
                path.rmdir()
        else:
            delete(path, inside=folder)
    for path in new.iterdir():
        with opened(path, inside=folder) as first, written(folder / path.name) as temporary, temporary.open("wb") as copy:
            shutil.copyfileobj(first, copy)
    new.rename(folder / WRITING)
    delete(folder / WRITING)


def _is_own(path: Path, folder: Path) -> bool:
    names = _FOLDERS if path.is_dir() else _FILES
    return not path.is_symlink() and names.fullmatch(path.relative_to(folder).as_posix()) is not None
