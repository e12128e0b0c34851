"""The learning rate of each row: a few are tried on one part of the training data, and judged on another."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from sao.data.samples import Dataset
from sao.data.split import held_out_rows
from sao.reproduce.tables.cells import Cell, Row, Table, config_of
from sao.reproduce.tables.writing import read_result

HELD = 0.2  # of the training part; the test part is not looked at
SHORTER = 3  # a trial has this fraction of a run's steps, so that three cost as much as one more run
JUDGED_BY = "svm"
# A trial is looked at when it is done.
SILENT = {"log.evaluate_every": "null", "log.sample_every": "null", "log.checkpoint_every": "500"}


def trials_of(table: Table, rows: Sequence[Row], data: Sequence[str], options: Mapping[str, str], out: Path) -> list[Cell]:
    """Of every rate of every row that has a choice, unless a rate is set by hand."""
    by_hand = {key.replace("-", "_") for key in options}
    made = []
    for source in data:
        for row in (row for row in rows if source not in row.without and by_hand.isdisjoint(row.rate_options)):
            for rate in row.rates:
                tried = dict.fromkeys(row.rate_options, rate)
                steps = config_of(table, row, source, 0, options, tried).train.steps
                short = {**options, **SILENT, "train.steps": str(max(1, steps // SHORTER))}
                config = config_of(table, row, source, 0, short, tried)
                made.append(Cell(row, source, config, out / "search" / f"{row.name}-{source}-{rate}", out, tried=rate))
    return made


def judged(trials: Sequence[Cell]) -> dict[tuple[str, str], dict[str, float]]:
    """Of each row and data set the score of each rate, where all of them are done; one that diverged has 0."""
    scores: dict[tuple[str, str], dict[str, float]] = {}
    for trial in trials:
        if trial.finished:
            metrics = read_result(trial)
            value = metrics[JUDGED_BY].value if JUDGED_BY in metrics else 0.0
            scores.setdefault((trial.row.name, trial.data), {})[trial.tried or ""] = value
    rows = {trial.row.name: trial.row for trial in trials}
    return {key: found for key, found in scores.items() if len(found) == len(rows[key[0]].rates)}


def best(scores: Mapping[str, float]) -> str:
    """The rate with the best score, of equal ones the first."""
    return max(scores, key=lambda rate: scores[rate])


def chosen_rates(trials: Sequence[Cell]) -> dict[tuple[str, str], dict[str, str]]:
    """As options, by row and data set."""
    rows = {trial.row.name: trial.row for trial in trials}
    return {key: {option: best(found) for option in rows[key[0]].rate_options} for key, found in judged(trials).items()}


def within_training_part(dataset: Dataset) -> Dataset:
    train = dataset.train
    fitted, held = held_out_rows(len(train), train.labels, HELD, seed=0)
    return Dataset(dataset.name, train.select(fitted), train.select(held))
