"""Every metric of features in one call, by name."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sao.errors import InputError
from sao.evaluation.clusters import cluster_agreement, clustering, strict_kmeans_accuracy
from sao.evaluation.features import Features
from sao.evaluation.folds import cross_validated
from sao.evaluation.inputs import same_width
from sao.evaluation.manifold import Manifold, manifold_clustering
from sao.evaluation.neighbours import knn_accuracy
from sao.evaluation.probe import few_shot, linear_probe
from sao.evaluation.rank import effective_rank, uniformity
from sao.evaluation.result import Metric
from sao.evaluation.svm import linear_svm

SUPERVISED = ("svm", "kmeans_strict", "knn1", "knn5", "probe", "probe_1pct", "probe_10pct")  # fitted to training labels
LABELLED = (
    "svm",
    "kmeans",
    "kmeans_best",
    "kmeans_strict",
    "nmi",
    "purity",
    "ari",
    "manifold",
    "manifold_nmi",
    "manifold_ari",
    "knn1",
    "knn5",
    "probe",
    "probe_1pct",
    "probe_10pct",
)
UNLABELLED = ("effective_rank", "uniformity", "cluster_agreement")
DEFAULT = (*LABELLED, *UNLABELLED)
CLUSTERS_WITHOUT_LABELS = 10

FEWEST = 20  # scored samples; with fewer a number says more about chance than about features
FEWEST_OF_A_CLASS = 5  # on average, where clusters are matched with classes: three samples of three classes always match
MANIFOLD = ("manifold", "manifold_nmi", "manifold_ari")
CLUSTERED = ("kmeans", "kmeans_best", "kmeans_strict", "nmi", "purity", "ari", *MANIFOLD)

TOGETHER = (("kmeans", "kmeans_best", "nmi", "purity", "ari"), MANIFOLD, ("knn1", "knn5"))  # found in one computation

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
) -> list[Metric]:
    """Metrics in the order asked for (default: all that the labels allow), then the same of each reference as `name/metric`.

    Without `test` there is one split: what is fitted to labels is cross-validated, and the protocol says so.
    k is the number of clusters: that of classes unless given, 10 without labels. `manifold` is how clusters along it are found.
    A split that is too small gives NaN and a caution; so does, if `lenient`, whatever else the data does not allow.
    """
    scored = train if test is None else test
    names = check_names(metrics, labelled=train.labels is not None and scored.labels is not None)
    measured: list[Metric] = []
    for prefix, (fitted, held_out) in {"": (train, test), **(reference or {})}.items():
        if held_out is not None:
            same_width("train_x", fitted.values, "test_x", held_out.values)
        say = _prefixed(progress, prefix)
        found = _measure(fitted, held_out, names, seed, k, repeats, manifold, lenient, say)
        measured += found if not prefix else [metric.renamed(f"{prefix}/{metric.name}") for metric in found]
    return measured


def computations(metrics: Sequence[str]) -> int:
    """How often `evaluate` begins another one, of each representation."""
    first = {name: group[0] for group in TOGETHER for name in group}
    return len({first.get(name, name) for name in metrics})


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


def caution(name: str, samples: int, classes: int | None) -> str | None:
    """Why a split is too small for a metric, or None."""
    if samples < FEWEST:
        return f"{samples} samples are too few to score: at least {FEWEST} are needed"
    if name in CLUSTERED and classes is not None and samples < FEWEST_OF_A_CLASS * classes:
        least = FEWEST_OF_A_CLASS * classes
        return f"{samples} samples of {classes} classes are too few to match clusters with: at least {least} are needed"
    return None


def _measure(
    train: Features,
    test: Features | None,
    names: list[str],
    seed: int,
    k: int | None,
    repeats: int,
    manifold: Manifold,
    lenient: bool,
    say: Progress,
) -> list[Metric]:
    scored = train if test is None else test
    classes = None if scored.labels is None else len(np.unique(scored.labels))
    found: dict[str, Metric] = {}
    for name in names:
        if name in found:
            continue
        reason = caution(name, len(scored), classes)
        if reason is None:
            say(name)
            try:
                results = _results(name, train, test, seed, k, repeats, manifold, say)
                found.update({metric.name: metric for metric in results})
            except InputError as error:
                if not lenient:
                    raise
                reason = str(error)
        if reason is not None:
            found[name] = Metric(name, float("nan"), None, {"caution": reason, "n_test": len(scored)})
    facts: dict[str, Any] = {"split": "test", **train.protocol, **scored.protocol}
    return [found[name].with_protocol(facts) for name in names]


def _results(
    name: str,
    train: Features,
    test: Features | None,
    seed: int,
    k: int | None,
    repeats: int,
    manifold: Manifold,
    say: Progress,
) -> list[Metric]:
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
            return [cluster_agreement(scored.values, _clusters(scored, k), seed=seed)]

    def supervised(*splits: Any) -> list[Metric]:
        match name:
            case "svm":
                return [linear_svm(*splits, seed=seed, progress=lambda part: say(f"svm, {part}"))]
            case "kmeans_strict":
                return [strict_kmeans_accuracy(*splits, k=k, repeats=repeats, seed=seed)]
            case "knn1" | "knn5":
                return knn_accuracy(*splits, ks=(1, 5))
            case "probe":
                return [linear_probe(*splits)]
            case "probe_1pct":
                return [few_shot(*splits, share=0.01, seed=seed)]
            case _:
                return [few_shot(*splits, share=0.1, seed=seed)]

    if test is None:
        return cross_validated(supervised, train.values, train.labels, seed)
    return supervised(train.values, train.labels, test.values, test.labels)


def _clusters(test: Features, k: int | None) -> int:
    if k is not None:
        return k
    return CLUSTERS_WITHOUT_LABELS if test.labels is None else len(np.unique(test.labels))


def _prefixed(progress: Progress | None, prefix: str) -> Progress:
    if progress is None:
        return lambda _: None
    return (lambda part: progress(f"{prefix}: {part}")) if prefix else progress
