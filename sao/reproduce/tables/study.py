"""sao reproduce table1|…|table5|samples: search, train and evaluate every cell that is not done yet, then write the table."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sao import config as configuration
from sao.data.dataset import Dataset
from sao.evaluation.result import Metric, write_json
from sao.methods import Method
from sao.reproduce.pool import run_each
from sao.reproduce.runs import check_folder, check_out
from sao.reproduce.tables.cells import Cell, Row, Scores, Table, add_finished_cells, cells_of
from sao.reproduce.tables.curves import write_curves
from sao.reproduce.tables.measure import measured
from sao.reproduce.tables.search import chosen_rates, judged, trials_of, within_training_part
from sao.reproduce.tables.sheet import write_sheet
from sao.reproduce.tables.writing import DIVERGED, read_result, write_table
from sao.training.device import choose_device, set_threads
from sao.training.log import clock
from sao.training.loop import Diverged, new_method
from sao.training.run_data import open_config_data
from sao.training.trainer import train_run


@dataclass(frozen=True)
class Study:
    """What is asked for of a table. Learning rates are searched for where rows have a choice, unless `search` is off.

    Each data set is searched on its own, or all take the rates that were found on `search_on`; `scores` are those of a
    search that was made before, and then nothing is searched.
    """

    table: Table
    rows: Sequence[Row]
    data: Sequence[str]
    seeds: Sequence[int]
    options: Mapping[str, str]
    out: Path
    search: bool = True
    search_on: str | None = None
    scores: Scores | None = None

    def trials(self) -> list[Cell]:
        return self._trials(self.rows, self.data if self.search_on is None else [self.search_on])

    def finished_trials(self) -> list[Cell]:
        """Those of earlier commands in the same folder too."""
        there = {path.parent.name for path in (self.out / "search").glob("*/eval.json")}
        rows = [row for row in self.table.rows if any(name.startswith(f"{row.name}-") for name in there)]
        data = [source for source in self.table.presets if any(f"-{source}-" in name for name in there)]
        return [trial for trial in self._trials(rows, data) if trial.finished]

    def _trials(self, rows: Sequence[Row], data: Sequence[str]) -> list[Cell]:
        searched = self.search and self.scores is None
        return trials_of(self.table, rows, data, self.options, self.out) if searched else []

    def cells(self) -> list[Cell]:
        """With the learning rates that were found so far."""
        rates = self._rates(self._scores(self.trials()))
        return cells_of(self.table, self.rows, self.data, self.seeds, self.options, self.out / "runs", rates)

    def shown(self) -> list[Cell]:
        rates = self._rates(self._scores(self.finished_trials()))
        return add_finished_cells(self.table, self.cells(), self.options, self.out / "runs", rates)

    def _scores(self, trials: Sequence[Cell]) -> Scores:
        return judged(trials) if self.scores is None else self.scores

    def _rates(self, scores: Scores) -> dict[tuple[str, str], dict[str, str]]:
        """By row and data set."""
        found = chosen_rates(scores, self.table.rows)
        if self.search_on is None:
            return found
        rows = {row: rates for (row, source), rates in found.items() if source == self.search_on}
        return {(row, source): rates for row, rates in rows.items() for source in self.table.presets}

    def make(self, command: str, processes: int = 1) -> list[Cell]:
        """Finish the trials, then the cells, and return these."""
        check_out(self.out)
        finish_each(self.trials(), processes)
        cells = self.cells()
        reproduce(self.table, cells, self.shown(), self.out, command, processes, self._scores(self.finished_trials()))
        return cells


def reproduce(
    table: Table,
    cells: Sequence[Cell],
    shown: Sequence[Cell],
    out: Path,
    command: str,
    processes: int = 1,
    searched: Scores | None = None,
) -> None:
    """Finish the cells. The table, of all that are shown, is written after each, so that it can be looked at on the way."""
    started = time.monotonic()
    check_out(out)

    def write() -> None:
        write_table(table, shown, out, command, searched)

    if finish_each(cells, processes, write) == 0:
        write()
    write_sheet(shown, out / "samples.png")
    write_curves(shown, out / "curves.png")
    print((out / f"{table.name}.md").read_text(encoding="utf-8"))
    print(f"everything is in {out}; {clock(time.monotonic() - started)} in all", flush=True)


def finish_each(
    cells: Sequence[Cell],
    processes: int,
    after_each: Callable[[], None] = lambda: None,
    finish: Callable[[Cell], str] | None = None,
) -> int:
    """Returns how many were left to do. `finish` is what finishes one, and says a line about it."""
    for cell in cells:
        check_folder(cell.folder, cell.config)
    left = [cell for cell in cells if not cell.evaluation.exists()]
    count = len(left)
    references = [cell for cell in left if cell.row.kind == "reference"]
    others = [cell for cell in left if cell.row.kind != "reference" and cell.row.needs is None]
    last = [cell for cell in left if cell.row.needs is not None]  # whose runs learn from those before
    if cells:
        what = "cells" if cells[0].tried is None else "trials of learning rates"
        print(f"{len(cells)} {what}, {len(cells) - len(left)} of them done already", flush=True)
    for stage in (references, others, last):  # generated images are compared in the features of the first
        for cell, said in run_each(finish or finish_cell, stage, processes):
            left.remove(cell)
            print(f"{cell.name}: {said}; left: {len(left)}", flush=True)
            after_each()
    return count


def finish_cell(cell: Cell) -> str:
    """Train a cell, from where it was stopped, and evaluate it; returns what there is to say about it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a bank near the size of a small data set: the table is of all rows alike
        write_json(cell.evaluation, _metrics(cell))
    found = read_result(cell)
    if DIVERGED in found:
        return f"diverged at step {found[DIVERGED].value:.0f}"
    return ", ".join(f"{name} {found[name].value:.3f}" for name in ("svm", "kmeans") if name in found)


def _metrics(cell: Cell) -> list[Metric]:
    set_threads(cell.config.train.threads)
    dataset = open_config_data(cell.config).dataset
    if cell.tried is not None:
        dataset = within_training_part(dataset)
    try:
        method = _method(cell, dataset)
    except Diverged as error:
        return [Metric(DIVERGED, float(error.step), None, {"what": error.what})]
    return measured(cell, method, dataset)


def _method(cell: Cell, dataset: Dataset) -> Method:
    if cell.row.kind in ("trained", "reference"):
        return train_run(cell.folder, cell.config, dataset)
    cell.folder.mkdir(parents=True, exist_ok=True)
    configuration.save(cell.config, cell.folder / "config.yaml")
    return new_method(cell.config, dataset, choose_device(cell.config.train.device))
