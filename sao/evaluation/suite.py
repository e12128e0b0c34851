"""Every metric of features in one call, by name."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sao.errors import InputError
from sao.evaluation.budget import Budget, OutOfTime
from sao.evaluation.clusters import cluster_agreement, clustering, fit_strict_kmeans
from sao.evaluation.features import Features
from sao.evaluation.folds import Fitted, cross_validated
from sao.evaluation.inputs import check_splits, same_width
from sao.evaluation.manifold import Manifold, manifold_clustering
from sao.evaluation.neighbours import fit_neighbours
from sao.evaluation.probe import fit_few_shot, fit_probe
from sao.evaluation.rank import effective_rank, uniformity
from sao.evaluation.result import Metric
from sao.evaluation.svm import COSTS, HELD_OUT, fit_svm

SUPERVISED = ("svm", "kmeans_strict", "knn1", "knn5", "probe", "probe_1pct", "probe_10pct")  # fitted to training labels
KMEANS = ("kmeans", "kmeans_best", "nmi", "purity", "ari")  # all five from one clustering
MANIFOLD = ("manifold", "manifold_nmi", "manifold_ari")
LABELLED = (
    "svm", "kmeans", "kmeans_best", "kmeans_strict", "nmi", "purity", "ari", *MANIFOLD,
    "knn1", "knn5", "probe", "probe_1pct", "probe_10pct",
)  # fmt: skip
UNLABELLED = ("effective_rank", "uniformity", "cluster_agreement")
DEFAULT = (*LABELLED, *UNLABELLED)
CLUSTERS_WITHOUT_LABELS = 10

FEWEST = 20  # scored samples; with fewer a number says more about chance than about features
FEWEST_OF_A_CLASS = 5  # on average, where clusters are matched with classes: three samples of three classes always match
CLUSTERED = (*KMEANS, "kmeans_strict", *MANIFOLD)

# The order in which they are computed: what a decision rests on first, and of these the quick ones.
USEFULNESS = (
    ("effective_rank",),
    ("knn1", "knn5"),
    KMEANS,
    ("svm",),
    MANIFOLD,
    ("probe",),
    ("cluster_agreement",),
    ("uniformity",),
    ("probe_10pct",),
    ("probe_1pct",),
    ("kmeans_strict",),
)  # those of a row are found in one computation

Progress = Callable[[str], None]


def evaluate(
    train: Features,
    test: Features | None,
    metrics: Sequence[str] | None = None,
    seed: int = 0,
    reference: Mapping[str, tuple[Features, Features | None]] | None = None,
    k: int | None = None,
    repeats: int = 20,
    lenient: bool = False,
    progress: Progress | None = None,
    manifold: Manifold = "spectral",
    budget: Budget | None = None,
) -> list[Metric]:
    """Metrics in the order asked for (default: all that the labels allow), then the same of each reference as `name/metric`.

    Without `test` there is one split: what is fitted to labels is cross-validated, and the protocol says so.
    k is the number of clusters: that of classes unless given, 10 without labels. `manifold` is how clusters along it are found.
    A split that is too small gives NaN and a caution; so does what the budget does not allow, for all representations from
    there on, and, if `lenient`, whatever else the data does not allow.
    """
    budget = budget or Budget()
    scored = train if test is None else test
    names = check_names(metrics, labelled=train.labels is not None and scored.labels is not None)
    pairs = {"": (train, test), **(reference or {})}
    for fitted, held_out in pairs.values():
        if held_out is not None:
            same_width("train_x", fitted.values, "test_x", held_out.values)
    found: dict[str, dict[str, Metric]] = {prefix: {} for prefix in pairs}
    for group in USEFULNESS:
        asked = [name for name in names if name in group]
        late = False
        for prefix, (fitted, held_out) in pairs.items() if asked else ():
            scored = fitted if held_out is None else held_out
            try:
                if late:  # without the others of its kind a number would be compared with nothing
                    raise OutOfTime
                with budget.computation():
                    reason = caution(asked[0], scored)
                    say = _prefixed(progress, prefix)
                    results = [] if reason else _measure(asked[0], fitted, held_out, seed, k, repeats, manifold, say)
            except OutOfTime:
                late, reason = True, budget.reason
            except InputError as error:
                if not lenient:
                    raise
                reason = str(error)
            if reason:
                results = [Metric(name, float("nan"), None, {"caution": reason, "n_test": len(scored)}) for name in asked]
            facts = {"split": "test", **fitted.protocol, **scored.protocol}
            found[prefix] |= {metric.name: metric.with_protocol(facts) for metric in results}
    return [found[prefix][name].renamed(f"{prefix}/{name}" if prefix else name) for prefix in pairs for name in names]


def computations(metrics: Sequence[str]) -> int:
    """How often `evaluate` begins another one, of each representation."""
    return sum(any(name in group for name in metrics) for group in USEFULNESS)


def check_names(metrics: Sequence[str] | None, labelled: bool) -> list[str]:
    """The metrics to measure, each once; unknown names and metrics that need absent labels are errors."""
    if metrics is None:
        return list(DEFAULT if labelled else UNLABELLED)
    for name in metrics:
        if name not in DEFAULT:
            close = difflib.get_close_matches(name, DEFAULT, n=1, cutoff=0.0)
            raise InputError(f"unknown metric {name!r}: did you mean {close[0]!r}? There are {', '.join(DEFAULT)}")
        if name in LABELLED and not labelled:
            raise InputError(f"metric {name!r} needs labels on both splits: give them, or use {', '.join(UNLABELLED)}")
    if not metrics:
        raise InputError(f"metrics is empty: choose from {', '.join(DEFAULT)}")
    return list(dict.fromkeys(metrics))


def caution(name: str, scored: Features) -> str | None:
    """Why a split is too small for a metric, or None."""
    samples, classes = len(scored), 0 if scored.labels is None else len(np.unique(scored.labels))
    if samples < FEWEST:
        return f"{samples} samples are too few to score: at least {FEWEST} are needed"
    least = FEWEST_OF_A_CLASS * classes
    if name in CLUSTERED and samples < least:
        return f"{samples} samples of {classes} classes are too few to match clusters with: at least {least} are needed"
    return None


def _measure(
    name: str, train: Features, test: Features | None, seed: int, k: int | None, repeats: int, manifold: Manifold, say: Progress
) -> list[Metric]:
    """The metric, and those that are found with it."""
    say(name)
    scored = train if test is None else test
    match name:
        case "kmeans" | "kmeans_best" | "nmi" | "purity" | "ari":  # one clustering yields all five
            return clustering(scored.values, scored.labels, k, repeats, seed)
        case "manifold" | "manifold_nmi" | "manifold_ari":
            return manifold_clustering(scored.values, scored.labels, k, manifold, seed)
        case "effective_rank":
            return [effective_rank(scored.values)]
        case "uniformity":
            return [uniformity(scored.values, seed=seed)]
        case "cluster_agreement":
            classes = CLUSTERS_WITHOUT_LABELS if scored.labels is None else len(np.unique(scored.labels))
            return [cluster_agreement(scored.values, classes if k is None else k, seed=seed)]

    def fitted(train_x: Any, train_y: Any) -> Fitted:
        return fit(name, train_x, train_y, seed, k, repeats, say)

    if test is None:
        return cross_validated(fitted, train.values, train.labels, seed)
    check_splits(train.values, train.labels, test.values, test.labels)
    return fitted(train.values, train.labels).score(test.values, test.labels)


def fit(name: str, train_x: Any, train_y: Any, seed: int, k: int | None, repeats: int, say: Progress) -> Fitted:
    """A metric of `SUPERVISED`, fitted: it is given no test rows, so it cannot learn from them."""
    match name:
        case "svm":
            return fit_svm(train_x, train_y, COSTS, seed, HELD_OUT, lambda part: say(f"svm, {part}"))
        case "kmeans_strict":
            return fit_strict_kmeans(train_x, train_y, k, repeats, seed)
        case "knn1" | "knn5":
            return fit_neighbours(train_x, train_y)
        case "probe":
            return fit_probe(train_x, train_y)
        case "probe_1pct" | "probe_10pct":
            return fit_few_shot(train_x, train_y, share=0.01 if name == "probe_1pct" else 0.1, seed=seed)
        case _:
            raise AssertionError(f"{name} is fitted to no training labels")


def _prefixed(progress: Progress | None, prefix: str) -> Progress:
    if progress is None:
        return lambda _: None
    return (lambda part: progress(f"{prefix}: {part}")) if prefix else progress
