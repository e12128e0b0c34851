"""The evaluator: pure functions of features (and labels) that return numbers with their protocol."""
# ruff: noqa: F401

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
from sao.evaluation.result import Metric, as_grid, as_intervals, as_table, merged, read_json, write_json
from sao.evaluation.suite import DEFAULT, LABELLED, UNLABELLED, evaluate
from sao.evaluation.svm import LinearSVM, linear_svm
from sao.evaluation.verdict import Verdict, judge
