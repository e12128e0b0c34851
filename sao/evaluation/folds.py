"""Cross-validation: for labelled samples that come in one split, so that no score is of samples that a model was fitted to."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from sao.data.split import by_class
from sao.errors import InputError
from sao.evaluation.result import Metric, accuracy

FOLDS = 5


class Fitted(Protocol):
    """What a metric learns from the training split; it never sees another one before it scores it."""

    def score(self, test_x: Any, test_y: Any) -> list[Metric]: ...


def fold_of(labels: np.ndarray, seed: int = 0) -> np.ndarray:
    """The fold (n,) of each sample; every class is spread over the folds as evenly as it can be."""
    classes, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if counts.min() < 2:
        raise InputError(
            f"there is one sample of class {classes[counts.argmin()]}: cross-validation needs two of each; "
            "give more, or two splits (x_train, y_train, x_test, y_test)"
        )
    order = np.random.default_rng(seed).permutation(len(codes))
    fold = np.empty(len(codes), dtype=np.int64)
    # Classes one after the other, each where the one before it ended.
    fold[by_class(codes, order)[0]] = np.arange(len(codes)) % FOLDS
    return fold


def cross_validated(fit: Callable[[Any, Any], Fitted], values: Any, labels: np.ndarray, seed: int = 0) -> list[Metric]:
    """Accuracies of all samples, each by the model that was fitted to the other folds."""
    fold = fold_of(labels, seed)
    parts = [(fold != i, fold == i) for i in range(FOLDS) if (fold == i).any()]
    found = [fit(values[rest], labels[rest]).score(values[scored], labels[scored]) for rest, scored in parts]
    pooled = []
    for metrics in zip(*found, strict=True):
        right = np.zeros((*metrics[0].right.shape[:-1], len(labels)), dtype=bool)
        for metric, (_, scored) in zip(metrics, parts, strict=True):
            right[..., scored] = metric.right
        protocol = metrics[0].protocol | {
            "split": f"one split, {len(parts)}-fold cross-validation",
            "n_train": int(np.mean([metric.protocol["n_train"] for metric in metrics])),
            "n_test": len(labels),
        }
        if "C_candidates" in protocol:  # each fold chose its own
            protocol["C"] = [metric.protocol["C"] for metric in metrics]
            protocol.pop("C_held_out_accuracy")
            protocol["C_at_edge"] = any(metric.protocol["C_at_edge"] for metric in metrics)
        pooled.append(accuracy(metrics[0].name, right, protocol))
    return pooled
