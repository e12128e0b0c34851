"""What looks like none of the others is found, and of what is all of one kind next to nothing is."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from sao.evaluation import outliers as module
from sao.evaluation.outliers import _distances, outliers


@pytest.fixture(scope="module")
def digits() -> np.ndarray:
    values, _ = load_digits(return_X_y=True)
    return (np.asarray(values) * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)


def flat(pixels: np.ndarray) -> np.ndarray:
    return pixels.reshape(len(pixels), -1).astype(np.float32)


def test_junk_among_digits(digits):
    draws = np.random.default_rng(0)
    junk = np.concatenate([np.zeros((3, 8, 8, 1)), np.full((3, 8, 8, 1), 255), draws.integers(0, 256, (3, 8, 8, 1))])
    pixels = np.concatenate([digits, junk.astype(np.uint8)])
    found = outliers(flat(pixels), pixels)
    assert found[-9:].all()
    assert found[:-9].sum() <= 3


def test_a_clean_set_has_next_to_none(digits):
    assert outliers(flat(digits), digits).sum() <= 3
    draws = np.random.default_rng(0)
    assert outliers(draws.normal(size=(3000, 10))).sum() <= 3


def test_features_alone_tell_far_samples_even_a_few_together():
    draws = np.random.default_rng(0)
    features = np.concatenate([draws.normal(size=(500, 6)), 40 + draws.normal(size=(5, 6))])
    assert list(np.flatnonzero(outliers(features))) == [500, 501, 502, 503, 504]


def test_no_more_references_are_compared_than_allowed(monkeypatch):
    draws = np.random.default_rng(0)
    features = np.concatenate([draws.normal(size=(800, 6)), 40 + draws.normal(size=(3, 6))])
    monkeypatch.setattr(module, "REFERENCES", 200)
    assert list(np.flatnonzero(outliers(features))) == [800, 801, 802]


def test_a_class_that_comes_late_in_the_folder_has_its_references_too(monkeypatch):
    monkeypatch.setattr(module, "REFERENCES", 300)
    features = torch.from_numpy(np.random.default_rng(0).normal(size=(900, 6)) + 40 * np.repeat(np.eye(6)[:3], 300, axis=0))
    first, other = (module._remoteness(features, seed) for seed in (0, 1))
    assert max(first.max(), other.max()) < 10
    assert not np.array_equal(first, other), "the seed draws them"


@pytest.mark.parametrize("features", [np.zeros((100, 4)), np.ones((1, 4)), np.eye(20), np.repeat(np.eye(4), 40, axis=0)])
def test_where_nothing_is_usual_nothing_is_strange(features):
    assert not outliers(features).any()
    assert not outliers(features, np.zeros((len(features), 8, 8, 1), np.uint8)).any()


def test_the_first_guess_at_what_is_usual_does_not_depend_on_units():
    """One column is in thousandths; the rows that are strange in it must not be drowned by the other."""
    table = np.random.default_rng(0).normal(size=(200, 2))
    table[:15, 0] += 10
    expected = module._distances(table, rounds=1)
    assert expected[:15].min() > expected[15:].max()
    np.testing.assert_allclose(module._distances(table * [1, 1000], rounds=1), expected, rtol=1e-6)


@pytest.mark.parametrize("size", [1, 3])
def test_distances_of_a_gaussian_are_in_its_own_deviations(size):
    draws = np.random.default_rng(0).standard_normal((4000, size))
    mixed = draws @ np.random.default_rng(1).normal(size=(size, size)) + 7
    assert np.mean(_distances(mixed) ** 2) == pytest.approx(size, rel=0.1)


def test_a_few_that_are_far_do_not_move_what_is_usual():
    draws = np.random.default_rng(0).standard_normal((1000, 2))
    junk = np.concatenate([draws, np.full((40, 2), 50.0)])
    np.testing.assert_allclose(_distances(junk)[:1000], _distances(draws), rtol=0.15, atol=0.1)
    assert _distances(junk)[1000:].min() > 30
