"""Every metric of features in one call, by name."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from sao.errors import InputError
from sao.evaluation.clusters import cluster_agreement, clustering, strict_kmeans_accuracy
from sao.evaluation.features import Features
from sao.evaluation.neighbours import knn_accuracy
from sao.evaluation.probe import few_shot, linear_probe
from sao.evaluation.rank import effective_rank, uniformity
from sao.evaluation.result import Metric
from sao.evaluation.svm import linear_svm

LABELLED = (
    "svm",
    "kmeans",
    "kmeans_strict",
    "nmi",
    "purity",
    "ari",
    "knn1",
    "knn5",
    "probe",
    "probe_1pct",
    "probe_10pct",
)
UNLABELLED = ("effective_rank", "uniformity", "cluster_agreement")
DEFAULT = (*LABELLED, *UNLABELLED)
CLUSTERS_WITHOUT_LABELS = 10


def evaluate(
    train: Features,
    test: Features,
    metrics: Sequence[str] | None = None,
    seed: int = 0,
    reference: Mapping[str, tuple[Features, Features]] | None = None,
    k: int | None = None,
    repeats: int = 20,
) -> list[Metric]:
    """Metrics in the order asked for (default: all that the labels allow), then the same of each reference as `name/metric`.

    k is the number of clusters: that of classes unless given, 10 without labels.
    """
    names = check_names(metrics, labelled=train.labels is not None and test.labels is not None)
    measured = _measure(train, test, names, seed, k, repeats)
    for name, (other_train, other_test) in (reference or {}).items():
        others = _measure(other_train, other_test, names, seed, k, repeats)
        measured += [metric.renamed(f"{name}/{metric.name}") for metric in others]
    return measured


def check_names(metrics: Sequence[str] | None, labelled: bool) -> list[str]:
    """The metrics to measure, each once; unknown names and metrics that need absent labels are errors."""
    if metrics is None:
        return list(DEFAULT if labelled else UNLABELLED)
    for name in metrics:
        if name not in DEFAULT:
            close = difflib.get_close_matches(name, DEFAULT, n=1, cutoff=0.0)
            raise InputError(f"unknown metric {name!r}: did you mean {close[0]!r}? There are {', '.join(DEFAULT)}")
        if name in LABELLED and not labelled:
            raise InputError(f"metric {name!r} needs labels on both splits: give them, or use {', '.join(UNLABELLED)}")
    if not metrics:
        raise InputError(f"metrics is empty: choose from {', '.join(DEFAULT)}")
    return list(dict.fromkeys(metrics))


def _measure(train: Features, test: Features, names: list[str], seed: int, k: int | None, repeats: int) -> list[Metric]:
    splits = (train.values, train.labels, test.values, test.labels)
    found: dict[str, Metric] = {}
    for name in names:
        if name in found:
            continue
        match name:
            case "svm":
                results = [linear_svm(*splits, seed=seed)]
            case "kmeans" | "nmi" | "purity" | "ari":  # one clustering yields all four
                results = clustering(test.values, test.labels, k, repeats, seed)
            case "kmeans_strict":
                results = [strict_kmeans_accuracy(*splits, k=k, repeats=repeats, seed=seed)]
            case "knn1" | "knn5":
                results = knn_accuracy(*splits, ks=(1, 5))
            case "probe":
                results = [linear_probe(*splits)]
            case "probe_1pct":
                results = [few_shot(*splits, share=0.01, seed=seed)]
            case "probe_10pct":
                results = [few_shot(*splits, share=0.1, seed=seed)]
            case "effective_rank":
                results = [effective_rank(test.values)]
            case "uniformity":
                results = [uniformity(test.values, seed=seed)]
            case _:
                results = [cluster_agreement(test.values, _clusters(test, k), seed=seed)]
        found.update({metric.name: metric for metric in results})
    facts: dict[str, Any] = {"split": "test", **train.protocol, **test.protocol}
    return [found[name].with_protocol(facts) for name in names]


def _clusters(test: Features, k: int | None) -> int:
    if k is not None:
        return k
    return CLUSTERS_WITHOUT_LABELS if test.labels is None else len(set(test.labels.tolist()))
