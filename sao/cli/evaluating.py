"""What `sao eval` does once its arguments are known to be good: it measures a run, or a file of features, and says how well."""

import re
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import sao
from sao.cli.inputs import open_split_for
from sao.cli.output import warn, writable
from sao.core import distributed
from sao.data.dataset import Dataset, Images
from sao.data.labels import LabelFile
from sao.errors import InputError, printable
from sao.evaluation import Metric, as_grid, as_table, evaluate_generation, memorised, merged, read_json, write_json
from sao.evaluation.budget import Budget
from sao.evaluation.evaluator import FEW, LEARNT, Evaluation, Plan, chosen_rows, measure, representations, weights_used
from sao.evaluation.extract import extract_together
from sao.evaluation.features import load_labelled_features
from sao.evaluation.manifold import check_algorithm
from sao.evaluation.pretrained import pretrained
from sao.runtime import launch as processes
from sao.runtime.interrupt import interruptible
from sao.training.log import Stages
from sao.training.model import Model
from sao.training.run_data import open_run_data, with_labels
from sao.training.run_folder import Run
from sao.training.summary import intervals_said, refreshed, rows_said, write_verdict

GENERATION = ("is", "fid", "kid", "precision", "recall", "memorised")


def evaluate_file(path: Path, labels: LabelFile | None, arguments: Namespace) -> None:
    target = None if arguments.output is None else Path(arguments.output)
    before = _before(target)
    parts, note = load_labelled_features(path, labels)
    if note is not None:
        print(note)
    samples, rows, seed = len(parts[0]), arguments.rows, arguments.seed
    train, test = (None if part is None else part.select(chosen_rows(len(part), part.labels, rows, seed)) for part in parts)
    assert train is not None
    plan = _plan(arguments.metrics, arguments)
    found = _measured({LEARNT: (train, test)}, plan, seed, _begun(plan))
    _report(found, samples, [], target, before)


def evaluate_run(run: Run, labels: LabelFile | None, arguments: Namespace) -> None:
    """Processes share the work of embedding; the metrics, which look at all features at once, are the first one's."""
    model, names, seed = sao.load(run.folder, weights=arguments.weights, report=warn), arguments.metrics, arguments.seed
    feature = arguments.feature = arguments.feature or model.usual_feature
    target = Path(arguments.output or _default_file(run, model.step, arguments))
    before = processes.main_only(lambda: _before(target, run))
    other = pretrained(arguments.pretrained or "auto", model.facts.shape) if names is None else None
    dataset = _data(run, model, arguments.data, labels)
    method = model.method_for(feature)
    facts: dict[str, Any] = {"weights": weights_used(method, arguments.weights)}
    facts |= {"run": str(run.folder.resolve()), "step": model.step}  # however the command named it
    if arguments.data is not None:
        facts["data"] = str(Path(arguments.data).resolve()) if Path(arguments.data).exists() else arguments.data
    if labels is not None:
        facts["labels"] = str(Path(arguments.labels).resolve())
    of_features = None if names is None else [name for name in names if name not in GENERATION]
    plan, pairs = _plan(of_features, arguments), None
    budget = _begun(plan) if names is None or of_features else None
    if budget is not None:
        untrained, seconds = model.untrained() if names is None else None, run.training_seconds()
        pairs = representations(
            method, dataset, plan, seed, untrained, feature, facts, extract_together, seconds, budget, other
        )

    def finish() -> None:
        found = None if pairs is None else _measured(pairs, plan, seed, budget)
        generated = _generation(model, dataset, names, arguments, facts)
        _report(found, len(dataset.train), generated, target, before, run)
        if target == run.evaluations / f"step-{model.step:08d}-{model.usual_feature}-ema.json":
            _refresh_page(run, model, dataset, found)

    processes.main_only(finish)


def _data(run: Run, model: Model, other: str | None, labels: LabelFile | None) -> Dataset:
    if other is None:
        opened = replace(open_run_data(run)[1], notes=[])  # said when the run began
    else:
        opened = processes.node_first(lambda: open_split_for(model, other))
    opened = opened if labels is None else with_labels(opened, labels)
    for note in opened.notes if distributed.is_main() else []:
        print(printable(note))
    return opened.dataset


def _plan(names: list[str] | None, arguments: Namespace) -> Plan:
    """Everything that the data allows; or what was asked for, and an error where the data does not allow it."""
    check_algorithm(arguments.manifold)
    asked = None if names is None else tuple(names)
    strict, rows, minutes = names is not None, arguments.rows, arguments.budget
    return Plan(asked, rows, strict=strict, manifold=arguments.manifold, minutes=minutes, few=FEW)


def _begun(plan: Plan) -> Budget:
    """The time from here on, said before it is spent."""
    if plan.minutes is not None and distributed.is_main():
        print(f"at most {plan.minutes:g} minutes (--budget); metrics that do not fit are left out and named")
    return Budget(plan.minutes)


def _measured(pairs: Any, plan: Plan, seed: int, budget: Budget | None) -> Evaluation:
    stages = Stages("evaluating")
    try:
        return interruptible(lambda: measure(pairs, plan, seed, stages, budget))
    finally:
        stages.end()


def _report(
    found: Evaluation | None, samples: int, generated: list[Metric], target: Path | None, before: list, run: Run | None = None
) -> None:
    """The table, the file and the sentence."""
    metrics = generated if found is None else [*found.metrics, *generated]
    if found is not None:
        print(rows_said(found, samples))
        print(as_grid(found.metrics))
        if intervals := intervals_said(found):
            print(intervals)
    if generated:
        print(as_table(generated, ("n_real", "n_fake")))
    if target is not None:
        write_json(target, merged(before, metrics), _owner(target, run))
        print(f"with protocols in {target}")
    if found is not None and found.verdict is not None:
        print(found.verdict.sentence)


def _refresh_page(run: Run, model: Model, dataset: Dataset, found: Evaluation | None) -> None:
    """What the run's own file of metrics says now is shown on its page too."""
    if found is not None and found.verdict is not None:
        write_verdict(run, model.step, found.verdict)
    if model.config.log.report and (page := refreshed(run, model, dataset)) is not None:
        print(f"look at {page}")


def _before(target: Path | None, run: Run | None = None) -> list[dict]:
    """What an earlier evaluation wrote into the file; found out before an hour of work goes into another.

    What lies in a run's own folder is of this run, though it has been moved since.
    """
    if target is None:
        return []
    writable(target)
    rows = read_json(target, _owner(target, run)) if target.exists() else []
    if run is not None and target.resolve().parent == run.evaluations.resolve():
        for row in rows:
            row["protocol"]["run"] = str(run.folder.resolve())
    return rows


def _owner(target: Path, run: Run | None) -> Path | None:
    """The folder of the run where the file is its own."""
    return run.folder if run is not None and target.parent == run.evaluations else None


def _default_file(run: Run, step: int, arguments: Namespace) -> Path:
    data = None if arguments.data is None else Path(arguments.data).resolve().name
    labels = None if arguments.labels is None else Path(arguments.labels).name
    others = "_".join(re.sub(r"[^A-Za-z0-9.]+", "_", name) for name in (data, labels) if name is not None)
    name = f"step-{step:08d}-{arguments.feature}-{arguments.weights}"
    return run.evaluations / (f"{name}-on-{others}.json" if others else f"{name}.json")


def _generation(model: Model, dataset: Dataset, names: list[str] | None, arguments: Namespace, facts: dict) -> list:
    """Generated samples against as many held-out ones, and against the training set for copies."""
    wanted = set(GENERATION if names is None else names) & set(GENERATION)
    if not wanted or (names is None and arguments.samples is None):
        if arguments.inception is not None:
            raise InputError("--inception is for generated images: add --metrics is,fid, or --samples N")
        return []
    count = arguments.samples or min(10_000, len(dataset.test))
    drawn = model.bytes_of(model.sample(count, arguments.seed))
    train, test, metrics = dataset.train, dataset.test, []
    if not isinstance(train, Images) or not isinstance(test, Images):
        if names is not None and wanted != {"memorised"}:
            raise InputError("vectors have no image metrics: of the generation metrics only memorised applies")
        share = memorised(drawn, train.rows).share  # pyright: ignore[reportAttributeAccessIssue]
        return [share.with_protocol(facts)]
    if (channels := model.facts.shape[0]) not in (1, 3) and wanted != {"memorised"}:
        if names is not None:
            raise InputError(f"IS and FID see colours, and these images have {channels} channels: leave them out")
        warn(f"IS and FID are left out: they see colours, and these images have {channels} channels")
        wanted &= {"memorised"}
    if wanted - {"memorised"}:
        download = arguments.inception == "download"
        weights = None if download else arguments.inception
        real, seed = test.bytes[:count], arguments.seed
        found = evaluate_generation(real, drawn, weights, download=download, seed=seed, device=model.device)
        metrics += [metric for metric in found if metric.name.split("_")[0] in wanted]
        if "is" in wanted and not any(metric.name.split("_")[0] == "is" for metric in found):
            warn("Inception Score left out: the installed Inception has no logits; give --inception FILE or none")
    if "memorised" in wanted:
        metrics.append(memorised(drawn, train.bytes).share)
    return [metric.with_protocol(facts) for metric in metrics]
