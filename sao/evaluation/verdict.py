"""Is this embedding better than doing nothing: the same metrics on raw inputs, their PCA and the untrained network."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sao.errors import InputError
from sao.evaluation.features import Features
from sao.evaluation.inputs import principal
from sao.evaluation.result import Metric
from sao.evaluation.suite import UNLABELLED, evaluate

JUDGED = ("kmeans", "svm", "knn5")
WORDS = {"kmeans": "k-means", "svm": "linear SVM", "knn5": "5-nearest-neighbour"}
COLLAPSED = 1.5  # an effective rank this low means that nearly everything lies on one line


@dataclass(frozen=True)
class Verdict:
    """`better` is None where the metrics contradict each other or there are no labels to tell."""

    better: bool | None
    sentence: str
    metrics: list[Metric]


def judge(
    train: Features,
    test: Features,
    raw: tuple[Any, Any],
    untrained: tuple[Any, Any] | None = None,
    seed: int = 0,
    limit: int = 10_000,
    components: int | None = None,
) -> Verdict:
    """Compare features with doing nothing; `raw` and `untrained` are (train, test) rows of the same samples, in the same order.

    At most `limit` samples of each split are used, and PCA keeps as many dimensions as the features have unless told otherwise.
    """
    pairs = {"raw": raw} if untrained is None else {"raw": raw, "untrained": untrained}
    chosen = [_rows(len(split), limit, seed) for split in (train, test)]
    references = {name: _alike(name, pair, train, test, chosen) for name, pair in pairs.items()}
    train, test = train.select(chosen[0]), test.select(chosen[1])
    references["pca"] = _pca(*references["raw"], components or train.values.shape[1])
    labelled = train.labels is not None and test.labels is not None
    names = [*JUDGED, "knn1", *UNLABELLED] if labelled else list(UNLABELLED)
    metrics = evaluate(train, test, names, seed, references)
    table = {metric.name: metric for metric in metrics}
    better, sentence = (_with_labels if labelled else _without_labels)(table, list(references))
    return Verdict(better, sentence, metrics)


def _with_labels(table: dict[str, Metric], references: list[str]) -> tuple[bool | None, str]:
    wins, losses, ties = [], [], []
    for name in JUDGED:
        ours = table[name]
        best = max((table[f"{other}/{name}"] for other in references), key=lambda metric: metric.value)
        gap, noise = ours.value - best.value, 2 * math.hypot(_error(ours), _error(best))
        text = f"{WORDS[name]} {ours.value:.3f} against {best.value:.3f} ({best.name.split('/')[0]})"
        (wins if gap > noise else losses if gap < -noise else ties).append(text)
    against = f"the best of {', '.join(references)}"
    equal = f"; no measurable difference at {', '.join(ties)}" if ties else ""
    if wins and not losses:
        return True, f"Yes, this embedding is better than doing nothing: {', '.join(wins)}, {against}{equal}."
    if wins:
        return None, (
            f"Only in part is this embedding better than doing nothing: it wins at {', '.join(wins)} "
            f"but loses at {', '.join(losses)}, {against}{equal}."
        )
    if losses:
        return False, f"No, this embedding is worse than doing nothing: {', '.join(losses)}, {against}{equal}."
    return False, f"No, this embedding is not measurably better than doing nothing{equal}, {against}."


def _without_labels(table: dict[str, Metric], references: list[str]) -> tuple[bool | None, str]:
    rank, agreement = table["effective_rank"], table["cluster_agreement"]
    if rank.value < COLLAPSED:
        return False, (
            f"No, this embedding is not better than doing nothing: it has collapsed to an effective rank of {rank.value:.2f} "
            f"of {rank.protocol['dimensions']} dimensions."
        )
    stablest = max((table[f"{other}/cluster_agreement"] for other in references), key=lambda metric: metric.value)
    more = "more" if agreement.value > stablest.value else "no more"
    return None, (
        "Without labels nobody can say whether this embedding is better than doing nothing; it has not collapsed "
        f"(effective rank {rank.value:.1f} of {rank.protocol['dimensions']}) and its clusters are {more} stable between seeds "
        f"(ARI {agreement.value:.2f}) than those of {stablest.name.split('/')[0]} ({stablest.value:.2f}), "
        "which shows grouping but not that the groups mean anything: a hundred labelled samples would settle it."
    )


def _error(metric: Metric) -> float:
    """Standard error of an accuracy: the finite test split, and the finite number of restarts where there are any."""
    sampling = math.sqrt(max(metric.value * (1 - metric.value), 0.0) / metric.protocol["n_test"])
    restarts = 0.0 if metric.std is None else metric.std / math.sqrt(metric.protocol["restarts"])
    return math.hypot(sampling, restarts)


def _rows(n: int, limit: int, seed: int) -> np.ndarray:
    return np.sort(np.random.default_rng(seed).permutation(n)[:limit])


def _alike(name: str, pair: tuple[Any, Any], train: Features, test: Features, chosen: list[np.ndarray]):
    """Reference features of the same samples with the same labels, so that only the representation differs."""
    both = []
    for part, split, rows in zip(pair, (train, test), chosen, strict=True):
        values = np.asarray(part).reshape(len(part), -1)
        if len(values) != len(split):
            raise InputError(f"{name} has {len(values)} rows for {len(split)} samples: give the same samples in the same order")
        facts = {**split.protocol, "feature": name, "weights": "untrained" if name == "untrained" else "none"}
        both.append(Features(values[rows], None if split.labels is None else split.labels[rows], facts))
    return both[0], both[1]


def _pca(train: Features, test: Features, components: int) -> tuple[Features, Features]:
    """Projections on the leading directions of the training inputs."""
    mean = train.values.mean(dim=0)
    kept = min(components, *train.values.shape)
    directions = principal(train.values - mean)[1][:, -kept:]  # in ascending order
    facts = {"feature": f"pca of raw inputs, {directions.shape[1]} dimensions"}
    projected = [(split.values - mean) @ directions for split in (train, test)]
    return (
        Features(projected[0], train.labels, train.protocol | facts),
        Features(projected[1], test.labels, test.protocol | facts),
    )
