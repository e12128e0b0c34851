"""The evaluator: pure functions of features (and labels) that return numbers with their protocol.

Names load when first used: importing the package costs nothing, so `sao --help` stays quick.
"""
# ruff: noqa: F401  (the imports below are for type checkers and editors; `_HOME` is what runs)

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sao.evaluation.clusters import cluster_agreement, clustering, kmeans_accuracy, strict_kmeans_accuracy
    from sao.evaluation.comparison import Comparison, compare
    from sao.evaluation.extractors import extractor
    from sao.evaluation.features import Features, load_features
    from sao.evaluation.generation import (
        evaluate_generation,
        frechet_distance,
        frechet_in_features,
        inception_score,
        kernel_distance,
        precision_recall,
    )
    from sao.evaluation.kmeans import SphericalKMeans, best_kmeans, spherical_kmeans
    from sao.evaluation.manifold import manifold_clustering, manifold_clusters, proposed_clusters
    from sao.evaluation.memorisation import Memorised, memorised
    from sao.evaluation.neighbours import knn_accuracy
    from sao.evaluation.partitions import ari, matched_accuracy, nmi, purity
    from sao.evaluation.probe import few_shot, linear_probe
    from sao.evaluation.rank import effective_rank, uniformity
    from sao.evaluation.result import Metric, as_grid, as_intervals, as_protocols, as_table, merged, read_json, write_json
    from sao.evaluation.suite import DEFAULT, LABELLED, UNLABELLED, evaluate
    from sao.evaluation.svm import LinearSVM, linear_svm
    from sao.evaluation.verdict import Verdict, judge

_HOME = {
    "clusters": ("cluster_agreement", "clustering", "kmeans_accuracy", "strict_kmeans_accuracy"),
    "comparison": ("Comparison", "compare"),
    "extractors": ("extractor",),
    "features": ("Features", "load_features"),
    "generation": (
        "evaluate_generation",
        "frechet_distance",
        "frechet_in_features",
        "inception_score",
        "kernel_distance",
        "precision_recall",
    ),
    "kmeans": ("SphericalKMeans", "best_kmeans", "spherical_kmeans"),
    "manifold": ("manifold_clustering", "manifold_clusters", "proposed_clusters"),
    "memorisation": ("Memorised", "memorised"),
    "neighbours": ("knn_accuracy",),
    "partitions": ("ari", "matched_accuracy", "nmi", "purity"),
    "probe": ("few_shot", "linear_probe"),
    "rank": ("effective_rank", "uniformity"),
    "result": ("Metric", "as_grid", "as_intervals", "as_protocols", "as_table", "merged", "read_json", "write_json"),
    "suite": ("DEFAULT", "LABELLED", "UNLABELLED", "evaluate"),
    "svm": ("LinearSVM", "linear_svm"),
    "verdict": ("Verdict", "judge"),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}
__all__ = sorted(_MODULE)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE[name]}"), name)


def __dir__() -> list[str]:
    return __all__
