import itertools

import numpy as np
import pytest
import torch
from given import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score, confusion_matrix, normalized_mutual_info_score

from sao.evaluation import (
    ari,
    cluster_agreement,
    clustering,
    kmeans_accuracy,
    matched_accuracy,
    nmi,
    purity,
    spherical_kmeans,
    strict_kmeans_accuracy,
)

pairs_of_labelings = st.integers(1, 40).flatmap(lambda n: st.tuples(*[st.lists(st.integers(0, 3), min_size=n, max_size=n)] * 2))


def permutations_accuracy(clusters, labels) -> float:
    """Every injective map of clusters to classes (or classes to clusters), the best one."""
    a, b = np.unique(clusters, return_inverse=True)[1], np.unique(labels, return_inverse=True)[1]
    if a.max() > b.max():
        a, b = b, a
    maps = itertools.permutations(range(b.max() + 1), int(a.max()) + 1)
    return max((np.array(p)[a] == b).mean() for p in maps)


@settings(deadline=None)
@given(pairs_of_labelings)
def test_matching_against_all_permutations(labelings):
    assert matched_accuracy(*map(np.array, labelings)) == pytest.approx(permutations_accuracy(*labelings))


@settings(deadline=None)
@given(pairs_of_labelings)
def test_nmi_and_ari_against_scikit_learn(labelings):
    clusters, labels = map(np.array, labelings)
    assert ari(clusters, labels) == pytest.approx(adjusted_rand_score(labels, clusters), abs=1e-9)
    assert nmi(clusters, labels) == pytest.approx(normalized_mutual_info_score(labels, clusters), abs=1e-6)


def test_purity_by_hand():
    assert purity([0, 0, 0, 1, 1, 2], ["a", "a", "b", "b", "b", "a"]) == pytest.approx(5 / 6)


def test_paper_protocol_is_the_mean_over_the_runs(digits):
    _, _, x, y = digits
    metric = kmeans_accuracy(x, y, repeats=4)
    scores = [assigned_accuracy(run.assign(x).numpy(), y) for run in spherical_kmeans(x, 10, 4)]
    assert metric.value == pytest.approx(np.mean(scores))
    assert metric.std == pytest.approx(np.std(scores))
    assert metric.protocol["restarts"] == 4
    assert metric.protocol["k"] == 10
    assert metric.value > 0.6
    assert kmeans_accuracy(x, y).protocol["restarts"] == 20


def assigned_accuracy(clusters, labels) -> float:
    table = confusion_matrix(labels, clusters)
    return table[linear_sum_assignment(-table)].sum() / table.sum()


def test_all_four_metrics_come_from_the_same_runs(digits):
    _, _, x, y = digits
    runs = [run.assign(x).numpy() for run in spherical_kmeans(x, 12, 3)]
    metrics = {metric.name: metric.value for metric in clustering(x, y, k=12, repeats=3)}
    assert metrics["nmi"] == pytest.approx(np.mean([normalized_mutual_info_score(y, run) for run in runs]))
    assert metrics["ari"] == pytest.approx(np.mean([adjusted_rand_score(y, run) for run in runs]))
    assert metrics["purity"] == pytest.approx(np.mean([purity(run, y) for run in runs]))
    assert metrics["kmeans"] == pytest.approx(np.mean([matched_accuracy(run, y) for run in runs]))


def test_strict_protocol_never_looks_at_the_scored_split(digits):
    train_x, train_y, test_x, test_y = digits
    strict = strict_kmeans_accuracy(*digits, repeats=3)
    assert strict.value == pytest.approx(kmeans_accuracy(test_x, test_y, repeats=3).value, abs=0.15)
    # Scoring single samples must give the same decisions as scoring all: nothing is fitted to what is scored.
    alone = [strict_kmeans_accuracy(train_x, train_y, test_x[i : i + 1], test_y[i : i + 1], repeats=3) for i in range(4)]
    first = strict_kmeans_accuracy(train_x, train_y, test_x[:4], test_y[:4], repeats=3)
    assert first.value == pytest.approx(np.mean([metric.value for metric in alone]))
    # Matching on wrong training labels must hurt, though the test labels are right.
    wrong = np.random.default_rng(0).permutation(train_y)
    assert strict_kmeans_accuracy(train_x, wrong, test_x, test_y, repeats=3).value < 0.4


def test_agreement_is_one_for_clear_groups_and_low_for_noise():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.eye(4, 8), 50, axis=0) + 0.02 * rng.normal(size=(200, 8))
    noise = rng.normal(size=(200, 8))
    assert cluster_agreement(groups, 4, repeats=5).value == pytest.approx(1)
    assert cluster_agreement(noise, 4, repeats=5).value < 0.7


def test_agreement_is_the_mean_over_pairs(digits):
    x = digits[2]
    runs = [run.assign(x).numpy() for run in spherical_kmeans(x, 10, 3)]
    expected = np.mean([adjusted_rand_score(a, b) for a, b in itertools.combinations(runs, 2)])
    assert cluster_agreement(x, 10, repeats=3).value == pytest.approx(expected)


def test_bad_input(digits):
    _, _, x, y = digits
    refused("only one class", kmeans_accuracy, x, np.zeros(len(x)))
    refused("499 labels for 500 samples", kmeans_accuracy, x, y[1:])
    refused("clusters has 2", ari, [0, 1], [0, 1, 2])


def test_the_best_run_is_the_one_with_the_greatest_objective():
    """Not the one with the most right labels: labels choose nothing."""
    features = torch.randn(90, 3, generator=torch.Generator().manual_seed(0))
    labels = spherical_kmeans(features, 3, 8, seed=5)[2].assign(features).numpy()
    runs = spherical_kmeans(features, 3, 8, seed=5)
    objectives = [run.cosine_sum for run in runs]
    scores = [matched_accuracy(run.assign(features), labels) for run in runs]
    chosen = int(np.argmax(objectives))
    assert scores[chosen] < max(scores)
    best = clustering(features, labels, repeats=8, seed=5)[1]
    assert (best.name, best.value, best.std) == ("kmeans_best", scores[chosen], None)
    assert best.protocol["chosen"] == "the greatest sum of cosines"


def test_agreement_of_two_runs_is_enough_and_its_protocol_says_what_was_done(digits):
    found = cluster_agreement(digits[2], 7, repeats=2)
    assert (found.protocol["k"], found.protocol["restarts"], found.protocol["seeds"]) == (7, 2, "0..1")
    refused("repeats is 1: agreement needs at least 2 runs", cluster_agreement, digits[2], 7, repeats=1)


def test_scores_are_averaged_in_double_precision():
    labels = np.arange(30) % 3
    features = np.eye(3)[labels] + 0.4 * np.random.default_rng(0).normal(size=(30, 3))
    scores = [nmi(run.assign(features), labels) for run in spherical_kmeans(features, 3, 7)]
    assert clustering(features, labels, repeats=7)[2].value == pytest.approx(np.mean(scores), rel=1e-14)
