import numpy as np
import pytest

from sao.errors import InputError
from sao.evaluation import DEFAULT, UNLABELLED, Features, evaluate, judge, kmeans_accuracy, linear_svm, load_features


@pytest.fixture
def splits(digits):
    train_x, train_y, test_x, test_y = digits
    facts = {"feature": "backbone", "weights": "ema"}
    return Features(train_x, train_y, {**facts, "split": "train"}), Features(test_x, test_y, {**facts, "split": "test"})


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
    with pytest.raises(InputError, match="'svm' needs labels"):
        evaluate(train, test, ["svm"])


def test_unknown_metric_suggests_the_nearest(splits):
    with pytest.raises(InputError, match="did you mean 'kmeans'"):
        evaluate(*splits, metrics=["k-means"])
    with pytest.raises(InputError, match="metrics is empty"):
        evaluate(*splits, metrics=[])


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
    with pytest.raises(InputError, match="64 dimensions but test_x has 3"):
        evaluate(train, Features(test.values[:, :3], test.labels), ["svm"])
    with pytest.raises(InputError, match=r"labels that train_y lacks \(10\)"):
        evaluate(train, Features(test.values, test.labels + 1), ["svm"])


def test_feature_files(tmp_path, digits, splits):
    train_x, train_y, test_x, test_y = digits
    np.savez(tmp_path / "both.npz", x_train=train_x, y_train=train_y, x_test=test_x, y_test=test_y)
    loaded = evaluate(*load_features(tmp_path / "both.npz"), ["knn1"])[0]
    assert loaded.value == evaluate(*splits, metrics=["knn1"])[0].value
    assert loaded.protocol["source"] == "both.npz"
    np.savez(tmp_path / "one.npz", features=test_x, labels=test_y)
    train, test = load_features(tmp_path / "one.npz")
    assert train is test
    assert "fitted and scored" in evaluate(train, test, ["kmeans"], repeats=2)[0].protocol["split"]


def test_bad_feature_files(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        load_features(tmp_path / "missing.npz")
    np.savez(tmp_path / "other.npz", images=np.ones(3))
    with pytest.raises(InputError, match="holds images"):
        load_features(tmp_path / "other.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(InputError, match="cannot be read"):
        load_features(tmp_path / "text.npz")
    np.save(tmp_path / "array.npy", np.ones((2, 2)))
    with pytest.raises(InputError, match="cannot be read"):
        load_features(tmp_path / "array.npy")
    np.savez(tmp_path / "objects.npz", features=np.array([{}], dtype=object))
    with pytest.raises(InputError, match="cannot be read"):
        load_features(tmp_path / "objects.npz")


def informative(labels: np.ndarray, noise: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.eye(10, 16)[labels] + noise * rng.normal(size=(len(labels), 16))


def test_verdict_yes_when_the_features_know_the_classes(splits):
    train, test = splits
    good = (Features(informative(train.labels, 0.05), train.labels), Features(informative(test.labels, 0.05), test.labels))
    result = judge(*good, raw=(train.values, test.values), untrained=(train.values[:, ::2], test.values[:, ::2]))
    assert result.better is True
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
    assert "worse than doing nothing" in result.sentence
    same = judge(train, test, raw=raw)
    assert same.better is False
    assert "not measurably better" in same.sentence


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
    with pytest.raises(InputError, match="raw has 3 rows"):
        judge(train, test, raw=(train.values[:3], test.values))
