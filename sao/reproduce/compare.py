"""Ours beside the two-view methods on anyone's images: every row with the options that `sao train --data` chooses for it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sao.config import Config, load_preset
from sao.config.auto import choose_options
from sao.data.dataset import Dataset
from sao.errors import InputError, typed
from sao.evaluation.suite import FEWEST
from sao.reproduce.rows import REFERENCE, Row, StudyRun, Table, applying, check_options, chosen_rows, controls
from sao.reproduce.table1 import ours, two_view_methods
from sao.training.run_data import check_apart, open_config_data

PRESET = "own"
NOTES = (
    "Every row has the same backbone and sees as many images, in the batch that is chosen for it. A step of ours takes longer.",
    "MAE and DDPM have other networks, and learn little in the time of a processor: `sao train --method mae`.",
    "Nothing was searched for: heads, queues and views are what `sao train --data` chooses.",
)


def comparison(
    source: str, names: Sequence[str] | None, seeds: Sequence[int], options: Mapping[str, str], out: str | None
) -> tuple[Table, list[StudyRun]]:
    """The table, and its runs in order; the supervised row is there only where there are labels."""
    name = Path(source).resolve().stem
    folder = Path(out or f"runs/compare-{name}")
    every = [replace(r, changes={**r.changes, "encoder": "resnet"}) for r in (*two_view_methods(), ours(), *controls("cpu"))]
    table = Table("compare", "cpu", f"Comparison on {name}", tuple(every), {name: PRESET}, (name,), NOTES)
    rows = chosen_rows(table, names)
    check_options(table, rows, options)
    runs = []
    for seed in seeds:
        fixed = {"data.source": source, "seed": str(seed)}
        plain = load_preset(PRESET, {**applying(options, load_preset(PRESET)), **fixed})
        check_apart(folder, plain)
        dataset = open_config_data(plain).dataset
        if len(dataset.test) < FEWEST:
            share = min(0.5, math.ceil(200 * FEWEST / (len(dataset.train) + len(dataset.test))) / 200 + 0.1)
            raise InputError(
                f"{len(dataset.test)} samples are held out, too few to score: add --data.held_out {share:g}, or more images"
            )
        if len(dataset.train.shape) == 1:
            raise InputError(f"{source} holds vectors, and two-view methods need images: {typed('train', '--data', source)}")
        for row in rows:
            if row.kind == "reference" and dataset.train.labels is None:
                continue
            config = _config(row, dataset, {**fixed, "train.threads": "1"}, options)
            own, reference = (folder / "runs" / f"{which}-seed{seed}" for which in (row.name, REFERENCE))
            runs.append(StudyRun(row, name, config, own, reference))
    if not runs:
        raise InputError(f"{source} has no labels, and nothing else is to be compared: choose other --rows")
    return table, sorted(runs, key=lambda run: rows.index(run.row))


def _config(row: Row, dataset: Dataset, fixed: Mapping[str, str], options: Mapping[str, str]) -> Config:
    fixed = {**fixed, **row.changes}
    given = {**applying(options, load_preset(PRESET, fixed)), **fixed}
    return choose_options(load_preset(PRESET, given), dataset.train, given.keys())[0]
