"""Two runs on the same samples, tested against each other sample by sample."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from sao.evaluation.budget import Budget
from sao.evaluation.comparison import compare
from sao.evaluation.evaluator import chosen_rows
from sao.evaluation.features import Features
from sao.evaluation.suite import FEWEST, evaluate
from sao.report.history import METRIC_WORDS
from sao.report.points import Points

TESTED = ("knn5", "svm", "kmeans")
MOST = 2000  # samples of each split: a page must not take minutes
MINUTES = 1.0
RESTARTS = 10  # of k-means


def paired_test(first: Points | None, second: Points | None, seed: int = 0) -> dict[str, Any]:
    """The second run's metrics less the first's on the same held-out samples; or why there is nothing to test."""
    if first is None or second is None:
        return {"reason": "the data of one was not at hand", "rows": []}
    if reason := _untestable(first, second):
        return {"reason": reason, "rows": []}
    held_out, labels = first.gallery.held_out, first.gallery.labels
    assert held_out is not None
    assert labels is not None
    rows = []
    for split in (~held_out, held_out):
        places = np.flatnonzero(split)
        rows.append(places[chosen_rows(len(places), labels[places], MOST, seed)])
    (train, test), other = (_splits(points, labels, rows) for points in (second, first))
    found = evaluate(train, test, TESTED, seed, {"other": other}, repeats=RESTARTS, lenient=True, budget=Budget(MINUTES))
    metrics = {metric.name: metric for metric in found}
    able = [name for name in TESTED if _measured(metrics[name]) and _measured(metrics[f"other/{name}"])]
    results = []
    for name in able:
        other = replace(metrics[f"other/{name}"], name=name)
        one = compare(metrics[name], {"other": other}, comparisons=len(able))
        results.append(
            {
                "word": METRIC_WORDS[name],
                "first": one.theirs,
                "second": one.ours,
                "difference": one.difference,
                "interval": [one.low, one.high],
                "decided": one.decided,
            }
        )
    return {"reason": None if able else "nothing could be measured", "rows": results, "samples": len(rows[1])}


def _splits(points: Points, labels: np.ndarray, rows: list[np.ndarray]) -> tuple[Features, Features]:
    train, test = (Features(points.features[some], labels[some]) for some in rows)
    return train, test


def _untestable(first: Points, second: Points) -> str | None:
    a, b = first.gallery, second.gallery
    if a.labels is None or b.labels is None or a.held_out is None or b.held_out is None:
        return "there are no labels"
    if a.names != b.names or not np.array_equal(a.held_out, b.held_out):
        return "they hold out different samples"
    if not np.array_equal(a.labels, b.labels):
        return "their labels differ"
    if len(np.unique(a.labels)) < 2:
        return "all samples have the same label"
    if a.held_out.sum() < FEWEST:
        return f"{int(a.held_out.sum())} held-out samples are too few"
    return None


def _measured(metric: Any) -> bool:
    return metric.right is not None and math.isfinite(metric.value)
