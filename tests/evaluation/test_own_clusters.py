"""Clusters that a method made: each measure with what chance would give, and purity told from its swapped form."""

import numpy as np
import pytest

from sao.evaluation.clusters import clustering
from sao.evaluation.own_clusters import kmeans_clusters, own_clusters, swapped_purity
from sao.evaluation.partitions import purity

CLUSTERS = [0, 0, 0, 1, 1, 2, 2, 2]
LABELS = [0, 0, 1, 1, 1, 1, 0, 1]


def test_purity_counts_within_clusters_and_swapped_purity_within_classes():
    assert purity(CLUSTERS, LABELS) == (2 + 2 + 2) / 8
    assert swapped_purity(CLUSTERS, LABELS) == (2 + 2) / 8


def test_with_many_clusters_chance_differs_as_much_as_the_measures_do():
    """The two numbers by which one sees which of the two somebody has printed: CIFAR-10 with a hundred clusters."""
    draws = np.random.default_rng(1)
    clusters, labels = draws.integers(0, 100, 50_000), draws.permutation(np.repeat(np.arange(10), 5000))
    found = {metric.name: metric for metric in own_clusters(clusters, labels, k=100)}
    assert found.keys() == {"nmi", "purity", "purity_swapped"}
    assert found["purity"].protocol["chance"] == pytest.approx(0.132, abs=0.012)
    assert found["purity_swapped"].protocol["chance"] == pytest.approx(0.0128, abs=0.002)
    for metric in found.values():  # these clusters know nothing
        assert metric.value == pytest.approx(metric.protocol["chance"], abs=0.003)
        assert (metric.protocol["k"], metric.protocol["classes"], metric.protocol["n_test"]) == (100, 10, 50_000)


def test_clusters_that_are_the_classes_score_one_and_chance_does_not():
    labels = np.arange(60) % 3
    for metric in own_clusters((labels + 1) % 3, labels, k=3):
        assert metric.value == pytest.approx(1)
        assert metric.protocol["chance"] < 0.6


def test_the_level_of_chance_is_drawn_by_the_seed_alone():
    first, second, other = (own_clusters(CLUSTERS, LABELS, 3, seed) for seed in (5, 5, 6))
    assert first == second
    assert first != other


def test_clusters_of_kmeans_are_those_of_the_usual_protocol():
    draws = np.random.default_rng(0)
    labels = np.arange(90) % 3
    features = draws.normal(size=(90, 4)) + 1.5 * np.eye(4)[labels]
    found = {metric.name: metric for metric in kmeans_clusters(features, labels, 5, repeats=4, seed=2)}
    expected = {metric.name: metric for metric in clustering(features, labels, 5, repeats=4, seed=2)}
    for name in ("nmi", "purity"):
        assert found[name].value == pytest.approx(expected[name].value)
        assert found[name].std == pytest.approx(expected[name].std)
        assert found[name].protocol["chance"] < found[name].value
    assert kmeans_clusters(features, labels, 5, repeats=1) == kmeans_clusters(features, labels, 5, repeats=1, seed=0)
    assert found["purity_swapped"].value < found["purity"].value
    assert (found["purity"].protocol["k"], found["purity"].protocol["restarts"]) == (5, 4)
