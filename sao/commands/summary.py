"""The table at the end of a run: what was learnt beside doing nothing, and what to type next."""

from sao.config import Config
from sao.data.samples import Dataset
from sao.engine.features import extract, raw_inputs
from sao.engine.log import Log, clock
from sao.engine.loop import new_method
from sao.engine.run import Run
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
    untrained = new_method(config, dataset, device)
    rows: list[tuple[str, list[Metric]]] = []
    for name, of in (
        ("learnt features", lambda samples: extract(method.features, samples, device)),
        ("raw inputs", raw_inputs),
        ("untrained network", lambda samples: extract(untrained.features, samples, device)),
    ):
        rows.append((name, _measured(dataset, of, config.seed)))
    facts = {"split": "test", "feature": "backbone", "weights": "ema", "seed": config.seed}
    write_json(
        run.evaluations / "summary.json",
        [m.renamed(f"{name}: {m.name}").with_protocol(facts) for name, metrics in rows for m in metrics],
    )
    names = [metric.name for metric in rows[0][1]]
    log.say("")
    log.say(f"held-out samples: {len(dataset.test)}; all numbers: {run.evaluations / 'summary.json'}")
    log.say(" " * 20 + "".join(f"{name:>12}" for name in names))
    for name, metrics in rows:
        log.say(f"{name:20}" + "".join(f"{metric.value:12.3f}" for metric in metrics))
    log.say("")
    pictures = sorted(run.samples.glob("*.png"))
    log.say(f"trained in {clock(seconds)}; the run is in {run.folder}")
    if pictures:
        log.say(f"look at       {pictures[-1]}")
    log.say(f"next          sao eval {run.folder}")
    log.say(f"              sao embed {run.folder} {config.data.source} -o features.npz")


def _measured(dataset: Dataset, of, seed: int) -> list[Metric]:
    test = of(dataset.test)
    if dataset.train.labels is None or dataset.test.labels is None:
        return [effective_rank(test)]
    train_part = dataset.train
    if len(train_part) > LIMIT:
        import numpy as np

        train_part = train_part.select(np.sort(np.random.default_rng(seed).permutation(len(train_part))[:LIMIT]))
    both = (of(train_part), train_part.labels, test, dataset.test.labels)
    return [
        kmeans_accuracy(test, dataset.test.labels, seed=seed),
        linear_svm(*both, seed=seed),
        *knn_accuracy(*both, ks=(1,)),
        effective_rank(test),
    ]
