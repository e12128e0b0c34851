"""The folder of a run: what is where, and who may write there."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from sao import config as configuration
from sao.config import Config
from sao.errors import InputError

if TYPE_CHECKING:  # torch comes with it, and a folder that is no run is refused without waiting for torch
    from sao.data.samples import Dataset

_UNFINISHED, _LOCK = "config.yaml.writing", "lock"


@dataclass(frozen=True)
class DataFacts:
    """What a trained model must remember of its data to be built and used without it."""

    name: str
    shape: tuple[int, ...]
    samples: int
    classes: int | None = None
    standardiser: dict[str, Any] | None = None  # the transform of vectors, see sao.data.tables

    @classmethod
    def of(cls, dataset: "Dataset", standardiser: dict[str, Any] | None = None) -> "DataFacts":
        return cls(dataset.name, dataset.train.shape, len(dataset.train), dataset.classes, standardiser)


@dataclass(frozen=True)
class Run:
    folder: Path

    @classmethod
    def create(cls, folder: Path, config: Config, facts: DataFacts, overwrite: bool = False) -> "Run":
        """A new run, which can be resumed as soon as config.yaml is there."""
        check_free(folder, overwrite)
        run = cls(folder)
        with _writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            _clear(folder)
            configuration.save(config, folder / _UNFINISHED)
            (folder / _UNFINISHED).replace(folder / "config.yaml")
        run.prepare(facts)
        return run

    def prepare(self, facts: DataFacts) -> None:
        """Write what is not there yet; what is there must be of the same data."""
        with _writing(self.folder):
            for part in (self.checkpoints, self.samples, self.evaluations):
                part.mkdir(exist_ok=True)
            if not self._facts_file.exists():
                temporary = self._facts_file.with_suffix(".writing")
                temporary.write_text(json.dumps(asdict(facts), indent=1))
                temporary.replace(self._facts_file)
        before = self.facts
        if (before.shape, before.samples, before.classes) != (tuple(facts.shape), facts.samples, facts.classes):
            raise InputError(
                f"the data has changed since {self.folder} began: {before.samples} samples of {before.shape} then, "
                f"{facts.samples} of {tuple(facts.shape)} now; bring the old data back or start another run"
            )

    @classmethod
    def open(cls, folder: Path) -> "Run":
        if not (folder / "config.yaml").is_file():
            raise InputError(f"{folder} is not a run: it has no config.yaml; `sao train --out {folder}` makes one")
        return cls(folder)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes from training here. The system lets go of the lock when this process ends, however it ends."""
        lock = FileLock(self.folder / _LOCK)
        with _writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                raise InputError(f"{self.folder} is in use: another process trains there; wait for it, or stop it") from None
        try:
            yield
        finally:
            lock.release()

    @property
    def config(self) -> Config:
        return configuration.load(self.folder / "config.yaml")

    @property
    def facts(self) -> DataFacts:
        try:
            values = json.loads(self._facts_file.read_text())
            return DataFacts(**{**values, "shape": tuple(values["shape"])})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InputError(f"{self._facts_file} cannot be read: {error}") from None

    @property
    def _facts_file(self) -> Path:
        return self.folder / "data.json"

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
    def metrics(self) -> Path:
        return self.folder / "metrics.jsonl"

    def cut_metrics(self, step: int) -> None:
        """Forget rows after a checkpoint: the steps that follow it will be made, and logged, again."""
        if not self.metrics.exists():
            return
        kept = [line for line in self.metrics.read_text().splitlines(keepends=True) if _step_of(line) <= step]
        temporary = self.metrics.with_suffix(".writing")
        with _writing(self.folder):
            temporary.write_text("".join(kept))
            temporary.replace(self.metrics)

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.metrics.read_text().splitlines()]


def check_free(folder: Path, overwrite: bool = False) -> None:
    """Whether a run may be made in a folder: one that is not there, is empty, or holds a run that may be replaced."""
    with _writing(folder):
        if not folder.exists():
            return
        names = {path.name for path in folder.iterdir()} - {_UNFINISHED, _LOCK} if folder.is_dir() else None
    if names == set():
        return
    if names is None or "config.yaml" not in names:
        raise InputError(f"{folder} exists and is not a run: choose another --out")
    if not overwrite:
        raise InputError(f"{folder} holds a run already: go on with `sao resume {folder}`, or add --overwrite")


def _clear(folder: Path) -> None:
    """Remove a run; its config.yaml last, so that what a kill leaves is still known for a run."""
    for path in sorted(folder.iterdir(), key=lambda path: path.name == "config.yaml"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != _LOCK:
            path.unlink()


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}; choose another --out") from None


def _step_of(line: str) -> float:
    """The step of a row; a row that a kill cut short counts as never written."""
    try:
        return json.loads(line)["step"] if line.endswith("\n") else float("inf")
    except (ValueError, KeyError):
        return float("inf")
