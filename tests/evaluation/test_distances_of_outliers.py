"""Distances from what is usual are in deviations: of a Gaussian cloud their squares have the mean of chi-squared."""

import numpy as np
import pytest

from sao.evaluation.outliers import _distances


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
