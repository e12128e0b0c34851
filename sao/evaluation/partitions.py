"""How well two labelings of the same samples agree: matched accuracy, purity, NMI, ARI, all from one contingency table."""

from typing import Any

import numpy as np
from torch import Tensor

from sao.errors import InputError


def contingency(clusters: Any, labels: Any) -> np.ndarray:
    """Counts (clusters, classes) of samples that share a cluster and a class."""
    first, second = _codes("clusters", clusters), _codes("labels", labels)
    if len(first) != len(second):
        raise InputError(f"clusters has {len(first)} samples but labels has {len(second)}: give one of each per sample")
    table = np.zeros((first.max() + 1, second.max() + 1), dtype=np.int64)
    np.add.at(table, (first, second), 1)
    return table


def best_matching(table: np.ndarray) -> np.ndarray:
    """Class for each cluster, one to one, so that most samples are right; -1 where clusters outnumber classes."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(table, maximize=True)
    match = np.full(len(table), -1)
    match[rows] = columns
    return match


def matched_accuracy(clusters: Any, labels: Any) -> float:
    """Share of samples that are right under the best one-to-one matching of clusters with classes."""
    table = contingency(clusters, labels)
    match = best_matching(table)
    matched = match >= 0
    return float(table[matched.nonzero()[0], match[matched]].sum() / table.sum())


def purity(clusters: Any, labels: Any) -> float:
    """Share of samples that belong to the commonest class of their cluster."""
    table = contingency(clusters, labels)
    return float(table.max(axis=1).sum() / table.sum())


def nmi(clusters: Any, labels: Any) -> float:
    """Mutual information over the arithmetic mean of the two entropies."""
    joint = contingency(clusters, labels) / len(_codes("labels", labels))
    rows, columns = joint.sum(axis=1), joint.sum(axis=0)
    information = _entropy(rows) + _entropy(columns) - _entropy(joint)
    scale = (_entropy(rows) + _entropy(columns)) / 2
    # Two labelings of one group each tell nothing and agree fully; scikit-learn calls that 1 as well.
    return 1.0 if scale == 0 else float(min(max(information / scale, 0.0), 1.0))


def ari(clusters: Any, labels: Any) -> float:
    """Rand index of sample pairs, corrected for chance: 0 for random labelings, 1 for equal ones."""
    table = contingency(clusters, labels)
    together, in_rows, in_columns = _pairs(table), _pairs(table.sum(axis=1)), _pairs(table.sum(axis=0))
    expected = in_rows * in_columns / _pairs(np.array([table.sum()])) if table.sum() > 1 else 0.0
    largest = (in_rows + in_columns) / 2
    return 1.0 if largest == expected else float((together - expected) / (largest - expected))


def _codes(name: str, labels: Any) -> np.ndarray:
    array = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.ndim != 1 or not len(array):
        raise InputError(f"{name} must be one group for each sample, got shape {array.shape}: give a non-empty (n,) array")
    return np.unique(array, return_inverse=True)[1]


def _entropy(shares: np.ndarray) -> float:
    shares = shares[shares > 0]
    return float(-(shares * np.log(shares)).sum())


def _pairs(counts: np.ndarray) -> float:
    counts = counts.astype(np.float64)
    return float((counts * (counts - 1) / 2).sum())
