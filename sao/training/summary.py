"""The table at the end of a run: the learnt features beside the baselines, and what to type next."""

import json
import math
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

from sao.config import Config
from sao.data.dataset import Dataset, Images
from sao.data.files.objects import IN_MEMORY
from sao.data.labels import with_class_for_unlabelled
from sao.errors import typed
from sao.evaluation.budget import Budget
from sao.evaluation.evaluator import SUMMARISED, Evaluation, measure, representations, weights_used
from sao.evaluation.extract import extract
from sao.evaluation.result import as_grid, as_intervals, write_json
from sao.evaluation.verdict import Verdict
from sao.methods import FeatureName, Method
from sao.runtime.files import write_text
from sao.runtime.interrupt import interruptible
from sao.training.log import Log, Stages, clock
from sao.training.loop import new_method
from sao.training.model import Model
from sao.training.run_folder import Run

INTERVALS_BELOW = 1000  # scored samples
TIMED = 64  # samples by whose features the time of all is known
NETWORKS = 2  # that make features: the trained and the untrained one
FEATURE_SECONDS, FEWEST_ROWS = 60.0, 100  # which features may take and have, however short the budget


def print_summary(run: Run, config: Config, dataset: Dataset, method: Method, log: Log, seconds: float) -> None:
    """Measure learnt features and baselines alike; write eval/summary.json and print the table."""
    step = config.steps_for(len(dataset.train))
    if config.log.evaluate_minutes is not None:
        limit = f"at most {config.log.evaluate_minutes:g} minutes (log.evaluate_minutes)"
        log.say(f"evaluation    {limit}; metrics that do not fit are left out and named")
    stages = Stages("evaluating")
    try:
        found = interruptible(lambda: _evaluated(run, config, dataset, method, stages))
    finally:
        stages.end()
    log.check(step)
    measured = {metric.name: metric.value for metric in found.metrics if math.isfinite(metric.value)}
    log.final(step, measured)
    write_json(run.evaluations / "summary.json", found.metrics, run.folder)
    if found.verdict is not None:
        write_verdict(run, step, found.verdict)
    log.say("")
    log.say(rows_said(found, len(dataset.train)))
    for line in as_grid(found.metrics).splitlines():
        log.say(line)
    if intervals := intervals_said(found):
        log.say(intervals)
    if found.verdict is not None:
        log.say(found.verdict.sentence)
    log.say("")
    pictures = sorted(run.samples.glob("*.png"))
    report = refreshed(run, Model(config, run.facts, method, step), dataset) if config.log.report else None
    log.say(f"trained in {clock(seconds)}; the run is in {run.folder}, all numbers in {run.evaluations / 'summary.json'}")
    if report is not None:
        log.say(f"look at       {report}")
    elif pictures:
        log.say(f"look at       {pictures[-1]}")
    if config.data.source == IN_MEMORY:  # no command can name it
        log.say(f"next          sao.load({str(run.folder)!r}).embed(data)")
        return
    for place, command in enumerate(_next_commands(run, config.data.source, dataset)):
        log.say(f"{'' if place else 'next':14}{command}")


def _next_commands(run: Run, source: str, dataset: Dataset) -> list[str]:
    """With an image of the folder as an example of what to search for."""
    found = [
        typed("cluster", run.folder, source, "-k", "auto", "-o", f"{run.folder}-groups"),
        typed("embed", run.folder, source, "-o", "features.npz"),
    ]
    names = dataset.test.names
    if isinstance(dataset.test, Images) and names and Path(source).is_dir():
        found.insert(0, typed("search", run.folder, Path(source) / names[0], "--in", source))
    return found


def rows_said(found: Evaluation, samples: int) -> str:
    """On how many samples the numbers below are."""
    if found.n_test is None:
        return f"{found.n_train} samples, cross-validated where labels are fitted to"
    of_all = "" if found.n_train == samples else f" of {samples}"
    return f"fitted to {found.n_train}{of_all} training samples, scored on {found.n_test} held-out ones"


def intervals_said(found: Evaluation) -> str:
    """Where so few samples are scored that the second digit is chance."""
    scored = found.n_train if found.n_test is None else found.n_test
    return as_intervals(found.metrics) if scored < INTERVALS_BELOW else ""


def write_verdict(run: Run, step: int, verdict: Verdict) -> None:
    """For the report, which may be made later."""
    found = {"step": step, "better": verdict.better, "sentence": verdict.sentence}
    write_text(run.evaluations / "verdict.json", json.dumps(found, ensure_ascii=False) + "\n", inside=run.folder)


def refreshed(run: Run, model: Model, dataset: Dataset) -> Path | None:
    """The report of a run that was trained or evaluated just now; a report that cannot be made must not end what was done."""
    from sao.report.build import AT_END, REPORT, STAGES, Shown, write_report

    target, stages = run.folder / REPORT, Stages("report", of=STAGES + 1)
    try:
        shown = Shown(run, model, with_class_for_unlabelled(dataset), run.folder.resolve().name)
        interruptible(lambda: write_report(target, [shown], AT_END, stages))
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        print(f"sao: warning: {target} was not made: {reason}", file=sys.stderr, flush=True)
        return None
    finally:
        stages.end()
    return target


def _evaluated(run: Run, config: Config, dataset: Dataset, method: Method, stages: Stages) -> Evaluation:
    device = next(method.parameters()).device
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said when the run began
        untrained = new_method(config, dataset, device)
    facts = {"weights": weights_used(method), "step": config.steps_for(len(dataset.train))}
    stages("features")
    budget = Budget(config.log.evaluate_minutes)
    feature, seconds = method.usual_feature(dataset.train.shape), run.training_seconds()
    plan = replace(SUMMARISED, rows=_rows_in_time(method, feature, dataset, budget))
    found = representations(method, dataset, plan, config.seed, untrained, feature, facts, seconds=seconds, budget=budget)
    return measure(found, plan, config.seed, stages, budget)


def _rows_in_time(method: Method, feature: FeatureName, dataset: Dataset, budget: Budget) -> int | None:
    """How many rows of each split have features in half of the budget or in a minute, by the time of a few."""
    parts, most = (dataset.train, dataset.test), SUMMARISED.rows
    started, device = time.monotonic(), next(method.parameters()).device
    timed = len(extract(method.representation(feature), dataset.test, device, rows=slice(0, TIMED)))
    each = NETWORKS * (time.monotonic() - started) / timed
    allowed = max(FEATURE_SECONDS, budget.left / 2)
    wanted = sum(len(part) if most is None else min(len(part), most) for part in parts)
    return most if each * wanted <= allowed else max(FEWEST_ROWS, int(allowed / each / len(parts)))
