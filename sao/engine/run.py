"""The folder of a run: what is where, and who may write there."""

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sao import config as configuration
from sao.config import Config
from sao.data.samples import Dataset
from sao.errors import InputError


@dataclass(frozen=True)
class DataFacts:
    """What a trained model must remember of its data to be built and used without it."""

    name: str
    shape: tuple[int, ...]
    samples: int
    classes: int | None = None
    standardiser: dict[str, Any] | None = None  # the transform of vectors, see sao.data.tables

    @classmethod
    def of(cls, dataset: Dataset, standardiser: dict[str, Any] | None = None) -> "DataFacts":
        return cls(dataset.name, dataset.train.shape, len(dataset.train), dataset.classes, standardiser)


@dataclass(frozen=True)
class Run:
    folder: Path

    @classmethod
    def create(cls, folder: Path, config: Config, facts: DataFacts, overwrite: bool = False) -> "Run":
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            if not folder.is_dir() or not (folder / "config.yaml").exists():
                raise InputError(f"{folder} exists and is not a run: choose another --out")
            if not overwrite:
                raise InputError(f"{folder} holds a run already: go on with `sao resume {folder}`, or add --overwrite")
            shutil.rmtree(folder)
        run = cls(folder)
        try:
            for part in (folder, run.checkpoints, run.samples, run.evaluations):
                part.mkdir(parents=True, exist_ok=True)
            configuration.save(config, folder / "config.yaml")
            (folder / "data.json").write_text(json.dumps(asdict(facts), indent=1))
        except OSError as error:
            raise InputError(f"{folder} cannot be written: {error.strerror}; choose another --out") from None
        return run

    @classmethod
    def open(cls, folder: Path) -> "Run":
        if not (folder / "config.yaml").is_file():
            raise InputError(f"{folder} is not a run: it has no config.yaml; `sao train --out {folder}` makes one")
        return cls(folder)

    @property
    def config(self) -> Config:
        return configuration.load(self.folder / "config.yaml")

    @property
    def facts(self) -> DataFacts:
        try:
            values = json.loads((self.folder / "data.json").read_text())
            return DataFacts(**{**values, "shape": tuple(values["shape"])})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InputError(f"{self.folder / 'data.json'} cannot be read: {error}") from None

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
        temporary.write_text("".join(kept))
        os.replace(temporary, self.metrics)

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.metrics.read_text().splitlines()]


def _step_of(line: str) -> float:
    """The step of a row; a row that a kill cut short counts as never written."""
    try:
        return json.loads(line)["step"] if line.endswith("\n") else float("inf")
    except (ValueError, KeyError):
        return float("inf")
