"""How the clusters that a method made itself agree with the labels, beside what any clusters of their sizes would score."""

from typing import Any

import numpy as np

from sao.evaluation.inputs import feature_matrix
from sao.evaluation.kmeans import spherical_kmeans
from sao.evaluation.partitions import nmi, purity
from sao.evaluation.result import Metric

SHUFFLES = 20  # of the labels, for the level of chance


def swapped_purity(clusters: Any, labels: Any) -> float:
    """Share of samples that belong to the commonest cluster of their class: purity with its arguments exchanged.

    The code of the self-conditioned GAN reports it as purity. It falls as clusters become more, and purity rises.
    """
    return purity(labels, clusters)


def own_clusters(clusters: Any, labels: Any, k: int, seed: int = 0) -> list[Metric]:
    """NMI, purity and swapped purity of clusters (n,) out of k, each with its level of chance in the protocol."""
    clusters, labels, found = np.asarray(clusters), np.asarray(labels), []
    for name, measure in {"nmi": nmi, "purity": purity, "purity_swapped": swapped_purity}.items():
        draws = np.random.default_rng(seed)
        protocol = {
            "chance": float(np.mean([measure(clusters, draws.permutation(labels)) for _ in range(SHUFFLES)])),
            "chance_is": f"mean over {SHUFFLES} shuffles of the labels",
            "clusters_by": "the method itself",
            "k": k,
            "classes": len(np.unique(labels)),
            "n_test": len(labels),
        }
        found.append(Metric(name, measure(clusters, labels), None, protocol))
    return found


def kmeans_clusters(features: Any, labels: Any, k: int, repeats: int = 20, seed: int = 0) -> list[Metric]:
    """The same of k-means, which clusters the features that it is scored on; mean over its runs."""
    features = feature_matrix("features", features)
    runs = [own_clusters(run.assign(features).cpu(), labels, k, seed) for run in spherical_kmeans(features, k, repeats, seed)]
    found = []
    for metrics in zip(*runs, strict=True):
        values = [metric.value for metric in metrics]
        chance = float(np.mean([metric.protocol["chance"] for metric in metrics]))
        facts = {"chance": chance, "clusters_by": "spherical k-means on the scored features", "restarts": repeats}
        first = metrics[0]
        found.append(Metric(first.name, float(np.mean(values)), float(np.std(values)), {**first.protocol, **facts}))
    return found
