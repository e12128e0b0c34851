"""The checkpoint at which clusters were steadiest, kept beside the newest ones: a choice that needs no labels.

At every evaluation the held-out part is clustered from several starts. The rule: the mean of how well the starts agree and how
well the clusters agree with those of the evaluation before, both as ARI; the greatest so far is kept.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sao import distributed, processes
from sao.engine import checkpoint
from sao.engine.run import Run
from sao.engine.watch import Watched
from sao.files import written
from sao.methods import Method

PATIENCE = 5  # evaluations without a steadier one, after which it is said
PARTS = ("eval/clusters_agree", "eval/clusters_kept")


class Steadiest:
    """What the evaluations of a run so far come to, known to the main process; read from the run, so that it is resumed."""

    def __init__(self, run: Run, first: int) -> None:
        self._run = run
        self._evaluated: list[int] = []
        self._kept: tuple[int, float] | None = None  # step and score of the checkpoint on disk
        self.clusters: np.ndarray | None = None  # of the evaluation before
        if first and distributed.is_main():
            self._read(first)

    def consider(self, method: Method, step: int, found: Watched) -> str | None:
        """Keep the checkpoint of a step if it is the steadiest so far; what there is to say."""
        return processes.main_only(lambda: self._consider(method, step, found))

    def _consider(self, method: Method, step: int, found: Watched) -> str | None:
        if found.clusters is None:
            return None
        self._evaluated.append(step)
        self.clusters = found.clusters
        with written(self._clusters_file(step)) as temporary:
            np.save(temporary, found.clusters)
        score = _score(found.scalars)
        if score is not None and (self._kept is None or score > self._kept[1]):
            checkpoint.save(self._run.steadiest, method, step, keep=1)
            self._kept = step, score
        return self._said()

    def _said(self) -> str | None:
        """Once, when nothing became steadier for a while."""
        if self._kept is None or self._evaluated[-1 - PATIENCE :][0] != self._kept[0] or len(self._evaluated) <= PATIENCE:
            return None
        step, score = self._kept
        return (
            f"clusters were steadiest at step {step} (agreement {score:.3f}), {PATIENCE} evaluations ago: "
            "more steps may not help; that checkpoint is kept"
        )

    def _read(self, first: int) -> None:
        """From the rows up to the checkpoint that a run goes on from; later ones are made again."""
        on_disk = {path.name for path in checkpoint.steps_in(self._run.steadiest)}
        for row in self._run.rows() if self._run.metrics.exists() else []:
            if row["step"] > first or PARTS[0] not in row:
                continue
            self._evaluated.append(row["step"])
            score = _score(row)
            if score is not None and f"step-{row['step']:08d}" in on_disk:
                self._kept = row["step"], score
        if self._evaluated:
            self.clusters = _clusters_in(self._clusters_file(self._evaluated[-1]))

    def _clusters_file(self, step: int) -> Path:
        self._run.evaluations.mkdir(exist_ok=True)
        return self._run.evaluations / f"step-{step:08d}-clusters.npy"


def _score(scalars: Mapping[str, Any]) -> float | None:
    parts = [value for name in PARTS if isinstance(value := scalars.get(name), float)]
    return sum(parts) / len(parts) if len(parts) == len(PARTS) else None


def _clusters_in(path: Path) -> np.ndarray | None:
    """None where nobody can read them any more."""
    try:
        found = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return found if isinstance(found, np.ndarray) and found.ndim == 1 and found.dtype == np.uint8 else None
