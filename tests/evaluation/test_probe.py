import numpy as np
import pytest
import torch
from given import refused, standardised
from sklearn.linear_model import LogisticRegression

from sao.evaluation import few_shot, linear_probe
from sao.evaluation.probe import Probe, labelled_rows


@pytest.mark.parametrize("cost", [0.01, 1.0])
def test_same_solution_as_logistic_regression(digits, cost):
    train_x, train_y, _, _ = standardised(digits)
    train_x = train_x.astype(np.float64) + 0.5  # off centre: the intercept must be free, not penalised
    reference = LogisticRegression(C=cost, tol=1e-9, max_iter=5000).fit(train_x, train_y)
    probe = Probe.fit(torch.from_numpy(train_x), torch.from_numpy(train_y), 10, cost)
    np.testing.assert_allclose(probe.weights.numpy(), reference.coef_.T, atol=2e-5)
    shift = probe.intercept.numpy() - reference.intercept_
    np.testing.assert_allclose(shift, shift.mean(), atol=1e-4)  # a constant added to every class changes nothing


def test_accuracy_and_convergence_in_float32(digits):
    train_x, train_y, test_x, test_y = standardised(digits)
    metric = linear_probe(*digits)
    reference = LogisticRegression(max_iter=2000).fit(train_x, train_y).score(test_x, test_y)
    assert metric.value == pytest.approx(reference, abs=0.0021)
    assert metric.protocol["largest_gradient"] < 1e-4


def test_few_shot_draws_are_stratified_and_seeded(digits):
    labels = torch.from_numpy(digits[1])
    rows = labelled_rows(labels, 0.1, 0)
    counts, totals = torch.bincount(labels[rows]), torch.bincount(labels)
    assert counts.tolist() == [round(0.1 * int(n)) for n in totals]
    assert torch.equal(rows, labelled_rows(labels, 0.1, 0))
    assert not torch.equal(rows, labelled_rows(labels, 0.1, 1))
    assert torch.bincount(labels[labelled_rows(labels, 1e-6, 0)]).tolist() == [1] * 10


def test_few_shot_is_the_probe_on_those_rows(digits):
    metric = few_shot(*digits, share=0.1, repeats=3)
    train_x, train_y, test_x, test_y = standardised(digits)
    scores = []
    for seed in range(3):
        rows = labelled_rows(torch.from_numpy(train_y), 0.1, seed).numpy()
        scores.append(LogisticRegression(max_iter=2000).fit(train_x[rows], train_y[rows]).score(test_x, test_y))
    assert metric.value == pytest.approx(np.mean(scores), abs=0.004)
    assert metric.std == pytest.approx(np.std(scores), abs=0.004)
    assert metric.name == "probe_10pct"
    assert metric.value < linear_probe(*digits).value
    assert few_shot(*digits, share=0.02).protocol["seeds"] == "0..4"


def test_bad_input(digits):
    refused("share", few_shot, *digits, share=1.5)
    refused("cost", linear_probe, *digits, cost=0)


def test_with_fewer_rows_than_columns_the_solution_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    x = 0.3 * rng.normal(size=(3, 400))[y] + rng.normal(size=(90, 400))
    reference = LogisticRegression(C=0.1, tol=1e-10, max_iter=10_000).fit(x[:50], y[:50])
    ours = Probe.fit(torch.from_numpy(x[:50]), torch.from_numpy(y[:50]), 3, cost=0.1)
    logits = x[50:] @ ours.weights.numpy() + ours.intercept.numpy()
    expected = reference.decision_function(x[50:])
    np.testing.assert_allclose(logits - logits.mean(1, keepdims=True), expected - expected.mean(1, keepdims=True), atol=1e-4)
