"""Clustering metrics: the paper's protocol, the stricter one beside it, and agreement between seeds."""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sao.core import agreement
from sao.errors import InputError
from sao.evaluation.inputs import Task, check_splits, feature_matrix, label_codes
from sao.evaluation.kmeans import SphericalKMeans, spherical_kmeans
from sao.evaluation.partitions import ari, best_matching, matched_samples, nmi, purity
from sao.evaluation.result import Metric, accuracy


def kmeans_accuracy(features: Any, labels: Any, k: int | None = None, repeats: int = 20, seed: int = 0) -> Metric:
    """The paper's protocol: fit and match on the validation features themselves; mean over the repeats."""
    return clustering(features, labels, k, repeats, seed)[0]


def clustering(features: Any, labels: Any, k: int | None = None, repeats: int = 20, seed: int = 0) -> list[Metric]:
    """Of the same k-means runs: matched accuracy, NMI, purity and ARI, and those of the run with the best objective."""
    features = feature_matrix("features", features)
    codes, classes = label_codes("labels", labels, len(features))
    k = len(classes) if k is None else k
    fitted = spherical_kmeans(features, k, repeats, seed)
    runs = [run.assign(features) for run in fitted]
    best = agreement.best({run: fitted[run].cosine_sum for run in range(repeats)})
    protocol = {
        **_protocol(k, repeats, seed),
        "fitted_on": "the scored features",
        "classes": len(classes),
        "n_test": len(features),
    }
    matched = {**protocol, "matched_on": "the scored features", "matching": "optimal one-to-one"}
    chosen = {"chosen": "the greatest sum of cosines"}
    return [
        accuracy("kmeans", np.stack([matched_samples(run, codes) for run in runs]), matched),
        accuracy("kmeans_best", matched_samples(runs[best], codes), {**matched, **chosen}),
        _over_runs("nmi", [nmi(run, codes) for run in runs], {**protocol, "nmi_mean": "arithmetic"}),
        _over_runs("purity", [purity(run, codes) for run in runs], protocol),
        _over_runs("ari", [ari(run, codes) for run in runs], protocol),
        Metric("kmeans_best_nmi", nmi(runs[best], codes), None, {**protocol, **chosen, "nmi_mean": "arithmetic"}),
        Metric("kmeans_best_ari", ari(runs[best], codes), None, {**protocol, **chosen}),
    ]


def strict_kmeans_accuracy(
    train_x: Any, train_y: Any, test_x: Any, test_y: Any, k: int | None = None, repeats: int = 20, seed: int = 0
) -> Metric:
    """Fit and match on the training split, score on the validation split: nothing of what is scored was seen before."""
    check_splits(train_x, train_y, test_x, test_y)
    return fit_strict_kmeans(train_x, train_y, k, repeats, seed).score(test_x, test_y)[0]


@dataclass(frozen=True, eq=False)
class MatchedKMeans:
    """The runs of k-means, and of each the class (k,) of every cluster."""

    task: Task
    runs: list[SphericalKMeans]
    matches: list[np.ndarray]
    protocol: dict[str, Any]

    def score(self, test_x: Any, test_y: Any) -> list[Metric]:
        x, y = self.task.scored(test_x, test_y)
        predicted = np.stack([match[run.assign(x).cpu().numpy()] for run, match in zip(self.runs, self.matches, strict=True)])
        return [accuracy("kmeans_strict", predicted == y.cpu().numpy(), {**self.protocol, "n_test": len(x)})]


def fit_strict_kmeans(train_x: Any, train_y: Any, k: int | None = None, repeats: int = 20, seed: int = 0) -> MatchedKMeans:
    x, y, task = Task.of(train_x, train_y)
    classes = len(task.classes)
    k = classes if k is None else k
    runs, matches = spherical_kmeans(x, k, repeats, seed), []
    for run in runs:
        table = np.zeros((k, classes), dtype=np.int64)
        # Counted by cluster number: an empty cluster must keep its row, or the matching would shift.
        np.add.at(table, (run.assign(x).cpu().numpy(), y.cpu().numpy()), 1)
        matches.append(best_matching(table))
    protocol = {
        **_protocol(k, repeats, seed),
        "fitted_on": "train",
        "matched_on": "train",
        "matching": "optimal one-to-one",
        "classes": classes,
        "n_train": len(x),
    }
    return MatchedKMeans(task, runs, matches, protocol)


def cluster_agreement(features: Any, k: int, repeats: int = 10, seed: int = 0) -> Metric:
    """Mean ARI over all pairs of k-means runs: near 1 when the data falls into k groups by itself, whatever the start."""
    if repeats < 2:
        raise InputError(f"repeats is {repeats}: agreement needs at least 2 runs")
    features = feature_matrix("features", features)
    runs = [run.assign(features) for run in spherical_kmeans(features, k, repeats, seed)]
    pairs = [ari(first, second) for first, second in itertools.combinations(runs, 2)]
    protocol = {**_protocol(k, repeats, seed), "statistic": "mean pairwise ARI", "n_test": len(features)}
    return _over_runs("cluster_agreement", pairs, protocol)


def _over_runs(name: str, scores: list[float], protocol: dict[str, Any]) -> Metric:
    values = torch.tensor(scores, dtype=torch.float64)
    return Metric(name, values.mean().item(), values.std(correction=0).item(), protocol)


def _protocol(k: int, repeats: int, seed: int) -> dict[str, Any]:
    return {
        "algorithm": "spherical k-means, greedy k-means++ starts, to convergence",
        "normalisation": "unit length",
        "k": k,
        "restarts": repeats,
        "seeds": f"{seed}..{seed + repeats - 1}",
    }
