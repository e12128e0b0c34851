"""Runs on the same samples, tested against each other sample by sample: for the report of several runs and for `sao sweep`."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sao.evaluation.budget import Budget
from sao.evaluation.comparison import compare
from sao.evaluation.evaluator import chosen_rows
from sao.evaluation.features import Features
from sao.evaluation.result import Metric
from sao.evaluation.suite import FEWEST, evaluate
from sao.report.gallery import Gallery
from sao.report.history import word_of

TESTED = ("knn5", "svm", "kmeans")
MOST = 2000  # samples of each split: a page must not take minutes
MINUTES = 1.0
RESTARTS = 10  # of k-means


@dataclass(frozen=True)
class Scored:
    """The metrics of a run on the samples of a gallery; `reason` where they cannot be measured."""

    gallery: Gallery
    metrics: dict[str, Metric]
    reason: str | None = None


def rows_to_score(gallery: Gallery, seed: int = 0) -> tuple[Gallery, np.ndarray]:
    """A gallery of the samples that runs are tested on, and their places in the whole one."""
    if gallery.held_out is None:
        return gallery, np.arange(len(gallery))
    labels = gallery.labels
    places = []
    for split in (~gallery.held_out, gallery.held_out):
        own = np.flatnonzero(split)
        places.append(own[chosen_rows(len(own), None if labels is None else labels[own], MOST, seed)])
    rows = [gallery.rows[0][places[0]], gallery.rows[1][places[1] - len(gallery.rows[0])]]
    held_out = np.repeat([False, True], [len(some) for some in places])
    return Gallery(gallery.parts, rows, held_out, gallery.total), np.concatenate(places)


def scored(gallery: Gallery, features: np.ndarray, seed: int = 0) -> Scored:
    """Of features (n, d) of the samples that `rows_to_score` chose."""
    labels, held_out = gallery.labels, gallery.held_out
    if reason := _unscorable(labels, held_out):
        return Scored(gallery, {}, reason)
    assert labels is not None
    assert held_out is not None
    train, test = (Features(features[some], labels[some]) for some in (~held_out, held_out))
    found = evaluate(train, test, TESTED, seed, repeats=RESTARTS, lenient=True, budget=Budget(MINUTES))
    return Scored(gallery, {metric.name: metric for metric in found})


def paired_test(first: Scored | None, second: Scored | None, pairs: int = 1) -> dict[str, Any]:
    """The second run's metrics less the first's on the same held-out samples; or why there is nothing to test.

    p and intervals are corrected for the metrics, and for as many `pairs` of runs as are looked at.
    """
    if first is None or second is None:
        return {"reason": "the data of one was not at hand", "rows": []}
    if reason := first.reason or second.reason or _difference(first.gallery, second.gallery):
        return {"reason": reason, "rows": []}
    able = [name for name in TESTED if _measured(first.metrics[name]) and _measured(second.metrics[name])]
    results = []
    for name in able:
        one = compare(second.metrics[name], {"first": first.metrics[name]}, comparisons=len(able) * pairs)
        results.append(
            {
                "metric": name,
                "word": word_of(name),
                "first": one.theirs,
                "second": one.ours,
                "difference": one.difference,
                "interval": [one.low, one.high],
                "p": one.p,
                "decided": one.decided,
            }
        )
    held_out = first.gallery.held_out
    samples = 0 if held_out is None else int(held_out.sum())
    return {"reason": None if able else "nothing could be measured", "rows": results, "samples": samples}


def _unscorable(labels: np.ndarray | None, held_out: np.ndarray | None) -> str | None:
    if labels is None or held_out is None:
        return "there are no labels"
    if len(np.unique(labels)) < 2:
        return "all samples have the same label"
    if held_out.sum() < FEWEST:
        return f"{int(held_out.sum())} held-out samples are too few"
    return None


def _difference(a: Gallery, b: Gallery) -> str | None:
    if a.names != b.names or not np.array_equal(a.held_out, b.held_out):  # pyright: ignore[reportArgumentType]
        return "they hold out different samples"
    if not np.array_equal(a.labels, b.labels):  # pyright: ignore[reportArgumentType]
        return "their labels differ"
    return None


def _measured(metric: Metric) -> bool:
    return metric.right is not None and math.isfinite(metric.value)
