from functools import partial

import numpy as np
import pytest
from given import refused
from sklearn.metrics import accuracy_score
from sklearn.neighbors import KNeighborsClassifier

from sao.errors import InputError
from sao.evaluation import (
    DEFAULT,
    LABELLED,
    UNLABELLED,
    Features,
    as_grid,
    evaluate,
    kmeans_accuracy,
    linear_svm,
    load_features,
)
from sao.evaluation.budget import Budget, check_time
from sao.evaluation.folds import fold_of
from sao.evaluation.rank import uniformity
from sao.evaluation.suite import USEFULNESS


def test_everything_by_default_with_its_protocol(splits, digits):
    metrics = evaluate(*splits, repeats=3)
    assert [metric.name for metric in metrics] == list(DEFAULT)
    for metric in metrics:
        assert {"feature", "weights", "split", "n_test", "normalisation"} <= metric.protocol.keys()
        assert metric.protocol["split"] == "test"
    values = {metric.name: metric.value for metric in metrics}
    assert values["svm"] == linear_svm(*digits).value
    assert values["kmeans"] == kmeans_accuracy(digits[2], digits[3], repeats=3).value


def test_only_what_was_asked_for_in_that_order(splits):
    names = ["knn5", "ari", "knn1", "knn5"]
    assert [metric.name for metric in evaluate(*splits, metrics=names, repeats=2)] == ["knn5", "ari", "knn1"]


def test_references_are_measured_alike(splits):
    train, test = splits
    reference = {"half": (Features(train.values[:, :32], train.labels), Features(test.values[:, :32], test.labels))}
    metrics = {metric.name: metric.value for metric in evaluate(*splits, metrics=["knn1"], reference=reference)}
    assert metrics["half/knn1"] < metrics["knn1"]


def test_without_labels_only_what_needs_none(splits):
    train, test = (Features(split.values) for split in splits)
    metrics = evaluate(train, test)
    assert [metric.name for metric in metrics] == list(UNLABELLED)
    assert metrics[-1].protocol["k"] == 10
    refused("'svm' needs labels", evaluate, train, test, ["svm"])


def test_unknown_metric_suggests_the_nearest(splits):
    refused("did you mean 'kmeans'", evaluate, *splits, metrics=["k-means"])
    refused("metrics is empty", evaluate, *splits, metrics=[])


@pytest.mark.parametrize(
    ("values", "labels", "message"),
    [
        (np.full((4, 2), np.nan), None, "NaN or infinity in 4 of 4 rows"),
        (np.array([[1.0, np.inf], [0, 0]]), None, r"1 of 2 rows \(first: row 0\)"),
        (np.ones(4), None, r"must have shape \(samples, dimensions\)"),
        (np.ones((0, 4)), None, "is empty"),
        (np.ones((4, 2)), [0, 1, 1], "3 labels for 4 samples"),
        (np.ones((4, 2)), [1, 1, 1, 1], r"only one class \(1\)"),
        (np.ones((4, 2)), [[0], [1], [0], [1]], "flatten"),
    ],
)
def test_bad_features_are_one_clear_line(values, labels, message):
    with pytest.raises(InputError, match=message) as caught:
        Features(values, labels)
    assert "\n" not in str(caught.value)


def test_splits_must_fit_together(splits):
    train, test = splits
    refused("64 dimensions but test_x has 3", evaluate, train, Features(test.values[:, :3], test.labels), ["svm"])
    refused(r"labels that train_y lacks \(10\)", evaluate, train, Features(test.values, test.labels + 1), ["svm"])


def test_feature_files(tmp_path, digits, splits):
    train_x, train_y, test_x, test_y = digits
    np.savez(tmp_path / "both.npz", x_train=train_x, y_train=train_y, x_test=test_x, y_test=test_y)
    loaded = evaluate(*load_features(tmp_path / "both.npz"), ["knn1"])[0]
    assert loaded.value == evaluate(*splits, metrics=["knn1"])[0].value
    assert loaded.protocol["source"] == "both.npz"
    np.savez(tmp_path / "one.npz", features=test_x, labels=test_y)
    train, test = load_features(tmp_path / "one.npz")
    assert test is None
    assert "may have been trained on" in evaluate(train, test, ["kmeans"], repeats=2)[0].protocol["split"]


def test_bad_feature_files(tmp_path):
    refused("does not exist", load_features, tmp_path / "missing.npz")
    np.savez(tmp_path / "other.npz", images=np.ones(3))
    refused("holds images", load_features, tmp_path / "other.npz")
    np.savez(tmp_path / "half.npz", x_train=np.ones((3, 2)), y_train=np.arange(3))
    refused("holds x_train, y_train", load_features, tmp_path / "half.npz")
    (tmp_path / "text.npz").write_text("hello")
    refused("cannot be read", load_features, tmp_path / "text.npz")
    np.save(tmp_path / "array.npy", np.ones((2, 2)))
    refused("cannot be read", load_features, tmp_path / "array.npy")
    np.savez(tmp_path / "objects.npz", features=np.array([{}], dtype=object))
    refused("cannot be read", load_features, tmp_path / "objects.npz")


def test_one_split_is_cross_validated_and_never_scored_on_what_was_fitted(digits):
    """Random labels: whoever looks at the sample itself scores 1, whoever does not scores by chance."""
    labels = np.random.default_rng(0).permutation(digits[3])
    names = ["svm", "kmeans_strict", "knn1", "knn5", "probe"]
    for metric in evaluate(Features(digits[2], labels), None, names, repeats=2):
        assert metric.value < 0.2, metric.name
        assert metric.protocol["split"] == "one split, 5-fold cross-validation"
        assert (metric.protocol["n_train"], metric.protocol["n_test"]) == (400, 500)


def test_a_cross_validated_score_is_the_share_of_samples_that_other_folds_get_right(digits):
    x, y = digits[2], digits[3]
    fold = fold_of(y, seed=3)
    predicted = np.empty_like(y)
    for i in range(5):
        model = KNeighborsClassifier(1, metric="cosine").fit(x[fold != i], y[fold != i])
        predicted[fold == i] = model.predict(x[fold == i])
    metric = evaluate(Features(x, y), None, ["knn1"], seed=3)[0]
    assert metric.value == pytest.approx(accuracy_score(y, predicted), abs=0.0021)
    assert metric.right is not None
    assert (metric.right == (predicted == y)).mean() > 0.995
    counts = np.array([np.bincount(y[fold == i], minlength=10) for i in range(5)])
    assert (counts.max(axis=0) - counts.min(axis=0) <= 1).all()  # classes are spread evenly


def test_cross_validation_needs_two_of_each_class(digits):
    labels = digits[3].copy()
    labels[0] = 77
    refused("one sample of class 77", evaluate, Features(digits[2], labels), None, ["svm"])


def test_a_split_that_is_too_small_gives_a_caution_and_no_number(splits):
    """Three samples of three classes have a k-means accuracy of 1 whatever the features are."""
    train, test = splits
    three = test.select(np.array([int(np.flatnonzero(test.labels == label)[0]) for label in (0, 1, 2)]))
    for metric in evaluate(train, three):
        assert np.isnan(metric.value), metric.name
        assert metric.protocol["caution"] == "3 samples are too few to score: at least 20 are needed"
    few = {metric.name: metric for metric in evaluate(train, test.select(np.arange(40)), ["kmeans", "svm"])}
    assert "40 samples of 10 classes are too few to match" in few["kmeans"].protocol["caution"]
    assert few["svm"].value > 0.8


def test_lenient_says_why_where_the_data_does_not_allow_a_metric(splits):
    train, test = splits
    other = Features(test.values, test.labels + 1)
    found = {metric.name: metric for metric in evaluate(train, other, ["svm", "effective_rank"], lenient=True)}
    assert np.isnan(found["svm"].value)
    assert "labels that train_y lacks" in found["svm"].protocol["caution"]
    assert found["effective_rank"].value > 1


def test_progress_names_the_representation_and_the_metric(splits):
    train, test = splits
    said: list[str] = []
    evaluate(train, test, ["knn1"], reference={"raw": (train, test)}, progress=said.append)
    assert said == ["knn1", "raw: knn1"]


def test_folds_are_dealt_class_by_class_in_the_order_of_the_draw():
    """Literally: a sort that is not stable deals differently on another processor."""
    labels = np.arange(200) % 3
    draw = np.random.default_rng(4).permutation(200)
    dealt = [row for label in range(3) for row in draw if labels[row] == label]
    expected = np.empty(200, dtype=int)
    expected[dealt] = np.arange(200) % 5
    assert fold_of(labels, seed=4).tolist() == expected.tolist()


def test_a_part_of_many_samples_is_drawn_by_the_seed(splits, monkeypatch):
    monkeypatch.setattr("sao.evaluation.suite.uniformity", partial(uniformity, limit=50))
    found = [evaluate(*splits, metrics=["uniformity"], seed=seed)[0] for seed in (3, 4)]
    assert [metric.protocol["seed"] for metric in found] == [3, 4]
    assert found[0].value != found[1].value


def test_without_a_budget_every_metric_is_computed_once_in_the_order_of_its_use(splits):
    train, test = splits
    said: list[str] = []
    names = ["uniformity", "knn5", "ari", "effective_rank", "kmeans", "knn1"]
    found = evaluate(train, test, names, repeats=2, progress=said.append)
    assert said == ["effective_rank", "knn5", "ari", "uniformity"]
    assert [metric.name for metric in found] == names
    assert sorted(name for group in USEFULNESS for name in group) == sorted(DEFAULT)


def test_a_metric_that_takes_too_long_is_stopped_named_and_the_next_one_computed(splits, monkeypatch):
    """The clock jumps a minute whenever k-means looks at it; neighbours never do."""
    train, test = splits
    now = [0.0]
    monkeypatch.setattr("sao.evaluation.budget.time.monotonic", lambda: now[0])

    def slow() -> None:
        now[0] += 60
        check_time()

    monkeypatch.setattr("sao.evaluation.kmeans.check_time", slow)
    budget = Budget(minutes=10)
    names = ["kmeans", "nmi", "knn1", "uniformity"]
    found = evaluate(train, test, names, repeats=2, reference={"raw": (train, test)}, budget=budget)
    by_name = {metric.name: metric for metric in found}
    assert list(by_name) == [*names, *(f"raw/{name}" for name in names)]
    reason = "left out: it does not fit into the 10 minutes of this evaluation"
    for name in ("kmeans", "nmi", "raw/kmeans", "raw/nmi"):
        assert np.isnan(by_name[name].value)
        assert by_name[name].protocol["caution"] == reason
    assert now[0] == 360  # half of ten minutes, and what it took to notice
    plain = {metric.name: metric.value for metric in evaluate(train, test, ["knn1", "uniformity"])}
    assert {name: by_name[name].value for name in plain} == plain
    assert "– kmeans, nmi: " + reason in as_grid(found)


@pytest.mark.parametrize("name", [name for name in LABELLED if name not in ("manifold_nmi", "manifold_ari", "knn5")])
def test_every_long_computation_can_be_stopped(name, splits, monkeypatch):
    """The time is over as soon as it has begun."""
    train, test = splits
    times = iter([0.0, 0.0])
    monkeypatch.setattr("sao.evaluation.budget.time.monotonic", lambda: next(times, 600.0))
    (metric,) = evaluate(train, test, [name], repeats=2, budget=Budget(minutes=5))
    assert "left out" in metric.protocol["caution"]
