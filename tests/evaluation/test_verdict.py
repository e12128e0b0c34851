import math
import re
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from given import refused
from scipy.stats import norm

from sao.evaluation import Features, Metric, compare, judge
from sao.evaluation.comparison import paired
from sao.evaluation.result import accuracy
from sao.evaluation.verdict import claim_of, verdict_of


def informative(labels: np.ndarray, noise: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.eye(10, 16)[labels] + noise * rng.normal(size=(len(labels), 16))


def test_verdict_yes_when_the_features_know_the_classes(splits):
    train, test = splits
    good = (Features(informative(train.labels, 0.05), train.labels), Features(informative(test.labels, 0.05), test.labels))
    result = judge(*good, raw=(train.values, test.values), untrained=(train.values[:, ::2], test.values[:, ::2]))
    assert result.better is True
    with pytest.raises(FrozenInstanceError):  # nor can it be made to say so afterwards
        result.better = False  # pyright: ignore[reportAttributeAccessIssue]
    assert result.sentence.startswith("Yes")
    assert {"svm", "raw/svm", "pca/svm", "untrained/svm", "pca/effective_rank"} <= {m.name for m in result.metrics}
    pca = next(metric for metric in result.metrics if metric.name == "pca/svm")
    assert pca.protocol["feature"] == "pca of raw inputs, 16 dimensions"


def test_verdict_no_for_noise_and_no_difference_for_the_inputs_themselves(splits):
    train, test = splits
    raw = (train.values, test.values)
    noise = (Features(informative(train.labels, 9), train.labels), Features(informative(test.labels, 9, 1), test.labels))
    result = judge(*noise, raw=raw)
    assert result.better is False
    assert "worse than the baselines" in result.sentence
    same = judge(train, test, raw=raw)
    assert same.better is not True
    for metric in ("k-means", "clusters along the manifold", "linear SVM", "5-nearest-neighbour"):
        assert re.search(f"no measurable difference at .*{metric}", same.sentence)


def test_verdict_without_labels_promises_nothing_but_sees_a_collapse(splits):
    train, test = (Features(split.values) for split in splits)
    raw = (train.values, test.values)
    result = judge(train, test, raw=raw)
    assert result.better is None
    assert result.sentence.startswith("Without labels nobody can say")
    flat = [
        Features(np.ones((len(split), 8)) + 1e-4 * np.random.default_rng(0).normal(size=(len(split), 8))) for split in splits
    ]
    collapsed = judge(flat[0], flat[1], raw=raw)
    assert collapsed.better is False
    assert "collapsed" in collapsed.sentence


def test_verdict_takes_the_same_samples_everywhere(splits):
    train, test = splits
    result = judge(train, test, raw=(train.values, test.values), limit=200)
    values = {metric.name: metric for metric in result.metrics}
    assert values["svm"].value == values["raw/svm"].value  # raw is the features: any shift of rows would show
    assert values["svm"].protocol["n_test"] == 200
    refused("raw has 3 rows", judge, train, test, raw=(train.values[:3], test.values))


def right(both: int, gained: int, lost: int, neither: int) -> tuple[np.ndarray, np.ndarray]:
    """Which samples ours and theirs get right, by how many there are of each of the four kinds."""
    ours = np.repeat([True, True, False, False], [both, gained, lost, neither])
    theirs = np.repeat([True, False, True, False], [both, gained, lost, neither])
    return ours, theirs


@pytest.mark.parametrize(("gained", "lost"), [(8, 1), (1, 8), (5, 5), (0, 0), (51, 29)])
def test_the_paired_test_is_mcnemars(gained, lost):
    found = paired(*right(40, gained, lost, 60))
    as_many_or_fewer = sum(math.comb(gained + lost, i) for i in range(min(gained, lost) + 1)) / 2 ** (gained + lost)
    exactly = math.comb(gained + lost, min(gained, lost)) / 2 ** (gained + lost)
    assert found.p == pytest.approx(2 * (as_many_or_fewer - exactly / 2))


def test_the_paired_test_errs_as_seldom_as_it_says():
    draws = np.random.default_rng(0)
    kinds = draws.choice(4, (3000, 60), p=[0.4, 0.15, 0.15, 0.3])
    wrong = [paired(kind < 2, (kind == 0) | (kind == 2)).p < 0.05 for kind in kinds]
    assert 0.02 < np.mean(wrong) < 0.06


def test_intervals_hold_as_often_as_they_promise():
    draws = np.random.default_rng(0)
    held = []
    for _ in range(2000):
        kinds = draws.choice(4, 80, p=[0.4, 0.2, 0.1, 0.3])  # the true difference is 0.1
        found = paired(kinds < 2, (kinds == 0) | (kinds == 2))
        held.append(abs(found.centre - 0.1) <= 1.96 * found.error)
    assert 0.935 < np.mean(held) < 0.975


def test_a_difference_between_restarts_alone_is_not_significant():
    """Each restart gets a random half of the samples right: nothing differs, whatever the seeds."""
    draws = np.random.default_rng(0)
    found = [paired(*(draws.random((2, 5, 60)) < 0.5)).p for _ in range(300)]
    assert np.mean(np.array(found) < 0.05) < 0.09


def compared(scale: int, references: int = 1, metrics: int = 1):
    """0.450 against 0.377 of 300 samples, of which an unpaired test sees nothing; or of more samples of the same kind."""
    ours, theirs = right(*(scale * count for count in (84, 51, 29, 136)))
    found = [accuracy("svm", ours, {})] + [accuracy(f"r{i}/svm", theirs, {}) for i in range(references)]
    return compare(found[0], {metric.name.split("/")[0]: metric for metric in found[1:]}, metrics)


def test_a_paired_comparison_sees_what_an_unpaired_one_does_not():
    one = compared(1)
    assert (round(one.ours, 3), round(one.theirs, 3)) == (0.45, 0.377)
    assert one.p == pytest.approx(0.014, abs=0.001)
    assert one.decided
    assert 0.01 < one.low < one.high < 0.14
    assert 2 * np.hypot(*(np.sqrt(v * (1 - v) / 300) for v in (one.ours, one.theirs))) > one.difference  # two standard errors


def test_p_and_interval_are_corrected_for_the_number_of_metrics():
    one, of_five = compared(1), compared(1, metrics=5)
    assert of_five.p == pytest.approx(5 * one.p)
    assert not of_five.decided
    assert of_five.low < 0 < one.low


def test_better_needs_every_reference_and_worse_one_of_them():
    ours, theirs = right(84, 51, 29, 136)
    metrics = {"good": accuracy("svm", ours, {}), "bad": accuracy("svm", theirs, {})}
    assert compare(metrics["good"], {"bad": metrics["bad"], "same": metrics["good"]}).p == 1
    assert compare(metrics["good"], {"bad": metrics["bad"], "worse": metrics["bad"]}).p == pytest.approx(0.014, abs=0.001)
    loss = compare(metrics["bad"], {"good": metrics["good"], "same": metrics["bad"]})
    assert loss.reference == "good"
    assert loss.p == pytest.approx(2 * 0.014, abs=0.002)


def of_metrics(scale: int) -> list[Metric]:
    """0.443 against 0.377 by the SVM, 0.343 against 0.277 by neighbours, and k-means without a difference."""
    found = []
    for name, counts in (("svm", (83, 50, 30, 137)), ("knn5", (53, 50, 30, 167)), ("kmeans", (60, 10, 10, 220))):
        ours, theirs = right(*(scale * count for count in counts))
        found += [accuracy(name, ours, {}), accuracy(f"raw/{name}", theirs, {})]
    return found


def test_the_verdict_says_when_the_number_of_samples_is_what_limits():
    few = verdict_of(of_metrics(1))
    assert few.better is None
    assert few.sentence.startswith("Not settled: 300 held-out samples are too few")
    assert "linear SVM 0.443 against 0.377 of raw (+0.067, -0.00" in few.sentence
    assert "cannot be seen with so few" in few.sentence
    many = verdict_of(of_metrics(3))
    assert many.better is True
    assert many.sentence.startswith("Yes")
    assert "no measurable difference at k-means" in many.sentence


def test_the_comparison_stands_in_the_protocol():
    svm = next(metric for metric in verdict_of(of_metrics(3)).metrics if metric.name == "svm")
    compared = svm.protocol["compared"]
    assert compared["with"] == "raw"
    assert compared["corrected_for"] == 3
    assert compared["interval"][0] < compared["difference"] < compared["interval"][1]
    assert 0 < compared["p"] < 0.05


def test_the_verdict_gives_the_caution_where_nothing_could_be_measured(splits):
    train, test = splits
    three = test.select(np.array([int(np.flatnonzero(test.labels == label)[0]) for label in (0, 1, 2)]))
    result = judge(train, three, raw=(train.values, three.values))
    assert result.better is None
    assert "3 samples are too few to score" in result.sentence
    bare = Features(train.values), Features(three.values)
    assert "3 samples are too few to score" in judge(*bare, raw=(train.values, three.values)).sentence


@pytest.mark.parametrize("restarts", [2, 4])
def test_the_test_over_restarts_is_that_of_a_normal_difference(restarts):
    """A sample's share of right restarts, its variance over samples, and the restarts' own; two-sided."""
    draws = np.random.default_rng(0)
    ours, theirs = draws.random((restarts, 50)) < 0.6, draws.random((restarts, 50)) < 0.5
    difference = ours.mean(axis=0) - theirs.mean(axis=0)
    variance = difference.var(ddof=1) / 50 + sum(runs.mean(axis=1).var(ddof=1) / restarts for runs in (ours, theirs))
    found = paired(ours, theirs)
    assert found.p == pytest.approx(2 * norm.sf(abs(difference.mean()) / math.sqrt(variance)))


def test_the_claim_of_a_sentence_stands_without_its_numbers():
    against = "the baselines (the best of raw, pca)"
    assert claim_of(f"Yes, it is better than {against}: k-means 0.6; no more.") == (
        f"Yes, it is better than {against}.",
        "K-means 0.6; no more.",
    )
    alone = f"No, it is not measurably better than {against}."
    assert claim_of(alone) == (alone, "")
    assert claim_of("Nobody can say whether it is better than the baselines: 3 samples.")[1] == "3 samples."
    assert claim_of("Yes, it is better than doing nothing (the best of raw): SVM.")[1] == "SVM."  # of version 0.2
    assert claim_of("Something else.") == ("Something else.", "")
