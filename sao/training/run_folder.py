"""The folder of a run: what is where, who may write there, and how a new run takes the place of an old one.

A new run begins in the hidden folder .new, which appears by one rename. Before that the old run is untouched; after it the
old run is over, and whoever opens the folder next finishes what a kill left undone. So there is always one of the two.
"""

import json
import re
import shutil
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from sao import __version__
from sao import config as configuration
from sao.config import Config
from sao.errors import InputError, typed
from sao.runtime.files import (
    UNFINISHED,
    check_no_links,
    delete,
    make_folder,
    opened,
    read_json,
    read_text,
    sync,
    sync_all,
    walk,
    write_text,
    written,
)
from sao.training.data_facts import DataFacts, place_of, with_data_found

FORMAT = 3  # of a run folder; version 0.2 wrote 2
CONFIG, FACTS, SUMMARY = "config.yaml", "data.json", "summary.json"


@dataclass(frozen=True)
class Run:
    folder: Path

    @classmethod
    def create(
        cls, folder: Path, config: Config, facts: DataFacts, overwrite: bool = False, others: Mapping[str, str] | None = None
    ) -> "Run":
        """A new run, which begins with `others`, texts by file name, too. A kill leaves the old run or the new one."""
        run = cls(folder)
        check_free(folder, overwrite)  # also before the lock is written: a folder that is not free is left as it is
        with run.held(), _explained(folder):
            check_free(folder, overwrite)
            with new_run(folder) as writing:
                mark = {"sao": __version__, "format": FORMAT}
                write_text(writing / MARK, json.dumps(mark) + "\n", inside=folder)
                facts = replace(facts, place=place_of(config, folder))
                write_text(writing / FACTS, facts.as_text(), inside=folder)
                configuration.save(config, writing / CONFIG)
                for name, text in (others or {}).items():
                    write_text(writing / name, text, "backslashreplace", inside=folder)
            run.prepare(facts)
        return run

    def prepare(self, facts: DataFacts) -> None:
        """Write what is not there yet; what is there must be of the same data."""
        with _explained(self.folder):
            for part in (self.checkpoints, self.samples, self.evaluations):
                make_folder(part, self.folder)
            if not self._facts_file.exists():
                write_text(self._facts_file, replace(facts, place=place_of(self.config, self.folder)).as_text())
        self.check_same(facts)

    def check_same(self, facts: DataFacts) -> None:
        """Whether data is what the run began with; without data.json nobody can say."""
        changed = self.facts.difference(facts) if self._facts_file.exists() else None
        if changed is not None:
            raise InputError(
                f"the data has changed since {self.folder} began: {changed}; bring the old data back, "
                "say with --data where it is now, or start another run"
            )

    def change(self, config: Config) -> None:
        """Go on with other options, or with data that was moved."""
        with _explained(self.folder):
            write_text(self._facts_file, replace(self.facts, place=place_of(config, self.folder)).as_text())
            configuration.save(config, self.folder / CONFIG)

    @classmethod
    def open(cls, folder: Path) -> "Run":
        """Of a folder that may be a stranger's: one with a link in it is refused."""
        with _explained(folder, "read"):
            if folder.exists():
                check_no_links(folder)
            settle(folder)
            mark, configured = read_mark(folder), (folder / CONFIG).is_file()
        if mark is None or not configured:
            missing = MARK if configured else CONFIG
            raise InputError(f"{folder} is not a run: it has no {missing}; `{typed('train', '--out', folder)}` makes one")
        if mark["format"] > FORMAT:
            raise InputError(
                f"{folder} was written by sao {mark['sao']}, in a form that this version ({__version__}) does not know yet: "
                "install that version or a later one"
            )
        return cls(folder)

    @property
    def is_copy(self) -> bool:
        """Whether this is a folder of `sao ship`, with what a model is used by and nothing to train on."""
        return (read_mark(self.folder) or {}).get("copy") is True

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes from training here. The system lets go of the lock when this process ends, however it ends."""
        lock = run_lock(self.folder)
        with _explained(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                opened(self.folder / LOCK, "a").close()  # refuses a link, and says so better than the lock does
                lock.acquire(timeout=0)
            except Timeout:
                raise InputError(f"{self.folder} is in use: another process trains there; wait for it, or stop it") from None
        try:
            yield
        finally:
            lock.release()

    @property
    def config(self) -> Config:
        try:
            return configuration.load(self.folder / CONFIG)
        except InputError as error:
            mark = read_mark(self.folder)
            if mark is None or mark["sao"] == __version__:
                raise
            raise InputError(f"{error} (the run was written by sao {mark['sao']}, this is {__version__})") from None

    @property
    def facts(self) -> DataFacts:
        try:
            return DataFacts.from_text(read_text(self._facts_file))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
            raise InputError(f"{self._facts_file} cannot be read: {reason}") from None

    def with_data_found(self, config: Config) -> Config:
        """The configuration with the path at which the data is now."""
        return with_data_found(config, self.folder, None if self.known_facts is None else self.known_facts.place)

    @property
    def known_facts(self) -> DataFacts | None:
        """None before they were written."""
        return self.facts if self._facts_file.exists() else None

    @property
    def _facts_file(self) -> Path:
        return self.folder / FACTS

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def samples(self) -> Path:
        return self.folder / "samples"

    @property
    def evaluations(self) -> Path:
        return self.folder / "eval"

    @property
    def evaluated(self) -> bool:
        """Whether the table after the last step was made."""
        return (self.evaluations / SUMMARY).exists()

    @property
    def metrics(self) -> Path:
        return self.folder / "metrics.jsonl"

    def cut_metrics(self, step: int) -> None:
        """Forget rows after a checkpoint: the steps that follow it will be made, and logged, again."""
        if not self.metrics.exists():
            return
        kept = [line for line in self._lines() if _step_of(line) <= step]
        with _explained(self.folder):
            write_text(self.metrics, "".join(kept))

    def rows_after(self, step: int) -> list[dict[str, Any]]:
        """Those that `cut_metrics` forgets, without what a kill cut short."""
        if not self.metrics.exists():
            return []
        return [json.loads(line) for line in self._lines() if step < _step_of(line) < float("inf")]

    def _lines(self) -> list[str]:
        with _explained(self.folder, "read"):
            return read_text(self.metrics, errors="replace", most=None).splitlines(keepends=True)

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in read_text(self.metrics, most=None).splitlines()]

    def training_seconds(self) -> float:
        """All steps at the median time of one, without evaluations on the way and stops; 0 where nothing was logged."""
        rows = self.rows() if self.metrics.exists() else []
        logged = [(0, 0.0), *((row["step"], row["time/seconds"]) for row in rows if "time/seconds" in row)]
        times = [(step, spent) for step, spent in logged if isinstance(step, int) and isinstance(spent, int | float)]
        each = [(then - now) / (later - step) for (step, now), (later, then) in pairwise(times) if then > now]
        return times[-1][0] * statistics.median(each) if each else 0.0


def check_free(folder: Path, overwrite: bool = False) -> None:
    """Whether a run may be made in a folder: it is not there, empty, or to be replaced and holds nothing but a marked run."""
    with _explained(folder):
        if not folder.exists():
            return
        if not folder.is_dir():
            raise InputError(f"{folder} exists and is not a folder: choose another --out")
        settle(folder)
        names = {path.name for path in folder.iterdir()} - {LOCK, WRITING}
        marked, foreign = read_mark(folder) is not None, None
        if marked or not names:
            foreign = foreign_file(folder)
    if names and not marked:
        raise InputError(
            f"{folder} exists and is not a run: it does not carry sao's mark, {MARK}, so nothing in it is replaced; "
            "choose another --out"
        )
    if names and not overwrite:
        raise InputError(f"{folder} holds a run already: go on with `{typed('resume', folder)}`, or add --overwrite")
    if foreign is not None:
        raise InputError(f"{foreign} is not a file of the run, and is kept: move it elsewhere, or choose another --out")


@contextmanager
def _explained(folder: Path, what: str = "written") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"{folder} cannot be {what}: {error.strerror}; choose another folder") from None


def _step_of(line: str) -> float:
    """The step of a row; one that a kill cut short, or that is damaged, counts as never written."""
    try:
        step = json.loads(line)["step"] if line.endswith("\n") else None
    except (ValueError, KeyError, TypeError, RecursionError):
        step = None
    return step if isinstance(step, int | float) and step == step else float("inf")


MARK = "sao-run.json"  # only sao writes it: a folder without it is never replaced
LOCK, NEW, WRITING = "lock", ".new", ".new-writing"
PATIENCE_SECONDS = 10.0  # for another process that is just replacing the run

_STEP = r"step-\d{8,}"
_CHECKPOINT = rf"(checkpoints|steadiest)/({_STEP}|{UNFINISHED}|\.writing-\d{{8,}}-\d+)"  # some by earlier versions
_FIRST = r"sao-run\.json|config\.yaml|data\.json|skipped\.tsv|launch\.txt|labels\.csv"  # what a run begins with
_FILES = re.compile(
    rf"({re.escape(WRITING)}/)?({_FIRST})"
    r"|metrics\.jsonl|trackers\.json|log\.txt|lock|eval\.json|report\.html|estimator\.(json|safetensors)"
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
