"""How well two labelings of the same samples agree: matched accuracy, purity, NMI, ARI."""

from typing import Any

import numpy as np
from torch import Tensor

from sao.errors import InputError


def matched_samples(clusters: Any, labels: Any) -> np.ndarray:
    """Which samples (n,) are right under the best one-to-one matching of clusters with classes."""
    clusters, labels = _codes(clusters, labels)
    match = best_matching(_contingency(clusters, labels))
    return match[clusters] == labels


def matched_accuracy(clusters: Any, labels: Any) -> float:
    """Share of samples that are right under the best one-to-one matching of clusters with classes."""
    return float(matched_samples(clusters, labels).mean())


def best_matching(table: np.ndarray) -> np.ndarray:
    """Class for each cluster, one to one, so that most samples are right; -1 where clusters outnumber classes."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(table, maximize=True)
    match = np.full(len(table), -1)
    match[rows] = columns
    return match


def purity(clusters: Any, labels: Any) -> float:
    """Share of samples that belong to the commonest class of their cluster."""
    table = _contingency(*_codes(clusters, labels))
    return float(table.max(axis=1).sum() / table.sum())


def nmi(clusters: Any, labels: Any) -> float:
    """Mutual information over the arithmetic mean of the two entropies."""
    from sklearn.metrics import normalized_mutual_info_score

    clusters, labels = _codes(clusters, labels)
    return float(normalized_mutual_info_score(labels, clusters))


def ari(clusters: Any, labels: Any) -> float:
    """Rand index of sample pairs, corrected for chance: 0 for random labelings, 1 for equal ones."""
    from sklearn.metrics import adjusted_rand_score

    clusters, labels = _codes(clusters, labels)
    return float(adjusted_rand_score(labels, clusters))


def _contingency(clusters: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Counts (clusters, classes) of samples that share a cluster and a class."""
    from sklearn.metrics.cluster import contingency_matrix

    return np.asarray(contingency_matrix(clusters, labels))


def _codes(clusters: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """Both as codes 0, 1, …, checked."""
    both = []
    for name, groups in (("clusters", clusters), ("labels", labels)):
        array = groups.detach().cpu().numpy() if isinstance(groups, Tensor) else np.asarray(groups)
        if array.ndim != 1 or not len(array):
            raise InputError(f"{name} must be one group for each sample, got shape {array.shape}: give a non-empty (n,) array")
        both.append(np.unique(array, return_inverse=True)[1])
    if len(both[0]) != len(both[1]):
        raise InputError(f"clusters has {len(both[0])} samples but labels has {len(both[1])}: give one of each per sample")
    return both[0], both[1]
