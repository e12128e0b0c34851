"""The folder of a run: what is where, and who may write there."""

import json
import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from filelock import Timeout

from sao import __version__
from sao import config as configuration
from sao.config import Config
from sao.errors import InputError, typed
from sao.runtime.files import check_no_links, make_folder, opened, read_text, write_text
from sao.training.data_facts import DataFacts
from sao.training.data_place import place_of, with_data_found
from sao.training.run_files import LOCK, MARK, WRITING, foreign_file, new_run, read_mark, run_lock, settle

FORMAT = 3  # of a run folder; version 0.2 wrote 2, version 0.1 no number
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
            # Version 0.1 made no mark; a config.yaml alone may be anyone's.
            begun = mark is not None or any((folder / name).exists() for name in (FACTS, "metrics.jsonl", "checkpoints"))
        if not (begun and configured):
            missing = MARK if configured else CONFIG
            raise InputError(f"{folder} is not a run: it has no {missing}; `{typed('train', '--out', folder)}` makes one")
        if mark is not None and mark["format"] > FORMAT:
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
        return with_data_found(config, self.folder, self.facts.place if self._facts_file.exists() else None)

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
        with _explained(self.folder, "read"):
            lines = read_text(self.metrics, errors="replace", most=None).splitlines(keepends=True)
        kept = [line for line in lines if _step_of(line) <= step]
        with _explained(self.folder):
            write_text(self.metrics, "".join(kept))

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in read_text(self.metrics, most=None).splitlines()]

    def training_seconds(self) -> float:
        """All steps at the median time of one: evaluations on the way, and stops, where the clock begins anew, do not count.

        0 where nothing was logged: a copy comes without its metrics.
        """
        rows = self.rows() if self.metrics.exists() else []
        times = [(0, 0.0), *((row["step"], row["time/seconds"]) for row in rows if "time/seconds" in row)]
        each = [(then - now) / (later - step) for (step, now), (later, then) in pairwise(times) if then > now]
        return times[-1][0] * statistics.median(each) if each else 0.0


def check_free(folder: Path, overwrite: bool = False) -> None:
    """Whether a run may be made in a folder: one that is not there, is empty, or holds a run that may be replaced.

    A run is replaced only if it carries sao's mark and holds nothing but what sao writes: other files are someone's work.
    """
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
        old = f"; if it is a run that lost its mark, `{typed('resume', folder)}` goes on with it" if CONFIG in names else ""
        raise InputError(
            f"{folder} exists and is not a run: it does not carry sao's mark, {MARK}, so nothing in it is replaced; "
            f"choose another --out{old}"
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
