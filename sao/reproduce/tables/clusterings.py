"""Clusters beside the classes: those that a method made itself, or else k-means', and k-means with an equal number for all."""

from collections.abc import Sequence

import numpy as np

from sao.data.dataset import Dataset
from sao.engine.features import extract
from sao.evaluation.features import Features
from sao.evaluation.own_clusters import kmeans_clusters, own_clusters
from sao.evaluation.result import Metric
from sao.methods import Method

EQUAL = "_equal_k"
CLUSTERED = tuple(
    f"{name}{which}{chance}"
    for which in ("", EQUAL)
    for name in ("nmi", "purity", "purity_swapped")
    for chance in ("", "_chance")
)


def clusterings(test: Features | None, method: Method, dataset: Dataset, k: int, seed: int) -> list[Metric]:
    """NMI, purity and swapped purity of a row's own clusters and, as NAME_equal_k, of k-means with k clusters."""
    assert test is not None
    assert test.labels is not None, "the tables are of data with classes"
    if method.own_clusters is None:
        count = len(np.unique(test.labels))
        own = kmeans_clusters(test.values, test.labels, count, seed=seed)
    else:
        count = method.own_clusters
        own = own_clusters(_clusters(method, dataset), test.labels, count, seed)
    equal = [metric.renamed(metric.name + EQUAL) for metric in kmeans_clusters(test.values, test.labels, k, seed=seed)]
    return [Metric("k", count), *_beside_chance(own), Metric("k" + EQUAL, k), *_beside_chance(equal)]


def _clusters(method: Method, dataset: Dataset) -> np.ndarray:
    device = next(method.parameters()).device
    return extract(lambda inputs: method.clusters_of(inputs)[:, None].float(), dataset.test, device)[:, 0].astype(np.int64)


def _beside_chance(metrics: Sequence[Metric]) -> list[Metric]:
    pairs = [(metric, Metric(f"{metric.name}_chance", metric.protocol["chance"])) for metric in metrics]
    return [metric for pair in pairs for metric in pair]
