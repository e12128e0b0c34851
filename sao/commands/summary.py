"""The table at the end of a run: what was learnt beside doing nothing, and what to type next."""

import warnings
from collections.abc import Callable

import numpy as np

from sao.config import Config
from sao.data.samples import Dataset, Samples
from sao.engine.features import extract, raw_inputs
from sao.engine.log import Log, clock
from sao.engine.loop import new_method
from sao.engine.run import Run
from sao.errors import InputError
from sao.evaluation.clusters import kmeans_accuracy
from sao.evaluation.neighbours import knn_accuracy
from sao.evaluation.rank import effective_rank
from sao.evaluation.result import Metric, write_json
from sao.evaluation.svm import linear_svm
from sao.methods import Method

LIMIT = 10_000  # training samples for the quick table; `sao eval` uses all


def print_summary(run: Run, config: Config, dataset: Dataset, method: Method, log: Log, seconds: float) -> None:
    """Measure learnt features, raw inputs and the untrained network alike; write eval/summary.json and print the table."""
    device = next(method.parameters()).device
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said when the run began
        untrained = new_method(config, dataset, device)
    rows: list[tuple[str, dict[str, Metric | str]]] = []
    for name, of in (
        ("learnt features", lambda samples: extract(method.features, samples, device)),
        ("raw inputs", raw_inputs),
        ("untrained network", lambda samples: extract(untrained.features, samples, device)),
    ):
        rows.append((name, _measured(dataset, of, config.seed)))
    facts = {"split": "test", "feature": "backbone", "weights": "ema", "seed": config.seed}
    write_json(
        run.evaluations / "summary.json",
        [
            metric.renamed(f"{name}: {metric.name}").with_protocol(facts)
            for name, metrics in rows
            for metric in metrics.values()
            if isinstance(metric, Metric)
        ],
    )
    names = list(rows[0][1])
    log.say("")
    log.say(f"held-out samples: {len(dataset.test)}; all numbers: {run.evaluations / 'summary.json'}")
    log.say(" " * 20 + "".join(f"{name:>16}" for name in names))
    for name, metrics in rows:
        cells = [f"{metric.value:.3f}" if isinstance(metric, Metric) else "-" for metric in metrics.values()]
        log.say(f"{name:20}" + "".join(f"{cell:>16}" for cell in cells))
    for name, reason in rows[0][1].items():
        if isinstance(reason, str):
            log.say(f"{name} was not measured: {reason}")
    log.say("")
    pictures = sorted(run.samples.glob("*.png"))
    log.say(f"trained in {clock(seconds)}; the run is in {run.folder}")
    if pictures:
        log.say(f"look at       {pictures[-1]}")
    log.say(f"next          sao eval {run.folder}")
    log.say(f"              sao embed {run.folder} {config.data.source} -o features.npz")


def _measured(dataset: Dataset, of: Callable[[Samples], np.ndarray], seed: int) -> dict[str, Metric | str]:
    """Metrics by name; in place of one that the data does not allow, the reason."""
    test = of(dataset.test)
    rank = {"effective_rank": _allowed(lambda: effective_rank(test))}
    if dataset.train.labels is None or dataset.test.labels is None:
        return rank
    train_part = dataset.train
    if len(train_part) > LIMIT:
        train_part = train_part.select(np.sort(np.random.default_rng(seed).permutation(len(train_part))[:LIMIT]))
    both = (of(train_part), train_part.labels, test, dataset.test.labels)
    return {
        "kmeans": _allowed(lambda: kmeans_accuracy(test, dataset.test.labels, seed=seed)),
        "svm": _allowed(lambda: linear_svm(*both, seed=seed)),
        "knn1": _allowed(lambda: knn_accuracy(*both, ks=(1,))[0]),
    } | rank


def _allowed(measure: Callable[[], Metric]) -> Metric | str:
    try:
        return measure()
    except InputError as error:
        return str(error)
