"""Nothing that is fitted knows the test split: for every metric of the suite and every baseline.

Each test replaces what must not be seen and compares what was fitted to the bit.
"""

import dataclasses
import inspect

import numpy as np
import pytest
import tiny
import torch

from sao.data.dataset import Dataset, Images
from sao.evaluation import outliers as outlier_module
from sao.evaluation import suite
from sao.evaluation.evaluator import Plan, representations
from sao.evaluation.features import Features
from sao.evaluation.folds import fold_of
from sao.evaluation.inputs import Columns, Task
from sao.evaluation.patches import Patches, patch_features
from sao.evaluation.suite import DEFAULT, SUPERVISED, evaluate
from sao.evaluation.svm import linear_svm
from sao.evaluation.verdict import PCA, pca

# No training split: by their protocol they are a statement about the scored rows themselves.
TRANSDUCTIVE = {
    "kmeans": "the paper clusters the validation features and matches clusters with their labels",
    "kmeans_best": "as kmeans; the run is chosen by its objective, not by labels",
    "nmi": "of the clusters of kmeans",
    "purity": "of the clusters of kmeans",
    "ari": "of the clusters of kmeans",
    "manifold": "the graph of neighbours is one of the scored rows; matched on them, as kmeans",
    "manifold_nmi": "of the clusters of manifold",
    "manifold_ari": "of the clusters of manifold",
    "effective_rank": "a statistic of the scored rows; nothing is fitted",
    "uniformity": "a statistic of the scored rows; nothing is fitted",
    "cluster_agreement": "agreement of clusterings of the scored rows; no labels are used",
}
COMPUTED = [name for name in SUPERVISED if name != "knn5"]  # found with knn1


@pytest.fixture(scope="module")
def splits(digits) -> tuple[Features, Features]:
    """Few rows and few columns: what is fitted depends on every one of them."""
    train_x, train_y, test_x, test_y = digits
    return Features(train_x[:300], train_y[:300]), Features(test_x[:150], test_y[:150])


def others(test: Features) -> Features:
    """Other rows with the same labels, of another mean, scale and direction."""
    draws = np.random.default_rng(1)
    return Features(100 + 30 * draws.standard_normal(tuple(test.values.shape)).astype(np.float32), test.labels)


def permuted(test: Features) -> Features:
    return Features(test.values, np.random.default_rng(2).permutation(test.labels))


def numbers(fitted) -> list[tuple[str, object]]:
    """Every number that a fitted thing holds, with its place; tensors as their bytes."""
    match fitted:
        case torch.Tensor():
            return [(f"{fitted.dtype} {tuple(fitted.shape)}", fitted.numpy().tobytes())]
        case np.ndarray():
            return [(f"{fitted.dtype} {fitted.shape}", fitted.tobytes())]
        case dict():
            return [(f"{key}.{place}", one) for key, value in fitted.items() for place, one in numbers(value)]
        case list() | tuple():
            return [(f"{i}.{place}", one) for i, value in enumerate(fitted) for place, one in numbers(value)]
        case _ if dataclasses.is_dataclass(fitted):
            return numbers({field.name: getattr(fitted, field.name) for field in dataclasses.fields(fitted)})
        case _:
            return [("", repr(fitted))]


@pytest.fixture
def fitted(monkeypatch) -> list:
    """All that the suite fits from now on."""
    kept, fit = [], suite.fit

    def recording(*arguments):
        kept.append(fit(*arguments))
        return kept[-1]

    monkeypatch.setattr(suite, "fit", recording)
    return kept


def test_every_metric_is_fitted_without_the_test_split_or_says_why_it_has_none():
    assert set(DEFAULT) == {*SUPERVISED, *TRANSDUCTIVE}
    assert not {*SUPERVISED} & {*TRANSDUCTIVE}
    for function in (suite.fit, Columns.fit, PCA.fit, Patches.fit, Task.of, fold_of):
        assert not [name for name in inspect.signature(function).parameters if "test" in name or "scored" in name]


@pytest.mark.parametrize("name", COMPUTED)
@pytest.mark.parametrize("changed", [others, permuted])
def test_what_a_metric_fits_is_the_same_whatever_the_test_split_is(name, changed, splits, fitted):
    train, test = splits
    found = [evaluate(train, held_out, [name], repeats=2)[0] for held_out in (test, changed(test))]
    first, second = map(numbers, fitted)
    assert first == second
    assert sum(len(value) for _, value in first if isinstance(value, bytes)) > 1000  # there was something to compare
    assert found[0].value != found[1].value  # and the test split was scored


@pytest.mark.parametrize("name", SUPERVISED)
def test_a_row_is_scored_alike_whatever_the_other_test_rows_are(name, splits):
    train, test = splits
    half = len(test) // 2
    mixed = Features(torch.cat([test.values[:half], others(test).values[half:]]), test.labels)
    first, second = (evaluate(train, held_out, [name], repeats=2)[0].right for held_out in (test, mixed))
    assert first is not None
    assert second is not None
    np.testing.assert_array_equal(first[..., :half], second[..., :half])


@pytest.mark.parametrize("name", COMPUTED)
def test_in_cross_validation_the_model_of_a_fold_never_saw_it(name, splits, fitted):
    """Nor does kNN find a row itself: the bank of a fold is fitted to the others."""
    train, _ = splits
    first = fold_of(train.labels) == 0
    values = train.values.clone()
    values[first] = others(train).values[first]
    for one in (train, Features(values, train.labels)):
        evaluate(one, None, [name], repeats=2)
    assert len(fitted) == 10
    assert numbers(fitted[0]) == numbers(fitted[5])  # of the first fold
    assert numbers(fitted[1]) != numbers(fitted[6])  # which the others saw


@pytest.mark.parametrize("changed", [others, permuted])
def test_the_pca_baseline_is_that_of_the_training_rows(changed, splits):
    train, test = splits
    components = 5
    mean = train.values.double().mean(dim=0)
    directions = torch.linalg.svd(train.values.double() - mean, full_matrices=False).Vh[:components].T
    for held_out in (test, changed(test)):
        projected, scored = pca(train, held_out, components)
        assert scored is not None
        assert numbers(projected.values) == numbers(PCA.fit(train.values, components).apply(train).values)
        for given, split in ((train, projected), (held_out, scored)):
            expected = (given.values.double() - mean) @ directions
            signs = torch.sign((expected.flip(1) * split.values).sum(dim=0))
            np.testing.assert_allclose(split.values * signs, expected.flip(1), rtol=1e-3, atol=1e-2)


def test_patches_are_fitted_to_the_training_images_and_score_each_image_alone():
    data = tiny.dataset()
    train, test = (part.pixels for part in (data.train, data.test))  # pyright: ignore[reportAttributeAccessIssue]
    rows, scored, half = np.arange(100), np.arange(60), 30
    mixed = np.concatenate([test[:half], 255 - test[half:60]])
    first, second = (patch_features([(train, rows), (one, scored)], 16, 0)[0] for one in (test[:60], mixed))
    assert numbers(first[0]) == numbers(second[0])
    assert numbers(first[1][:half].clone()) == numbers(second[1][:half].clone())
    assert numbers(first[1]) != numbers(second[1])
    np.testing.assert_allclose(first[0].mean(dim=0), 0, atol=1e-5)  # standardised by the training rows
    assert first[1].mean(dim=0).abs().max() > 0.01  # and by no others


def test_no_baseline_changes_its_training_rows_with_the_test_split():
    data = tiny.dataset()
    plan = Plan(("svm",), rows=150)
    assert data.test.labels is not None
    pixels = 255 - data.test.pixels[::-1]  # pyright: ignore[reportAttributeAccessIssue]
    labels = np.random.default_rng(0).permutation(data.test.labels)
    tests = [data.test, Images(pixels, data.test.labels), Images(data.test.pixels, labels)]  # pyright: ignore[reportAttributeAccessIssue]
    untrained = tiny.method(seed=1)
    found = [representations(tiny.method(), Dataset("digits", data.train, one), plan, untrained=untrained) for one in tests]
    assert list(found[0]) == ["learnt", "raw", "pca", "untrained", "patches"]
    for name in found[0]:
        first, *rest = (numbers([one[name][0].values, one[name][0].labels]) for one in found)
        assert all(one == first for one in rest), name


def test_c_is_chosen_on_rows_that_were_not_fitted():
    """Labels are noise and columns outnumber rows: an SVM is always right on what it was fitted to."""
    draws = np.random.default_rng(0)
    x, y = draws.standard_normal((200, 400)), draws.integers(0, 4, 200)
    metric = linear_svm(x, y, x, y)
    assert metric.value > 0.9
    assert max(metric.protocol["C_held_out_accuracy"].values()) < 0.6


def test_a_sample_does_not_count_itself_among_its_neighbours(monkeypatch):
    """The outlier's distance to the k-th nearest reference, whether it is one of them or not; by a literal search."""
    monkeypatch.setattr(outlier_module, "REFERENCES", 40)
    monkeypatch.setattr(outlier_module, "NEIGHBOURS", 3)
    features = np.random.default_rng(0).standard_normal((60, 5))
    references = np.sort(np.random.default_rng(7).permutation(60)[:40])
    expected = [
        sorted(np.linalg.norm(features[row] - features[other]) for other in references if other != row)[2] for row in range(60)
    ]
    np.testing.assert_allclose(outlier_module._remoteness(torch.from_numpy(features), 7), expected, rtol=1e-6)
