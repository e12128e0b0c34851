"""Is this embedding better than the baselines: raw inputs, their PCA, the untrained network and k-means patches?

A pretrained network saw other data, and labels: it is no baseline, but the verdict says whether it is the better choice.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from sao.core.agreement import best
from sao.errors import InputError
from sao.evaluation.comparison import Comparison, compare
from sao.evaluation.features import Features
from sao.evaluation.inputs import principal
from sao.evaluation.pretrained import PRETRAINED
from sao.evaluation.result import Metric
from sao.evaluation.suite import UNLABELLED, evaluate

JUDGED = ("kmeans", "manifold", "svm", "knn5")
WORDS = {"kmeans": "k-means", "manifold": "clusters along the manifold", "svm": "linear SVM", "knn5": "5-nearest-neighbour"}
COLLAPSED = 1.5  # an effective rank this low means that nearly everything lies on one line
COARSE = 0.02  # where differences must be larger than this to be seen, the number of samples is what limits


@dataclass(frozen=True)
class Verdict:
    """`better` is None where the metrics contradict each other, or nobody can tell: no labels, or too few samples."""

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
    """Compare features with baselines; `raw` and `untrained` are (train, test) rows of the same samples, in the same order.

    At most `limit` samples of each split are used, and PCA keeps as many dimensions as the features have unless told otherwise.
    """
    pairs = {"raw": raw} if untrained is None else {"raw": raw, "untrained": untrained}
    chosen = [np.sort(np.random.default_rng(seed).permutation(len(split))[:limit]) for split in (train, test)]
    references = {name: _alike(name, pair, train, test, chosen) for name, pair in pairs.items()}
    train, test = train.select(chosen[0]), test.select(chosen[1])
    references["pca"] = pca(*references["raw"], components or train.values.shape[1])
    labelled = train.labels is not None and test.labels is not None
    names = [*JUDGED, "knn1", *UNLABELLED] if labelled else list(UNLABELLED)
    return verdict_of(evaluate(train, test, names, seed, references))


def verdict_of(metrics: Sequence[Metric]) -> Verdict:
    """What metrics of features and, as `reference/metric`, of their references say together."""
    table = {metric.name: metric for metric in metrics}
    references = [name for name in dict.fromkeys(key.split("/")[0] for key in table if "/" in key) if name != PRETRAINED]
    if not references:
        raise InputError("there is nothing to compare with: measure raw inputs or an untrained network too")
    judged = [name for name in JUDGED if name in table]
    if not judged:
        return Verdict(*_without_labels(table, references), list(metrics))
    able = [
        name for name in judged if all(_measured(table.get(key)) for key in (name, *(f"{one}/{name}" for one in references)))
    ]
    if not able:
        reason = table[judged[0]].protocol.get("caution", "it was not measured")
        return Verdict(None, f"Nobody can say whether this embedding is better than the baselines: {reason}.", list(metrics))
    found = [
        compare(table[name], {other: table[f"{other}/{name}"] for other in references}, comparisons=len(able)) for name in able
    ]
    noted = {one.metric: _noted(table[one.metric], one, len(able)) for one in found}
    one_split = str(table[able[0]].protocol.get("split", "")).startswith("one split")
    better, sentence = _with_labels(found, references, one_split)
    return Verdict(better, sentence + _beside_pretrained(table, able), [noted.get(metric.name, metric) for metric in metrics])


def claim_of(sentence: str) -> tuple[str, str]:
    """The claim of a verdict's sentence, up to the baselines (version 0.2: doing nothing), and its numbers or reasons."""
    claim = re.match(r".*?(?:the baselines|doing nothing)(?: \([^)]*\))?", sentence)
    if claim is None:
        return sentence, ""
    reasons = sentence[claim.end() :].lstrip(":;,. ")
    return f"{claim.group()}.", reasons[:1].upper() + reasons[1:]


@dataclass(frozen=True, eq=False)
class PCA:
    """Mean and leading directions of the training inputs."""

    mean: Tensor
    directions: Tensor

    @classmethod
    def fit(cls, train: Tensor, components: int) -> "PCA":
        mean = train.mean(dim=0)
        return cls(mean, principal(train - mean)[1][:, -components:])  # in ascending order

    def apply(self, split: Features) -> Features:
        facts = {"feature": f"pca of raw inputs, {self.directions.shape[1]} dimensions"}
        return Features((split.values - self.mean) @ self.directions, split.labels, split.protocol | facts)


def pca(train: Features, test: Features | None, components: int) -> tuple[Features, Features | None]:
    fitted = PCA.fit(train.values, components)
    return fitted.apply(train), None if test is None else fitted.apply(test)


def _with_labels(found: Sequence[Comparison], references: Sequence[str], one_split: bool) -> tuple[bool | None, str]:
    wins = [_text(one) for one in found if one.decided and one.difference > 0]
    losses = [_text(one) for one in found if one.decided and one.difference < 0]
    ties = [one for one in found if not one.decided]
    against = f"the baselines (the best of {', '.join(references)})"
    equal = f"; no measurable difference at {', '.join(map(_text, ties))}" if ties else ""
    coarse = [one for one in ties if not one.resolution <= COARSE]
    if wins and not losses:
        return True, f"Yes, this embedding is better than {against}: {', '.join(wins)}{equal}."
    if wins:
        return None, (
            f"Only in part is this embedding better than {against}: it wins at {', '.join(wins)} "
            f"but loses at {', '.join(losses)}{equal}."
        )
    if losses:
        return False, f"No, this embedding is worse than {against}: {', '.join(losses)}{equal}."
    if not coarse:
        return False, f"No, this embedding is not measurably better than {against}{equal}."
    least = max(one.resolution for one in coarse)
    samples, more = ("labelled samples", "label more") if one_split else ("held-out samples", "hold out more")
    return None, (
        f"Not settled: {coarse[0].samples} {samples} are too few to say whether this embedding is better than {against}"
        f"{equal}. Differences below about {least:.2f} cannot be seen with so few: {more}."
    )


def _beside_pretrained(table: Mapping[str, Metric], judged: Sequence[str]) -> str:
    """Whether the network that somebody else trained is the better choice; nothing where there is none."""
    theirs = {name: table[f"{PRETRAINED}/{name}"] for name in judged if _measured(table.get(f"{PRETRAINED}/{name}"))}
    if not theirs:
        return ""
    found = [compare(table[name], {PRETRAINED: other}, comparisons=len(theirs)) for name, other in theirs.items()]
    network = f"the {next(iter(theirs.values())).protocol.get('feature', PRETRAINED)}, trained elsewhere on other images"
    ours, better = (
        ", ".join(f"{WORDS[one.metric]} {one.theirs:.3f} against {one.ours:.3f}" for one in found if one.decided and gains(one))
        for gains in (lambda one: one.difference > 0, lambda one: one.difference < 0)
    )
    if better and not ours:
        return f" A pretrained network is the better choice here ({network}): {better}."
    if better:
        return f" A pretrained network ({network}) is better in part: {better}; but worse at {ours}."
    if ours:
        return f" It is better than a pretrained network too ({network}): {ours}."
    return f" A pretrained network ({network}) is neither better nor worse, measurably."


def _text(one: Comparison) -> str:
    return f"{WORDS[one.metric]} {one}"


def _noted(metric: Metric, one: Comparison, comparisons: int) -> Metric:
    """The metric with its comparison in the protocol."""
    compared = {
        "with": one.reference,
        "difference": one.difference,
        "interval": [one.low, one.high],
        "p": one.p,
        "corrected_for": comparisons,
        "test": "paired over samples and restarts" if metric.std is not None else "McNemar, mid-p",
    }
    return metric.with_protocol({"compared": compared})


def _without_labels(table: Mapping[str, Metric], references: Sequence[str]) -> tuple[bool | None, str]:
    unable = next((table[name] for name in UNLABELLED if not _measured(table.get(name)) and name in table), None)
    if unable is not None or any(name not in table for name in ("effective_rank", "cluster_agreement")):
        reason = "it was not measured" if unable is None else unable.protocol.get("caution", "it was not measured")
        return None, f"Nobody can say whether this embedding is better than the baselines: {reason}."
    rank, agreement = table["effective_rank"], table["cluster_agreement"]
    if rank.value < COLLAPSED:
        return False, (
            f"No, this embedding is not better than the baselines: it has collapsed to an effective rank of {rank.value:.2f} "
            f"of {rank.protocol['dimensions']} dimensions."
        )
    agreements = {name: table[name].value for name in (f"{other}/cluster_agreement" for other in references)}
    stablest = table[best(agreements)]
    more = "more" if agreement.value > stablest.value else "no more"
    return None, (
        f"Without labels nobody can say whether this embedding is better than the baselines ({', '.join(references)}); it has "
        f"not collapsed (effective rank {rank.value:.1f} of {rank.protocol['dimensions']}) and its clusters are {more} stable "
        f"between seeds (ARI {agreement.value:.2f}) than those of {stablest.name.split('/')[0]} ({stablest.value:.2f}), "
        "which shows grouping but not that the groups mean anything: a hundred labelled samples would settle it "
        "(--labels), where the difference is large."
    )


def _measured(metric: Metric | None) -> bool:
    return metric is not None and np.isfinite(metric.value)


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
