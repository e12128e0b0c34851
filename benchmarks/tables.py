"""Tables of scikit-learn given to the estimator: features beside raw inputs, their PCA and the untrained network.

python benchmarks/tables.py [--seeds 3] [--only wine]
"""

import argparse
import time
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn import datasets

import sao
from sao.data.dataset import Samples
from sao.data.split import held_out_rows
from sao.evaluation import Features, Verdict, judge
from sao.evaluation.extract import extract, raw_inputs
from sao.methods import Method
from sao.training.model import Model

TABLES = ("wine", "breast_cancer", "digits")
HELD_OUT = 0.3
SHOWN = ("kmeans", "svm", "knn1")
ROWS = {"": "learnt features", "raw/": "raw inputs", "pca/": "PCA", "untrained/": "untrained network"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", choices=TABLES)
    options = parser.parse_args()
    for table in TABLES:
        if options.only in (None, table):
            report(table, [judged_table(table, seed) for seed in range(options.seeds)])


def judged_table(name: str, seed: int) -> Verdict:
    values, labels = getattr(datasets, f"load_{name}")(return_X_y=True)
    train, test = held_out_rows(len(values), labels, HELD_OUT, seed)
    started = time.monotonic()
    estimator = sao.StructuralEmbedding(len(np.unique(labels)), random_state=seed).fit(values[train])
    print(f"{name}, seed {seed}: {estimator.n_steps_} steps in {time.monotonic() - started:.0f} s", flush=True)
    for note in estimator.notes_ if seed == 0 else []:
        print(note)
    parts = [replace(estimator.model_.samples(values[rows]), labels=labels[rows]) for rows in (train, test)]
    return judged(estimator.model_, *parts, seed=seed, components=max(2, values.shape[1] // 2))


def judged(model: Model, train: Samples, test: Samples, seed: int, components: int) -> Verdict:
    def features(method: Method) -> tuple[np.ndarray, np.ndarray]:
        return extract(method.features, train, model.device), extract(method.features, test, model.device)

    named = zip(features(model.method), (train, test), ("train", "test"), strict=True)
    learnt, scored = (Features(values, part.labels, {"split": split}) for values, part, split in named)
    raw = raw_inputs(train), raw_inputs(test)
    return judge(learnt, scored, raw, features(model.untrained()), seed=seed, components=components)


def report(name: str, verdicts: list[Verdict]) -> None:
    """Mean (and spread) over the seeds as a Markdown table, then each seed's verdict."""
    found: list[dict[str, Any]] = [{metric.name: metric for metric in verdict.metrics} for verdict in verdicts]
    first = found[0]["svm"].protocol
    print(f"\n{name}: {first['n_train']} training and {first['n_test']} held-out samples, {len(verdicts)} seeds\n")
    print(f"| | {' | '.join(SHOWN)} |\n|---|{'---|' * len(SHOWN)}")
    for prefix, row in ROWS.items():
        cells = []
        for metric in SHOWN:
            values = [metrics[prefix + metric].value for metrics in found]
            cells.append(f"{np.mean(values):.3f}" + (f" ± {np.std(values):.3f}" if len(values) > 1 else ""))
        print(f"| {row} | {' | '.join(cells)} |")
    for seed, verdict in enumerate(verdicts):
        print(f"\nseed {seed}: {verdict.sentence}")
    print(flush=True)


if __name__ == "__main__":
    main()
