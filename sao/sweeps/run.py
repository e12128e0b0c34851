"""The runs of a sweep, one after another, each by the one driver of training; finished ones are left alone."""

from collections.abc import Callable, Sequence
from pathlib import Path

from sao.errors import InputError
from sao.sweeps.grid import Grid, SweepRun, write_grid
from sao.training.loop import Diverged
from sao.training.run_folder import Run
from sao.training.trainer import is_complete, resume, start


def finished(run: SweepRun) -> bool:
    return run.folder.exists() and (begun := _begun(run.folder)) is not None and is_complete(begun)


def finish_each(out: Path, grid: Grid, runs: Sequence[SweepRun], after_each: Callable[[], None]) -> None:
    """Train what is not done. A run that diverges is recorded, and not tried again: the others go on."""
    write_grid(out, grid)
    for number, run in enumerate(runs, 1):
        if run.name in grid.diverged or finished(run):
            continue
        print(f"\nrun {number} of {len(runs)}: {run.name}", flush=True)
        try:
            if _begun(run.folder) is not None:
                resume(run.folder)
            else:
                start(run.config, run.folder, automatic=run.automatic)
        except Diverged as error:
            print(f"{run.name} diverged: {error}", flush=True)
            grid.diverged[run.name] = str(error)
            write_grid(out, grid)
        after_each()


def _begun(folder: Path) -> Run | None:
    """None also of a folder that a kill left before there was a run in it."""
    try:
        return Run.open(folder)
    except InputError:
        return None
