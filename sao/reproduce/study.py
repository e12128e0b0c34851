"""sao reproduce table1|…|table5|samples: search, train and evaluate every run that is not done yet, then write the table."""

import time
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sao import config as configuration
from sao.cli.pricing import KNOWN, Price, price
from sao.config import Config
from sao.core.agreement import best
from sao.data.dataset import Dataset
from sao.data.split import held_out_rows
from sao.errors import InputError
from sao.evaluation.result import Metric, write_json
from sao.methods import Method
from sao.reproduce.known import note_origin, take_known
from sao.reproduce.measure import measured
from sao.reproduce.pool import check_folder, check_out, run_each
from sao.reproduce.rows import LEARNING_RATE, Row, Scores, StudyRun, Table, add_finished_runs, config_of, runs_of
from sao.reproduce.table import DIVERGED, read_result, write_curves, write_sheet, write_table
from sao.runtime.files import read_json
from sao.training.device import choose_device, set_threads
from sao.training.log import clock
from sao.training.loop import Diverged, new_method
from sao.training.run_data import open_config_data
from sao.training.trainer import train_run


@dataclass(frozen=True)
class Study:
    """What is asked for of a table. Learning rates are searched for where rows have a choice, unless `search` is off.

    Each data set is searched on its own, or all take the rates found on `search_on`. With the `scores` of an earlier search,
    nothing is searched.
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
    known: Path | None = None  # the JSON file or the folder of an earlier table, whose runs are not trained again

    def trials(self) -> list[StudyRun]:
        return self._trials(self.rows, self.data if self.search_on is None else [self.search_on])

    def finished_trials(self) -> list[StudyRun]:
        """Those of earlier commands in the same folder too."""
        there = {path.parent.name for path in (self.out / "search").glob("*/eval.json")}
        rows = [row for row in self.table.rows if any(name.startswith(f"{row.name}-") for name in there)]
        data = [source for source in self.table.presets if any(f"-{source}-" in name for name in there)]
        return [trial for trial in self._trials(rows, data) if trial.finished]

    def _trials(self, rows: Sequence[Row], data: Sequence[str]) -> list[StudyRun]:
        searched = self.search and self.scores is None
        return trials_of(self.table, rows, data, self.options, self.out) if searched else []

    def runs(self) -> list[StudyRun]:
        """With the learning rates that were found so far."""
        rates = self._rates(self._scores(self.trials()))
        return runs_of(self.table, self.rows, self.data, self.seeds, self.options, self.out / "runs", rates)

    def shown(self) -> list[StudyRun]:
        rates = self._rates(self._scores(self.finished_trials()))
        return add_finished_runs(self.table, self.runs(), self.options, self.out / "runs", rates)

    def _scores(self, trials: Sequence[StudyRun]) -> Scores:
        return judged(trials) if self.scores is None else self.scores

    def _rates(self, scores: Scores) -> dict[tuple[str, str], dict[str, str]]:
        """By row and data set."""
        found = chosen_rates(scores)
        if self.search_on is None:
            return found
        rows = {row: rates for (row, source), rates in found.items() if source == self.search_on}
        return {(row, source): rates for row, rates in rows.items() for source in self.table.presets}

    def make(self, command: str, processes: int = 1) -> list[StudyRun]:
        """Finish the trials, then the runs, and return these."""
        trials = self.trials()  # a wrong option is said before anything is made
        self.runs()
        check_out(self.out)
        finish_each(trials, processes)
        runs = self.runs()
        if self.known is not None:
            print(f"{take_known(self.known, runs)} of {len(runs)} runs are known from {self.known}", flush=True)
        reproduce(self.table, runs, self.shown(), self.out, command, processes, self._scores(self.finished_trials()))
        return runs


def reproduce(
    table: Table,
    runs: Sequence[StudyRun],
    shown: Sequence[StudyRun],
    out: Path,
    command: str,
    processes: int = 1,
    searched: Scores | None = None,
) -> None:
    """Finish the runs. The table, of all that are shown, is written after each, so that it can be looked at on the way."""
    started = time.monotonic()
    check_out(out)

    def write() -> None:
        write_table(table, shown, out, command, searched)

    if finish_each(runs, processes, write) == 0:
        write()
    write_sheet(shown, out / "samples.png")
    write_curves(shown, out / "curves.png")
    print((out / f"{table.name}.md").read_text(encoding="utf-8"))
    print(f"everything is in {out}; {clock(time.monotonic() - started)} in all", flush=True)


def finish_each(
    runs: Sequence[StudyRun],
    processes: int,
    after_each: Callable[[], None] = lambda: None,
    finish: Callable[[StudyRun], str] | None = None,
) -> int:
    """Returns how many were left to do. `finish` is what finishes one, and says a line about it."""
    for run in runs:
        check_folder(run.folder, run.config)
    left = [run for run in runs if not run.evaluation.exists()]
    count = len(left)
    references = [run for run in left if run.row.kind == "reference"]
    others = [run for run in left if run.row.kind != "reference" and run.row.needs is None]
    last = [run for run in left if run.row.needs is not None]  # whose runs learn from those before
    if runs:
        what = "runs" if runs[0].tried is None else "trials of learning rates"
        print(f"{len(runs)} {what}, {len(runs) - len(left)} of them done already", flush=True)
    for stage in (references, others, last):  # generated images are compared in the features of the first
        for run, said in run_each(finish or finish_run, stage, processes):
            left.remove(run)
            print(f"{run.name}: {said}; left: {len(left)}", flush=True)
            after_each()
    return count


def finish_run(run: StudyRun) -> str:
    """Train a run, from where it was stopped, and evaluate it; returns what there is to say about it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a bank near the size of a small data set: the table is of all rows alike
        metrics = _metrics(run)
        note_origin(run)
        write_json(run.evaluation, metrics)
    found = read_result(run)
    if DIVERGED in found:
        return f"diverged at step {found[DIVERGED].value:.0f}"
    return ", ".join(f"{name} {found[name].value:.3f}" for name in ("svm", "kmeans") if name in found)


def _metrics(run: StudyRun) -> list[Metric]:
    set_threads(run.config.train.threads)
    dataset = open_config_data(run.config).dataset
    if run.tried is not None:
        dataset = within_training_set(dataset)
    try:
        method = _method(run, dataset)
    except Diverged as error:
        return [Metric(DIVERGED, float(error.step), None, {"what": error.what})]
    return measured(run, method, dataset)


def _method(run: StudyRun, dataset: Dataset) -> Method:
    if run.row.kind in ("trained", "reference"):
        return train_run(run.folder, run.config, dataset)
    run.folder.mkdir(parents=True, exist_ok=True)
    configuration.save(run.config, run.folder / "config.yaml")
    return new_method(run.config, dataset, choose_device(run.config.train.device))


# --- the learning rate of each row ----------------------------------------------------------------------------------------

HELD = 0.2  # of the training set; the test set is not looked at
SHORTER = 3  # a trial has this fraction of a run's steps, so that three cost as much as one more run
JUDGED_BY = "svm"
# A trial is looked at when it is done.
SILENT = {"log.evaluate_every": "null", "log.sample_every": "null", "log.checkpoint_every": "500"}


def trials_of(table: Table, rows: Sequence[Row], data: Sequence[str], options: Mapping[str, str], out: Path) -> list[StudyRun]:
    """Of every rate of every row that has a choice, unless a rate is set by hand."""
    by_hand = {key.replace("-", "_") for key in options}
    made = []
    for source in data:
        for row in (row for row in rows if source not in row.without and LEARNING_RATE not in by_hand):
            for rate in row.rates:
                tried = {LEARNING_RATE: rate}
                steps = config_of(table, row, source, 0, options, tried).train.steps
                short = {**options, **SILENT, "train.steps": str(max(1, steps // SHORTER))}
                config = config_of(table, row, source, 0, short, tried)
                made.append(StudyRun(row, source, config, out / "search" / f"{row.name}-{source}-{rate}", out, tried=rate))
    return made


def judged(trials: Sequence[StudyRun]) -> Scores:
    """Of each row and data set the score of each rate, where all of them are done; one that diverged has 0."""
    scores: dict[tuple[str, str], dict[str, float]] = {}
    for trial in trials:
        if trial.finished:
            metrics = read_result(trial)
            value = metrics[JUDGED_BY].value if JUDGED_BY in metrics else 0.0
            scores.setdefault((trial.row.name, trial.data), {})[trial.tried or ""] = value
    rows = {trial.row.name: trial.row for trial in trials}
    return {key: found for key, found in scores.items() if len(found) == len(rows[key[0]].rates)}


def chosen_rates(scores: Scores) -> dict[tuple[str, str], dict[str, str]]:
    """As options, by row and data set."""
    return {key: {LEARNING_RATE: best(found)} for key, found in scores.items()}


def read_scores(file: Path, table: Table) -> Scores:
    """What a search found earlier, from the table that it was made for."""
    try:
        content = read_json(file.resolve())  # a person named it: a link may lead to it
        scores = {
            (str(one["row"]), str(one["data"])): {rate: float(score) for rate, score in one["scores"].items()}
            for one in content["search"]
        }
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{file} holds no search for learning rates: give the {table.name}.json of a finished table") from None
    rates = {row.name: set(row.rates) for row in table.rows}
    for (row, data), found in scores.items():
        if data not in table.presets or not found or not found.keys() <= rates.get(row, set()):
            raise InputError(f"{file} is of other rows or rates than {table.name} at this scale: {row} on {data}")
    if not scores:
        raise InputError(f"{file} was made without a search for learning rates")
    return scores


def within_training_set(dataset: Dataset, share: float = HELD) -> Dataset:
    """The training set alone; a fraction of it becomes a validation set in the place of the test set."""
    train = dataset.train
    fitted, held = held_out_rows(len(train), train.labels, share, seed=0)
    return Dataset(dataset.name, train.select(fitted), train.select(held))


def check_scores(scores: Scores, rows: Sequence[Row], data: Sequence[str], file: str) -> None:
    """A row whose rate the file does not know would silently keep that of its recipe."""
    for source in data:
        for row in (row for row in rows if row.rates and source not in row.without):
            if (row.name, source) not in scores:
                raise InputError(f"{file} has no learning rates of {row.name} on {source}: leave the row out, or search")


def price_study(runs: Sequence[StudyRun], processes: int) -> None:
    measured: dict[Hashable, Price] = {}
    said: set[str] = set()
    seconds = disk = 0.0
    for run in runs:
        if run.evaluation.exists():
            print(f"{run.name}: done already")
            continue
        if run.row.kind in ("raw", "untrained", "pca", "patches", "same_run"):
            print(f"{run.name}: nothing to train")
            continue
        as_long = f", as long as {run.row.needs}" if run.row.kind == "rival" else ""
        kind = _kind_of_step(run.config)
        if kind not in measured:
            measured[kind] = price(run.config)
            for note in (measured[kind].note, f"measured    steps of batch {measured[kind].step.trial.batch}"):
                if note not in said:
                    print(note)
                said.add(note)
        one = measured[kind]
        steps = run.config.steps_for(one.samples)
        seconds += steps * one.step.seconds
        disk += 0 if as_long else run.config.log.keep * one.checkpoint
        print(f"{run.name}: {steps} steps of {one.step.seconds:.2f} s, {clock(steps * one.step.seconds)}{as_long}", flush=True)
    together = f", {clock(seconds / processes)} with {processes} at a time that do not slow each other down"
    print(f"{len(runs)} runs: {clock(seconds)} of training left{together if processes > 1 else ''}")
    print(f"{disk / 1e9:.1f} GB of checkpoints; the evaluation of each run comes on top")


def _kind_of_step(config: Config) -> Hashable:
    """What the time of a step depends on: the method without its learning rates, the encoder, the batch, the images."""
    images = KNOWN.get(config.data.source, config.data.source), config.data.size
    method = {name: value for name, value in config.method.model_dump().items() if not name.endswith("optimiser")}
    return str(method), config.encoder, config.train.batch, images
