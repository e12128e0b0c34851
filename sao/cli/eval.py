"""sao eval: every metric that the data allows, with its protocol, as a table and as JSON; ends in one plain sentence."""

import re
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sao.cli.flags import MANIFOLDS, add_feature, add_labels, add_run, add_seed, count_or
from sao.cli.output import warn
from sao.errors import InputError, printable

if TYPE_CHECKING:
    from sao.data.dataset import Dataset
    from sao.data.labels import LabelFile
    from sao.evaluation import Metric
    from sao.evaluation.budget import Budget
    from sao.evaluation.evaluator import Evaluation, Plan
    from sao.training.model import Model
    from sao.training.run_folder import Run

GENERATION = ("is", "fid", "kid", "precision", "recall", "memorised")


def add_options(parser: ArgumentParser) -> None:
    add_run(parser, nargs="?")
    parser.add_argument("--features", metavar="F.npz", help="x_train, y_train, x_test, y_test instead of a run")
    parser.add_argument("--data", help="other labelled data than the run's, prepared as the run's was")
    add_labels(parser)
    parser.add_argument("--rows", default="10000", help="at most so many samples of each split, or all (default: 10000)")
    parser.add_argument("--budget", default="10", help="minutes for the metrics, or none (default: 10)")
    parser.add_argument("--metrics", help="comma-separated names (default: all that the data allows)")
    add_feature(parser)
    parser.add_argument(
        "--manifold",
        choices=MANIFOLDS,
        default="spectral",
        help="how clusters along the manifold are found (default: spectral)",
    )
    parser.add_argument("--weights", choices=("ema", "raw"), default="ema", help="EMA weights, or as trained (default: ema)")
    parser.add_argument(
        "--pretrained",
        metavar="NAME",
        help="network to compare with: efficientnet_lite0, timm:NAME if its weights are here, or none (default: "
        "efficientnet_lite0 for colour images of at least 32x32 if it is installed)",
    )
    parser.add_argument("--samples", type=int, default=None, help="generated samples for generation metrics")
    parser.add_argument("--inception", metavar="FILE", help="standard weights for IS and FID; download; or none: a stand-in")
    add_seed(parser)
    parser.add_argument("-o", "--output", help="JSON file (default: RUN/eval/…); metrics are added to those in it")


def run(arguments: Namespace) -> None:
    if (arguments.run is None) == (arguments.features is None):
        raise InputError("give a run, or --features F.npz, one of the two")
    if arguments.data is not None and arguments.run is None:
        raise InputError("--data is for a run: a file of features holds its own")
    labels = _labels(arguments.labels)
    if arguments.pretrained is not None and (arguments.run is None or arguments.metrics is not None):
        raise InputError("--pretrained is a row beside all baselines of a run: leave out --features and --metrics")
    names = None if arguments.metrics is None else [name.strip() for name in arguments.metrics.split(",") if name.strip()]
    rows = count_or("all", "--rows", arguments.rows, "samples")
    _minutes(arguments.budget)
    from sao.runtime import launch as processes

    if arguments.features is not None:
        with processes.joined("cpu"):
            processes.main_only(lambda: _evaluate_file(Path(arguments.features), names, rows, labels, arguments))
        return
    from sao.models import run_folder
    from sao.training.run_folder import Run

    run = Run.open(run_folder(arguments.run, warn))
    if run.is_copy and arguments.data is None:
        raise InputError(f"{arguments.run} comes without its data: give --data with labelled data, or the name of a data set")
    if run.is_copy and arguments.output is None:
        raise InputError(f"nothing is written into {arguments.run}: give -o FILE.json for the numbers")
    train = run.config.train
    with processes.joined(train.device, train.timeout_seconds):
        _evaluate_run(run, names, rows, labels, arguments)


def _evaluate_file(
    path: Path, names: list[str] | None, rows: int | None, labels: "LabelFile | None", arguments: Namespace
) -> None:
    from sao.evaluation.evaluator import LEARNT, chosen_rows
    from sao.evaluation.features import load_labelled_features

    target = None if arguments.output is None else Path(arguments.output)
    before = _before(target)
    parts, note = load_labelled_features(path, labels)
    if note is not None:
        print(note)
    samples = len(parts[0])
    train, test = (
        None if part is None else part.select(chosen_rows(len(part), part.labels, rows, arguments.seed)) for part in parts
    )
    assert train is not None
    plan = _plan(names, rows, arguments)
    found = _measured({LEARNT: (train, test)}, plan, arguments.seed, _begun(plan))
    _report(found, samples, found.metrics, [], target, None, before)


def _evaluate_run(
    run: "Run", names: list[str] | None, rows: int | None, labels: "LabelFile | None", arguments: Namespace
) -> None:
    """Processes share the work of embedding; the metrics, which look at all features at once, are the first one's."""
    import sao
    from sao.evaluation.evaluator import representations, weights_used
    from sao.evaluation.extract import extract_together
    from sao.evaluation.pretrained import pretrained
    from sao.runtime import launch as processes

    model = sao.load(run.folder, weights=arguments.weights, report=warn)
    arguments.feature = arguments.feature or model.usual_feature
    target = Path(arguments.output or _default_file(run, model.step, arguments))
    before = processes.main_only(lambda: _before(target, run))
    other = pretrained(arguments.pretrained or "auto", model.facts.shape) if names is None else None
    dataset = _data(run, model, arguments.data, labels)
    method = model.method_for(arguments.feature)
    facts: dict[str, Any] = {"weights": weights_used(method, arguments.weights)}
    facts |= {"run": str(run.folder.resolve()), "step": model.step}  # however the command named it
    if arguments.data is not None:
        facts["data"] = str(Path(arguments.data).resolve()) if Path(arguments.data).exists() else arguments.data
    if labels is not None:
        facts["labels"] = str(Path(arguments.labels).resolve())
    of_features = None if names is None else [name for name in names if name not in GENERATION]
    plan, pairs = _plan(of_features, rows, arguments), None
    budget = _begun(plan) if names is None or of_features else None
    if budget is not None:
        untrained = model.untrained() if names is None else None
        pairs = representations(
            method,
            dataset,
            plan,
            arguments.seed,
            untrained,
            arguments.feature,
            facts,
            extract_together,
            run.training_seconds(),
            budget,
            other,
        )

    def measure() -> None:
        found = None if pairs is None else _measured(pairs, plan, arguments.seed, budget)
        generated = _generation(model, dataset, names, arguments, facts)
        metrics, owner = [] if found is None else found.metrics, _owner(target, run)
        _report(found, len(dataset.train), metrics, generated, target, owner, before)
        if target == run.evaluations / f"step-{model.step:08d}-backbone-ema.json":
            _refresh_page(run, model, dataset, found)

    processes.main_only(measure)


def _data(run: "Run", model: "Model", other: str | None, labels: "LabelFile | None") -> "Dataset":
    from sao.cli.inputs import open_split_for
    from sao.core import distributed
    from sao.runtime import launch as processes
    from sao.training.run_data import open_run_data, with_labels

    if other is None:
        opened = replace(open_run_data(run)[1], notes=[])  # said when the run began
    else:
        opened = processes.node_first(lambda: open_split_for(model, other))
    opened = opened if labels is None else with_labels(opened, labels)
    for note in opened.notes if distributed.is_main() else []:
        print(printable(note))
    return opened.dataset


def _plan(names: list[str] | None, rows: int | None, arguments: Namespace) -> "Plan":
    """Everything that the data allows; or what was asked for, and an error where the data does not allow it."""
    from sao.evaluation.evaluator import FEW, Plan
    from sao.evaluation.manifold import check_algorithm

    check_algorithm(arguments.manifold)
    asked = None if names is None else tuple(names)
    strict, minutes = names is not None, _minutes(arguments.budget)
    return Plan(asked, rows, strict=strict, manifold=arguments.manifold, minutes=minutes, few=FEW)


def _begun(plan: "Plan") -> "Budget":
    """The time from here on, said before it is spent."""
    from sao.core import distributed
    from sao.evaluation.budget import Budget

    if plan.minutes is not None and distributed.is_main():
        print(f"at most {plan.minutes:g} minutes (--budget); metrics that do not fit are left out and named")
    return Budget(plan.minutes)


def _measured(pairs: Any, plan: "Plan", seed: int, budget: "Budget | None") -> "Evaluation":
    from sao.evaluation.evaluator import measure
    from sao.runtime.interrupt import interruptible
    from sao.training.log import Stages

    stages = Stages("evaluating")
    try:
        return interruptible(lambda: measure(pairs, plan, seed, stages, budget))
    finally:
        stages.end()


def _report(
    found: "Evaluation | None",
    samples: int,
    of_features: "list[Metric]",
    generated: "list[Metric]",
    target: Path | None,
    owner: Path | None,
    before: list[dict],
) -> None:
    """The table, the file and the sentence."""
    from sao.evaluation import as_grid, as_table, merged, write_json
    from sao.training.summary import intervals_said, rows_said

    metrics = [*of_features, *generated]
    if found is not None:
        print(rows_said(found, samples))
        print(as_grid(of_features))
        if intervals := intervals_said(found):
            print(intervals)
    if generated:
        print(as_table(generated, ("n_real", "n_fake")))
    if target is not None:
        write_json(target, merged(before, metrics), owner)
        print(f"with protocols in {target}")
    if found is not None and found.verdict is not None:
        print(found.verdict.sentence)


def _refresh_page(run: "Run", model: "Model", dataset: "Dataset", found: "Evaluation | None") -> None:
    """What the run's own file of metrics says now is shown on its page too."""
    from sao.training.summary import refreshed, write_verdict

    if found is not None and found.verdict is not None:
        write_verdict(run, model.step, found.verdict)
    if model.config.log.report and (page := refreshed(run, model, dataset)) is not None:
        print(f"look at {page}")


def _before(target: Path | None, run: "Run | None" = None) -> list[dict]:
    """What an earlier evaluation wrote into the file; found out before an hour of work goes into another.

    What lies in a run's own folder is of this run, though it has been moved since.
    """
    from sao.cli.output import writable
    from sao.evaluation import read_json

    if target is None:
        return []
    writable(target)
    rows = read_json(target, _owner(target, run)) if target.exists() else []
    if run is not None and target.resolve().parent == run.evaluations.resolve():
        for row in rows:
            row["protocol"]["run"] = str(run.folder.resolve())
    return rows


def _owner(target: Path, run: "Run | None") -> Path | None:
    """The folder of the run where the file is its own."""
    return run.folder if run is not None and target.parent == run.evaluations else None


def _default_file(run: "Run", step: int, arguments: Namespace) -> Path:
    name = f"step-{step:08d}-{arguments.feature}-{arguments.weights}"
    if arguments.data is not None:
        name += "-on-" + re.sub(r"[^A-Za-z0-9.]+", "_", Path(arguments.data).resolve().name)
    if arguments.labels is not None:
        name += ("_" if arguments.data is not None else "-on-") + re.sub(r"[^A-Za-z0-9.]+", "_", Path(arguments.labels).name)
    return run.evaluations / f"{name}.json"


def _labels(given: str | None) -> "LabelFile | None":
    """Read before anything is computed."""
    if given is None:
        return None
    from sao.data.labels import read_labels

    return read_labels(given)


def _minutes(given: str) -> float | None:
    """A number, or none."""
    if given == "none":
        return None
    try:
        minutes = float(given)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < float("inf"):
        raise InputError(f"--budget is {given!r}: give minutes, or none")
    return minutes


def _generation(model: "Model", dataset: "Dataset", names: list[str] | None, arguments: Namespace, facts: dict) -> list:
    """Generated samples against as many held-out ones, and against the training set for copies."""
    from sao.data.dataset import Images
    from sao.evaluation import evaluate_generation, memorised

    wanted = set(GENERATION if names is None else names) & set(GENERATION)
    if not wanted or (names is None and arguments.samples is None):
        if arguments.inception is not None:
            raise InputError("--inception is for generated images: add --metrics is,fid, or --samples N")
        return []
    count = arguments.samples or min(10_000, len(dataset.test))
    drawn = model.bytes_of(model.sample(count, arguments.seed))
    metrics = []
    if len(model.facts.shape) == 3 and model.facts.shape[0] not in (1, 3) and wanted - {"memorised"}:
        if names is not None:
            raise InputError(f"IS and FID see colours, and these images have {model.facts.shape[0]} channels: leave them out")
        warn(f"IS and FID are left out: they see colours, and these images have {model.facts.shape[0]} channels")
        wanted &= {"memorised"}
    if isinstance(dataset.test, Images) and isinstance(dataset.train, Images):
        if wanted - {"memorised"}:
            download = arguments.inception == "download"
            weights = None if download else arguments.inception
            found = evaluate_generation(
                dataset.test.bytes[:count], drawn, weights, download=download, seed=arguments.seed, device=model.device
            )
            metrics += [metric for metric in found if metric.name.split("_")[0] in wanted]
            if "is" in wanted and not any(metric.name.split("_")[0] == "is" for metric in found):
                warn("Inception Score left out: the installed Inception has no logits; give --inception FILE or none")
        if "memorised" in wanted:
            metrics.append(memorised(drawn, dataset.train.bytes).share)
    elif wanted == {"memorised"} or names is None:
        metrics.append(memorised(drawn, dataset.train.rows).share)  # pyright: ignore[reportAttributeAccessIssue]
    else:
        raise InputError("vectors have no image metrics: of the generation metrics only memorised applies")
    return [metric.with_protocol(facts) for metric in metrics]
