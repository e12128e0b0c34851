"""One table of a sweep: every metric as mean and deviation over seeds, and each combination tested against the first."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sao import __version__
from sao.data.labels import with_class_for_unlabelled
from sao.errors import InputError
from sao.evaluation.comparison import LEVEL, over_seeds
from sao.evaluation.result import UNMEASURED, Metric, aligned, as_grid, read_json
from sao.report.build import MOST_POINTS
from sao.report.gallery import Gallery
from sao.report.side_by_side import Scored, paired_test, rows_to_score, scored
from sao.runtime.csv_files import write_csv
from sao.runtime.files import write_text, written
from sao.sweeps.grid import Grid, SweepRun
from sao.training.model import load
from sao.training.run_data import open_run_data
from sao.training.run_folder import SUMMARY, Run

CSV, JSON = "table.csv", "table.json"
FEWEST_SEEDS = 3  # for a test across them
LEGEND = (
    "better, worse: in so many runs, sample by sample on the same held-out samples (McNemar's test); "
    "p over seeds (how many): Student's t of the differences, from three on. Corrected for the number of comparisons."
)

Values = dict[str, dict[int, float]]  # of each metric by seed


def collected(runs: Sequence[SweepRun]) -> dict[str, Values]:
    """The metrics of finished runs, by combination."""
    found: dict[str, Values] = {}
    for run in runs:
        values = found.setdefault(run.combination, {})
        if not Run(run.folder).evaluated:
            continue
        for row in read_json(Run(run.folder).evaluations / SUMMARY, inside=run.folder):
            if row["value"] is not None:
                values.setdefault(row["name"], {})[run.seed] = row["value"]
    return found


def write_table(
    out: Path, grid: Grid, runs: Sequence[SweepRun], command: str, tests: list[dict[str, Any]] | None = None
) -> None:
    """table.csv and table.json; the tests once all runs are done."""
    found = collected(runs)
    rows: list[list[Any]] = []
    combinations: list[dict[str, Any]] = []
    for options, name in ((one, grid.name(one)) for one in grid.combinations()):
        metrics = {}
        for metric, values in found[name].items():
            mean, deviation = spread(values)
            rows.append([*options.values(), metric, mean, "" if deviation is None else deviation, len(values)])
            by_seed = {str(seed): value for seed, value in values.items()}
            metrics[metric] = {"mean": mean, "deviation": deviation, "by_seed": by_seed}
        combinations.append({"name": name, "options": options, "metrics": metrics})
    with written(out / CSV) as temporary:
        write_csv(temporary, [*grid.over, "metric", "mean", "deviation", "runs"], rows)
    record = {"sao": __version__, "command": command, **vars(grid), "combinations": combinations, "tests": tests}
    write_text(out / JSON, json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def spread(values: dict[int, float]) -> tuple[float, float | None]:
    """Mean, and deviation over runs; one run has none."""
    numbers = np.array(list(values.values()))
    return float(numbers.mean()), float(numbers.std(ddof=1)) if len(numbers) > 1 else None


def as_markdown(grid: Grid, runs: Sequence[SweepRun], tests: list[dict[str, Any]]) -> str:
    """For the screen: metrics of the learnt features, then the tests. Baselines are in the files."""
    metrics = []
    for combination, values in collected(runs).items():
        metrics += [Metric(f"{combination}/{name}", *spread(of)) for name, of in values.items() if "/" not in name]
    lines = [f"mean ± deviation over seeds {', '.join(map(str, grid.seeds))}"]
    lines += [as_grid(metrics, spread=True)] if metrics else ["nothing was measured"]
    lines += [f"{name} diverged: {what}" for name, what in grid.diverged.items()]
    return "\n".join([*lines, *_tests_said(tests)])


def tested(grid: Grid, runs: Sequence[SweepRun]) -> list[dict[str, Any]]:
    """Every other combination against the first: run against run of the same seed, and across seeds where there are three."""
    names = [grid.name(one) for one in grid.combinations()]
    if len(names) < 2:
        return []
    known = {(run.combination, run.seed): _scored(run) for run in runs}
    values, pairs = collected(runs), (len(names) - 1) * len(grid.seeds)
    found = []
    for name in names[1:]:
        by_run = [
            {"seed": seed, **paired_test(known[names[0], seed], known[name, seed], pairs)}
            for seed in grid.seeds
            if known[names[0], seed] is not None or known[name, seed] is not None
        ]
        across = _across_seeds(values[names[0]], values[name], len(names) - 1)
        found.append({"first": names[0], "second": name, "by_run": by_run, "over_seeds": across})
    return found


def _scored(run: SweepRun) -> Scored | None:
    """None where there is no such run, or its data has gone."""
    if not Run(run.folder).evaluated:
        return None
    try:
        dataset = with_class_for_unlabelled(open_run_data(Run(run.folder))[1].dataset)
    except InputError:
        return None
    model = load(run.folder)
    gallery, _ = rows_to_score(Gallery.of(dataset, MOST_POINTS, run.seed), run.seed)
    return scored(gallery, gallery.features(model.method.features, model.device), run.seed)  # as after its last step


def _across_seeds(first: Values, second: Values, combinations: int) -> list[dict[str, Any]]:
    """Of every metric of the learnt features that both have with the same three seeds or more."""
    shared = {name: sorted(first[name].keys() & second[name].keys()) for name in first if "/" not in name and name in second}
    shared = {name: seeds for name, seeds in shared.items() if len(seeds) >= FEWEST_SEEDS}
    rows = []
    for name, seeds in shared.items():
        ours, theirs = ([values[name][seed] for seed in seeds] for values in (second, first))
        one = over_seeds(ours, theirs, comparisons=combinations * len(shared))
        interval = [one.low, one.high] if math.isfinite(one.low) else None
        row = {"metric": name, "seeds": len(seeds), "difference": one.difference, "interval": interval}
        rows.append(row | {"p": one.p, "decided": one.p < LEVEL})
    return rows


def _tests_said(tests: list[dict[str, Any]]) -> list[str]:
    lines = []
    for one in tests:
        lines += ["", f"{one['second']} against {one['first']}"]
        counts: dict[str, list[dict[str, Any]]] = {}
        for run in one["by_run"]:
            for row in run["rows"]:
                counts.setdefault(row["metric"], []).append(row)
        across = {row["metric"]: row for row in one["over_seeds"]}
        reasons = {run["seed"]: run["reason"] for run in one["by_run"] if run["reason"]}
        lines += [f"seed {seed} is not tested run against run: {reason}" for seed, reason in reasons.items()]
        rows = [["metric", "difference", "better", "worse", "p over seeds"]]
        for metric in dict.fromkeys([*across, *counts]):
            own, shared = counts.get(metric, []), across.get(metric)
            difference = shared["difference"] if shared else float(np.mean([row["difference"] for row in own]))
            better, worse = (sum(row["decided"] and (row["difference"] > 0) is up for row in own) for up in (True, False))
            of = [f"{count} of {len(own)}" if own else UNMEASURED for count in (better, worse)]
            rows.append([metric, f"{difference:+.3f}", *of, f"{shared['p']:.2g} ({shared['seeds']})" if shared else UNMEASURED])
        if len(rows) > 1:
            lines.append(aligned(rows))
    return [*lines, "", LEGEND] if tests else lines
