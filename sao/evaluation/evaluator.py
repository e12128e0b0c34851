"""The one evaluator: validation, the table at the end of a run, `sao eval` and the tables of the paper all call it.

All are measured on the same rows: the learnt features, and as baselines raw inputs, their PCA, the untrained network and, of
images, k-means patches. A pretrained network is a reference beside them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from sao.core import distributed
from sao.data.dataset import Dataset, Images, Pixels, Samples, joined
from sao.data.split import by_class
from sao.evaluation.budget import Budget, OutOfTime
from sao.evaluation.extract import Function, extract, raw_inputs, raw_size
from sao.evaluation.features import ONE_SPLIT, Features
from sao.evaluation.html import metric_table
from sao.evaluation.kmeans import starts_for
from sao.evaluation.manifold import Manifold
from sao.evaluation.patches import centroids_for, patch_features
from sao.evaluation.pretrained import PRETRAINED, Pretrained
from sao.evaluation.result import Metric, as_grid, with_interval
from sao.evaluation.suite import FEWEST, check_names, computations, evaluate
from sao.evaluation.verdict import Verdict, pca, verdict_of
from sao.methods import FeatureName, Method
from sao.training.log import Stages

LEARNT = "learnt"
PATCHES = "patches"
SHARE = 0.25  # of the time that is left, for the features of one reference
RAW_CELLS = 2**25  # numbers of raw inputs that are looked at: larger images are averaged down
FEW = 500  # labelled samples: below it a held-out part would be too small to see anything
RAW_COLUMNS = 768  # but not below 16x16 in colour
MOST_COMPONENTS = 256  # of PCA, however wide the features are
Pair = tuple[Features, Features | None]  # training and test set; or all there is


@dataclass(frozen=True)
class Plan:
    """Which metrics (None: all that the data allows), on at most how many rows of each split, with how many k-means runs.

    Where there are no labels, `unlabelled` are the metrics.
    `clusters` bounds runs x classes. `strict` makes an error of what the data does not allow; otherwise it is a caution in
    place of the number. What does not fit into `minutes` is left out with a caution.
    With fewer labelled samples than `few`, both splits are cross-validated as one. Studies, which compare runs, leave it 0.
    """

    metrics: tuple[str, ...] | None = None
    rows: int | None = 10_000
    restarts: int = 20
    clusters: int = 4000
    unlabelled: tuple[str, ...] | None = None
    strict: bool = False
    manifold: Manifold = "spectral"  # how clusters along the manifold are found
    minutes: float | None = None
    few: int = 0

    def restarts_for(self, classes: int | None) -> int:
        return self.restarts if classes is None else starts_for(classes, self.restarts, self.clusters)


VALIDATED = Plan(("kmeans", "probe", "knn1", "knn5", "effective_rank"), rows=5000, restarts=5, unlabelled=("effective_rank",))
SUMMARISED = Plan(
    ("kmeans", "kmeans_best", "manifold", "svm", "knn1", "knn5", "effective_rank"),
    clusters=1000,
    unlabelled=("effective_rank", "cluster_agreement"),
    minutes=10,
    few=FEW,
)


@dataclass(frozen=True)
class Evaluation:
    """Metrics of the learnt features by their names, those of the references as raw/NAME, pca/NAME, patches/NAME and so on."""

    metrics: list[Metric]
    verdict: Verdict | None
    n_train: int
    n_test: int | None  # None where there is one split

    def __repr__(self) -> str:
        return "\n".join([as_grid(self.metrics, width=80), *([] if self.verdict is None else ["", self.verdict.sentence])])

    def _repr_html_(self) -> str:
        """For a notebook: the table, and what it comes to."""
        return metric_table(self.metrics, "" if self.verdict is None else self.verdict.sentence)


@dataclass(frozen=True)
class ChosenRows:
    """The rows of each split that are looked at, and their labels: the same for every representation."""

    parts: list[Samples]
    rows: list[np.ndarray]
    labels: list[np.ndarray | None]
    splits: list[str]
    left_out: dict[str, str] = field(default_factory=dict)  # samples that are not looked at, and why

    @classmethod
    def of(cls, data: Dataset | Samples, limit: int | None, seed: int, few: int = 0) -> "ChosenRows":
        """Samples that are no data set are one split. Where some have a label, the others are left out."""
        parts, left_out = _labelled([data.train, data.test] if isinstance(data, Dataset) else [data], few)
        rows = [chosen_rows(len(part), part.labels, limit, seed) for part in parts]
        return cls(parts, rows, _labels(parts, rows), ["train", "test"] if len(parts) == 2 else [ONE_SPLIT], left_out)

    def pair(self, of: Callable[[Samples, np.ndarray], np.ndarray], facts: Mapping[str, Any]) -> Pair:
        """What a function makes of these rows, with what the protocol must say of it."""
        return self.of_values([of(part, rows) for part, rows in zip(self.parts, self.rows, strict=True)], facts)

    def of_values(self, values: Sequence[Any], facts: Mapping[str, Any]) -> Pair:
        """Values (n, d) of the rows of each part."""
        found = [
            Features(part, labels, {**facts, "split": split} | ({"left_out": dict(self.left_out)} if self.left_out else {}))
            for part, labels, split in zip(values, self.labels, self.splits, strict=True)
        ]
        return found[0], (found[1] if len(found) == 2 else None)

    def raw(self, columns: int | None, facts: Mapping[str, Any]) -> Pair:
        feature = "raw inputs"
        if isinstance(self.parts[0], Images):
            size = raw_size(self.parts[0].shape, columns)
            feature += "" if size == self.parts[0].shape[1:] else f", averaged to {size[0]}x{size[1]}"
        facts = {**facts, "feature": feature, "weights": "none"}
        return self.pair(lambda part, rows: raw_inputs(part, rows, columns), facts)

    def patches(self, seconds: float, facts: Mapping[str, Any], seed: int = 0) -> Pair:
        """K-means patches of images, with as many centroids as so many seconds allow, at least 256."""
        values, more = patch_features(self.images, centroids_for(seconds, sum(map(len, self.rows))), seed)
        return self.of_values(values, {**facts, **more})

    def pretrained(self, network: Pretrained, device: torch.device, seconds: float, facts: Mapping[str, Any]) -> Pair:
        values, more = network.features(self.images, device, seconds)
        return self.of_values(values, {**facts, **more})

    @property
    def images(self) -> list[tuple[Pixels, np.ndarray]]:
        """Pixels and row numbers of each part; none of vectors."""
        return [(part.intensities, rows) for part, rows in zip(self.parts, self.rows, strict=True) if isinstance(part, Images)]

    @property
    def raw_columns(self) -> int:
        labels = self.labels[0]
        return raw_columns(max(map(len, self.rows)), None if labels is None else len(np.unique(labels)))


def representations(
    method: Method,
    data: Dataset | Samples,
    plan: Plan,
    seed: int = 0,
    untrained: Method | None = None,
    feature: FeatureName = "backbone",
    facts: Mapping[str, Any] | None = None,
    extract: Callable[..., np.ndarray] = extract,
    seconds: float = 0.0,
    budget: Budget | None = None,
    pretrained: Pretrained | None = None,
) -> dict[str, Pair]:
    """What is to be measured, by name: the learnt features and, where there is an untrained network, all references.

    `extract` is a function of that kind, to share the work among processes. `seconds` are those that training took: k-means
    patches take as long. A reference of images that does not fit into the budget is left out, and the protocol of the learnt
    features says so.
    """
    # A network that was fitted to labels of the training set has seen them: there is nothing to cross-validate.
    chosen, facts = ChosenRows.of(data, plan.rows, seed, 0 if method.needs_labels else plan.few), facts or {}
    device = next(p.device for p in method.parameters() if p.device.type != "meta")  # where only a part of it is in memory

    def features(function: Function, more: Mapping[str, Any]) -> Pair:
        return chosen.pair(lambda part, rows: extract(function, part, device, rows=rows), {**facts, **more})

    learnt = features(method.representation(feature), {"feature": feature})
    if untrained is None:
        return {LEARNT: learnt}
    raw = chosen.raw(chosen.raw_columns, facts)
    found = {
        LEARNT: learnt,
        "raw": raw,
        "pca": pca(*raw, components=min(learnt[0].values.shape[1], MOST_COMPONENTS)),
        "untrained": features(untrained.representation(feature), {"feature": feature, "weights": "untrained"}),
    }
    if not chosen.images or not distributed.is_main():  # the first process alone measures
        return found
    channels = chosen.images[0][0].shape[3]
    if channels not in (1, 3):
        _leave_out(learnt, PRETRAINED, f"it sees colours, and these images have {channels} channels")
    budget = budget or Budget()
    more: dict[str, Callable[[], Pair]] = {PATCHES: lambda: chosen.patches(min(seconds, budget.left * SHARE), facts, seed)}
    if pretrained is not None:
        more[PRETRAINED] = lambda: chosen.pretrained(pretrained, device, budget.left * SHARE, facts)
    for name, compute in more.items():
        try:
            with budget.computation():
                found[name] = compute()
        except OutOfTime:
            _leave_out(learnt, name, budget.reason)
    return found


def _leave_out(learnt: Pair, name: str, reason: str) -> None:
    for split in learnt:
        if split is not None:
            split.protocol.setdefault("left_out", {})[name] = reason


def measure(
    found: Mapping[str, Pair], plan: Plan, seed: int = 0, progress: Stages | None = None, budget: Budget | None = None
) -> Evaluation:
    """Every metric of the plan of every representation; where there are references, a verdict too.

    `budget` is one that runs already: that of a plan begins here.
    """
    (train, test), references = found[LEARNT], {name: pair for name, pair in found.items() if name != LEARNT}
    scored = train if test is None else test
    names = plan.metrics if plan.strict or scored.labels is not None else plan.unlabelled
    classes = None if scored.labels is None else len(np.unique(scored.labels))
    if progress is not None:
        labelled = train.labels is not None and scored.labels is not None
        progress.expect(len(found) * computations(check_names(names, labelled)))
    metrics = evaluate(
        train,
        test,
        names,
        seed,
        references,
        repeats=plan.restarts_for(classes),
        lenient=not plan.strict,
        progress=progress,
        manifold=plan.manifold,
        budget=budget or Budget(plan.minutes),
    )
    verdict = verdict_of(metrics) if references else None
    metrics = metrics if verdict is None else verdict.metrics
    metrics = [with_interval(replace(metric, protocol={"seed": seed, **metric.protocol})) for metric in metrics]
    return Evaluation(metrics, verdict, len(train), None if test is None else len(test))


def weights_used(method: Method, asked: str = "ema") -> str:
    """What a protocol says of the weights: a method without an EMA has raw weights only."""
    return asked if method.has_ema else "raw"


def chosen_rows(n: int, labels: np.ndarray | None, limit: int | None, seed: int) -> np.ndarray:
    """Sorted row numbers, at most `limit` of them, drawn so that every class keeps its share and at least one sample."""
    if limit is None or n <= limit:
        return np.arange(n)
    order = np.random.default_rng(seed).permutation(n)
    if labels is None:
        return np.sort(order[:limit])
    rows, places, sizes = by_class(labels, order)
    drawn = np.argsort(order)[rows]  # equal shares are taken in the order of the draw
    return np.sort(rows[np.lexsort((drawn, places / sizes))[:limit]])


def raw_columns(rows: int, classes: int | None) -> int:
    """How many columns of raw inputs are looked at: the time is in proportion to rows x columns x classes."""
    return max(RAW_COLUMNS, RAW_CELLS // rows * 20 // max(20, classes or 0))


def _labelled(parts: list[Samples], few: int) -> tuple[list[Samples], dict[str, str]]:
    """The parts without unlabelled samples, as one where few have a label; and classes that cannot be scored, with the reason.

    With `few` 0 they stay two: labels that are too few for that are not used.
    """
    codes = [part.labels for part in parts if part.labels is not None]
    if len(codes) < len(parts):
        return parts, {}
    counts = [int((code >= 0).sum()) for code in codes]
    if len(parts) == 2 and few and (sum(counts) < few or min(counts) < FEWEST):
        known = [part.select(code >= 0) for part, code in zip(parts, codes, strict=True)]
        parts = [joined(*known)]
    elif min(counts) < FEWEST and any(bool((code < 0).any()) for code in codes):
        return [replace(part, labels=None) for part in parts], {}
    else:
        parts = [part if bool((c >= 0).all()) else part.select(c >= 0) for part, c in zip(parts, codes, strict=True)]
    return _that_can_be_scored(parts)


def _that_can_be_scored(parts: list[Samples]) -> tuple[list[Samples], dict[str, str]]:
    """Of one split the classes with two samples or more, of two splits the test samples of classes in the training set."""
    fitted, scored = parts[0].labels, parts[-1].labels
    assert fitted is not None
    assert scored is not None
    if len(parts) == 1:
        classes, counts = np.unique(fitted, return_counts=True)
        known, reason = classes[counts > 1], "cross-validation needs two of each"
    else:
        known, reason = np.unique(fitted), "the training set has none of them"
    kept = np.isin(scored, known)
    if kept.all() or len(known) < 2:
        return parts, {}
    lost, samples = len(np.unique(scored[~kept])), int((~kept).sum())
    said = f"{samples} labelled sample{'' if samples == 1 else 's'} of {lost} {'class' if lost == 1 else 'classes'}"
    return [*parts[:-1], parts[-1].select(kept)], {said: reason}


def _labels(parts: list[Samples], rows: list[np.ndarray]) -> list[np.ndarray | None]:
    """Of each split, or none at all where a split has none or only one class: then there is nothing to tell apart."""
    chosen = [None if part.labels is None else part.labels[taken] for part, taken in zip(parts, rows, strict=True)]
    told_apart = all(labels is not None and len(np.unique(labels)) > 1 for labels in chosen)
    return chosen if told_apart else [None] * len(parts)
