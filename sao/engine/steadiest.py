"""The checkpoint at which clusters were steadiest, kept beside the newest ones, and a word when learning has slowed down.

Neither needs labels. At every evaluation the held-out part is clustered from several starts. The rule: the mean of how well the
starts agree and how well the clusters agree with those of the evaluation before, both as ARI; the greatest so far is kept.
Learning goes on where clusters become steadier or features spread over more directions (their effective rank).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sao import distributed, processes
from sao.engine import checkpoint
from sao.engine.run import Run
from sao.engine.watch import Watched
from sao.files import delete, opened, written
from sao.methods import Method

PATIENCE = 3  # evaluations without progress, after which it is said
PARTS = ("eval/clusters_agree", "eval/clusters_kept")
RANK, GROWS = "eval/effective_rank", 1.01  # a rank that grows by less has stopped: it creeps on for a long time
COPIES = "eval/memorised"


class Steadiest:
    """What the evaluations of a run so far come to, known to the main process; read from the run, so that it is resumed."""

    def __init__(self, run: Run, first: int) -> None:
        self._run = run
        self._evaluated: list[tuple[int, Mapping[str, Any]]] = []  # steps, and what was measured
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
        self._evaluated.append((step, found.scalars))
        self.clusters = found.clusters
        with written(self._clusters_file(step), self._run.folder) as temporary:
            np.save(temporary, found.clusters)
        score = _score(found.scalars)
        if score is not None and (self._kept is None or score > self._kept[1]):
            saved = checkpoint.save(self._run.steadiest, method, step, keep=1)
            for later in checkpoint.steps_in(self._run.steadiest):
                if later != saved:  # of a run that was killed after it, and went on from an earlier step
                    delete(later, self._run.folder)
            self._kept = step, score
        return self._said()

    def _said(self) -> str | None:
        """Once, when for a while neither clusters became steadier nor the rank grew."""
        measured = [scalars for _, scalars in self._evaluated]
        steadier = _last_progress([_score(scalars) for scalars in measured], 1.0)
        wider = _last_progress([_number(scalars, RANK) for scalars in measured], GROWS)
        last = max((place for place in (steadier, wider) if place is not None), default=None)
        if self._kept is None or last != len(measured) - 1 - PATIENCE:
            return None
        step, score = self._kept
        rank = "" if wider is None else f" (effective rank {measured[wider][RANK]:.0f} at step {self._evaluated[wider][0]})"
        copies = _number(measured[-1], COPIES)
        near = "" if copies is None else f"; {copies:.1%} of the generated samples are near copies of training images"
        return (
            f"for {PATIENCE} evaluations neither did clusters become steadier (agreement {score:.3f} at step {step}) nor did "
            f"features spread over more directions{rank}: more steps may not help; the checkpoint of step {step} is kept{near}"
        )

    def _read(self, first: int) -> None:
        """From the rows up to the checkpoint that a run goes on from; later ones are made again."""
        on_disk = {path.name for path in checkpoint.steps_in(self._run.steadiest)}
        for row in self._run.rows() if self._run.metrics.exists() else []:
            if row["step"] > first or PARTS[0] not in row:
                continue
            self._evaluated.append((row["step"], row))
            score = _score(row)
            if score is not None and f"step-{row['step']:08d}" in on_disk:
                self._kept = row["step"], score
        if self._evaluated:
            self.clusters = _clusters_in(self._clusters_file(self._evaluated[-1][0]), self._run.folder)

    def _clusters_file(self, step: int) -> Path:
        return self._run.evaluations / f"step-{step:08d}-clusters.npy"


def _last_progress(values: Sequence[float | None], factor: float) -> int | None:
    """The place of the last value that was greater than this factor times the greatest before it."""
    best, place = None, None
    for at, value in enumerate(values):
        if value is not None and (best is None or value > factor * best):
            best, place = value, at
    return place


def _score(scalars: Mapping[str, Any]) -> float | None:
    parts = [value for name in PARTS if (value := _number(scalars, name)) is not None]
    return sum(parts) / len(parts) if len(parts) == len(PARTS) else None


def _number(scalars: Mapping[str, Any], name: str) -> float | None:
    return value if isinstance(value := scalars.get(name), float) else None


def _clusters_in(path: Path, run: Path) -> np.ndarray | None:
    """None where nobody can read them any more."""
    try:
        with opened(path, inside=run) as file:
            found = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return found if isinstance(found, np.ndarray) and found.ndim == 1 and found.dtype == np.uint8 else None
