"""The learning rate of each row: a few are tried on one part of the training data, and judged on another."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from sao import agreement
from sao.data.samples import Dataset
from sao.data.split import held_out_rows
from sao.errors import InputError
from sao.reproduce.tables.cells import Cell, Row, Scores, Table, config_of
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


def judged(trials: Sequence[Cell]) -> Scores:
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
    """The rate with the best score, of equal ones the first; one without a score is never the best."""
    return agreement.best(scores)


def chosen_rates(scores: Scores, rows: Sequence[Row]) -> dict[tuple[str, str], dict[str, str]]:
    """As options, by row and data set."""
    options = {row.name: row.rate_options for row in rows}
    return {key: dict.fromkeys(options[key[0]], best(found)) for key, found in scores.items()}


def read_scores(file: Path, table: Table) -> Scores:
    """What a search found earlier, from the table that it was made for."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
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


def within_training_part(dataset: Dataset) -> Dataset:
    train = dataset.train
    fitted, held = held_out_rows(len(train), train.labels, HELD, seed=0)
    return Dataset(dataset.name, train.select(fitted), train.select(held))


def check_scores(scores: Scores, rows: Sequence[Row], data: Sequence[str], file: str) -> None:
    """A row whose rate the file does not know would silently keep that of its recipe."""
    for source in data:
        for row in (row for row in rows if row.rates and source not in row.without):
            if (row.name, source) not in scores:
                raise InputError(f"{file} has no learning rates of {row.name} on {source}: leave the row out, or search")
