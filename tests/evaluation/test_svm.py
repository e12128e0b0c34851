import numpy as np
import pytest
import torch
from given import refused, standardised
from sklearn.svm import LinearSVC

from sao.evaluation import LinearSVM, linear_svm
from sao.evaluation.inputs import Columns
from sao.evaluation.svm import stratified_split


def objective(weights: np.ndarray, x: np.ndarray, y: np.ndarray, cost: float) -> np.ndarray:
    """Each class's objective, literally."""
    x = np.hstack([x, np.ones((len(x), 1))])
    signs = np.where(y[:, None] == np.arange(weights.shape[1]), 1.0, -1.0)
    slack = np.maximum(0, 1 - signs * (x @ weights))
    return 0.5 * (weights**2).sum(0) + cost * (slack**2).sum(0)


def fitted_as_linear_svc(x: np.ndarray, y: np.ndarray, cost: float, rtol: float, **options) -> tuple[LinearSVM, LinearSVC]:
    """Ours and theirs, whose objectives are the same."""
    reference = LinearSVC(C=cost, **options).fit(x, y)
    ours = LinearSVM.fit(torch.from_numpy(x).double(), torch.from_numpy(y), len(np.unique(y)), cost)
    expected = np.vstack([reference.coef_.T, reference.intercept_])
    np.testing.assert_allclose(objective(ours.weights.numpy(), x, y, cost), objective(expected, x, y, cost), rtol=rtol)
    return ours, reference


@pytest.mark.parametrize("cost", [1e-4, 1e-2, 1.0])
def test_same_solution_as_linear_svc(digits, cost):
    train_x, train_y, test_x, _ = standardised(digits)
    ours, reference = fitted_as_linear_svc(train_x, train_y, cost, 1e-5, dual=False, tol=1e-8, max_iter=10_000)
    agreement = (ours.predict(torch.from_numpy(test_x).double()).numpy() == reference.predict(test_x)).mean()
    assert agreement >= 0.998


def test_warm_start_along_the_costs_changes_nothing(digits):
    train_x, train_y, _, _ = standardised(digits)
    x, y = torch.from_numpy(train_x).double(), torch.from_numpy(train_y)
    last = list(LinearSVM.path(x, y, 10, [1e-4, 1e-3, 1e-2]))[-1]
    alone = LinearSVM.fit(x, y, 10, 1e-2)
    values = (objective(model.weights.numpy(), train_x, train_y, 1e-2) for model in (last, alone))
    np.testing.assert_allclose(*values, rtol=1e-5)


def test_accuracy_is_that_of_linear_svc_with_the_chosen_cost(digits):
    metric = linear_svm(*digits)
    train_x, train_y, test_x, test_y = standardised(digits)
    reference = LinearSVC(C=metric.protocol["C"], dual=False).fit(train_x, train_y).score(test_x, test_y)  # pyright: ignore[reportArgumentType]
    assert metric.value == pytest.approx(reference, abs=0.002)
    assert metric.protocol["n_train"] == len(train_x)
    assert metric.protocol["C_candidates"] == [1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0]


def test_chosen_cost_is_the_best_on_the_held_out_part_of_train(digits):
    train_x, train_y, test_x, test_y = digits
    costs = [1e-4, 1e-3, 1e-2, 1e-1]
    metric = linear_svm(*digits, costs=costs)
    scores = metric.protocol["C_held_out_accuracy"]
    assert scores[f"{metric.protocol['C']:g}"] == max(scores.values())
    shuffled = np.random.default_rng(0).permutation(test_y)
    again = linear_svm(train_x, train_y, test_x, shuffled, costs=costs)
    assert again.protocol["C"] == metric.protocol["C"]  # test plays no part


def test_the_search_ends_once_larger_costs_do_no_better(digits):
    """On separable classes every cost scores the same: the smallest is taken and only two more are tried."""
    train_x, train_y, _, _ = digits
    far = train_x + 100 * np.eye(10, 64)[train_y]
    metric = linear_svm(far, train_y, far, train_y)
    assert len(metric.protocol["C_held_out_accuracy"]) < len(metric.protocol["C_candidates"])
    assert metric.protocol["C_held_out_accuracy"][f"{metric.protocol['C']:g}"] == 1
    assert metric.value > 0.98


def test_two_classes_and_labels_of_any_kind(digits):
    train_x, train_y, test_x, test_y = digits
    names = np.array([f"digit {i}" for i in range(10)])
    few_train, few_test = train_y < 2, test_y < 2
    metric = linear_svm(train_x[few_train], names[train_y[few_train]], test_x[few_test], names[test_y[few_test]])
    assert metric.value > 0.98


def test_a_hundred_classes():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(100, 48))
    train_y, test_y = np.repeat(np.arange(100), 12), np.repeat(np.arange(100), 4)
    train_x = centres[train_y] + 0.6 * rng.normal(size=(1200, 48))
    test_x = centres[test_y] + 0.6 * rng.normal(size=(400, 48))
    ours = linear_svm(train_x, train_y, test_x, test_y, costs=[0.01])
    mean, scale = train_x.mean(0), train_x.std(0)
    reference = LinearSVC(C=0.01, tol=1e-6).fit((train_x - mean) / scale, train_y)
    assert ours.value == pytest.approx(reference.score((test_x - mean) / scale, test_y), abs=0.0051)
    assert ours.value > 0.8


def test_stratified_split_is_a_partition_with_every_class_on_both_sides(digits):
    labels = torch.from_numpy(digits[1])
    kept, held = stratified_split(labels, 0.2, 3)
    assert sorted(torch.cat([kept, held]).tolist()) == list(range(len(labels)))
    shares = torch.bincount(labels[held]) / torch.bincount(labels)
    assert shares.min() > 0.18
    assert shares.max() <= 0.2
    assert not torch.equal(held, stratified_split(labels, 0.2, 4)[1])


def test_bad_costs(digits):
    refused("costs", linear_svm, *digits, costs=[0.0, 1.0])
    refused("costs", linear_svm, *digits, costs=[])


@pytest.fixture(scope="module")
def wide() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """60 training and 40 test rows of 600 columns, three classes that overlap."""
    rng = np.random.default_rng(0)
    y = np.arange(100) % 3
    x = 0.3 * rng.normal(size=(3, 600))[y] + rng.normal(size=(100, 600)) * np.arange(1, 601) ** -0.3
    return x[:60], y[:60], x[60:], y[60:]


@pytest.mark.parametrize("cost", [1e-4, 1e-2, 1.0])
def test_with_fewer_rows_than_columns_the_solution_is_that_of_linear_svc(wide, cost):
    train_x, train_y, test_x, _ = standardised(wide)
    ours, reference = fitted_as_linear_svc(train_x, train_y, cost, 1e-4, dual=True, tol=1e-10, max_iter=100_000)
    scores = test_x @ ours.weights[:-1].numpy() + ours.weights[-1].numpy()
    np.testing.assert_allclose(scores, reference.decision_function(test_x), atol=0.01)


def test_the_accuracy_with_fewer_rows_than_columns(wide):
    metric = linear_svm(*wide)
    train_x, train_y, test_x, test_y = standardised(wide)
    reference = LinearSVC(C=metric.protocol["C"], tol=1e-8, max_iter=100_000).fit(train_x, train_y)
    assert metric.value == pytest.approx(reference.score(test_x, test_y), abs=0.026)  # one sample of 40


def test_as_many_columns_as_a_photograph_has_need_no_square_matrix():
    """49,152 columns squared would be 9.7 GB, and their eigenvectors take hours."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    x = rng.normal(size=(60, 49_152)).astype(np.float32) + 0.15 * y[:, None].astype(np.float32)
    assert linear_svm(x[:40], y[:40], x[40:], y[40:], costs=[1e-5, 1e-4]).value > 0.9


def test_both_many_rows_and_many_columns_are_bounded_and_the_protocol_says_so(wide, monkeypatch):
    assert "columns" not in linear_svm(*wide).protocol
    monkeypatch.setattr("sao.evaluation.inputs.LARGEST", 50)
    monkeypatch.setattr("sao.evaluation.inputs.NARROWED", 40)
    metric = linear_svm(*wide)
    assert metric.protocol["columns"] == "600, projected to 40 leading directions of the training rows"
    assert metric.value > 0.5  # chance is 0.33


def test_columns_are_projected_to_the_directions_in_which_training_rows_vary(monkeypatch):
    """Rows near a plane of 8 dimensions keep their inner products, in blocks of rows or at once."""
    monkeypatch.setattr("sao.evaluation.inputs.LARGEST", 50)
    monkeypatch.setattr("sao.evaluation.inputs.NARROWED", 20)
    draws = torch.Generator().manual_seed(0)
    plane, noise = torch.randn(8, 200, generator=draws), torch.randn(150, 200, generator=draws)
    train = torch.randn(150, 8, generator=draws) @ plane + 0.01 * noise
    whole = (train - train.mean(dim=0)) / train.std(dim=0, unbiased=False)
    found = Columns.fit(train).apply(train)
    assert found.shape == (150, 20)
    torch.testing.assert_close(found @ found.mT, whole @ whole.mT, rtol=0, atol=0.1)
    monkeypatch.setattr("sao.evaluation.inputs.BLOCK", 7)
    torch.testing.assert_close(Columns.fit(train).apply(train).abs(), found.abs(), rtol=1e-2, atol=1e-2)


def test_progress_names_every_cost_that_is_tried(wide):
    said: list[str] = []
    metric = linear_svm(*wide, progress=said.append)
    assert said[:-1] == [f"C = {cost}" for cost in metric.protocol["C_held_out_accuracy"]]
    assert said[-1].startswith(f"C = {metric.protocol['C']:g}, all")


def test_which_samples_were_right_comes_with_the_accuracy(digits):
    metric = linear_svm(*digits, costs=[1e-3])
    assert metric.right is not None
    assert metric.right.shape == (500,)
    assert metric.right.mean() == metric.value
