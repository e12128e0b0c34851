import numpy as np
import pytest
import torch
from given import refused

from sao.evaluation import effective_rank, uniformity


def rank_me(x: np.ndarray) -> float:
    singular = np.linalg.svd(x.astype(np.float64), compute_uv=False)
    shares = singular / singular.sum()
    shares = shares[shares > 1e-12]
    return np.exp(-(shares * np.log(shares)).sum())


@pytest.mark.parametrize("n", [20, 500])
def test_effective_rank_against_singular_values(digits, n):
    x = digits[2][:n]
    assert effective_rank(x).value == pytest.approx(rank_me(x), rel=1e-4)


def test_effective_rank_of_known_matrices():
    assert effective_rank(np.eye(7)).value == pytest.approx(7)
    assert effective_rank(np.outer(np.arange(1, 9), np.ones(5))).value == pytest.approx(1, abs=1e-4)


def test_effective_rank_of_a_seeded_subset_states_it(digits):
    x = digits[2]
    metric = effective_rank(x, limit=20, seed=3)
    rows = torch.randperm(len(x), generator=torch.Generator().manual_seed(3))[:20].numpy()
    assert metric.value == pytest.approx(rank_me(x[rows]), rel=1e-4)
    assert metric.protocol["spectrum_of"] == 20
    assert metric.protocol["n_test"] == len(x)


def brute_uniformity(x: np.ndarray, t: float) -> float:
    x = x.astype(np.float64) / np.linalg.norm(x, axis=1, keepdims=True)
    kernel = [np.exp(-t * ((a - b) ** 2).sum()) for i, a in enumerate(x) for j, b in enumerate(x) if i != j]
    return float(np.log(np.mean(kernel)))


@pytest.mark.parametrize("chunk", [1, 13, 2048])
def test_uniformity_against_all_pairs(digits, chunk):
    x = digits[2][:60]
    assert uniformity(x, chunk=chunk).value == pytest.approx(brute_uniformity(x, 2.0), rel=1e-5)


def test_uniformity_of_a_seeded_subset_states_it(digits):
    metric = uniformity(digits[2], limit=100, seed=3)
    assert metric.protocol["pairs_of"] == 100
    assert metric.protocol["seed"] == 3
    assert metric.value == pytest.approx(uniformity(digits[2]).value, abs=0.1)
    assert metric.value == uniformity(digits[2], limit=100, seed=3).value


def test_uniformity_of_two_opposite_samples_is_that_of_their_distance():
    assert uniformity(np.array([[1.0, 0.0], [-3.0, 0.0]]), t=1.5).value == pytest.approx(-1.5 * 4)


def test_collapsed_features_are_not_uniform():
    assert uniformity(np.ones((10, 4))).value == pytest.approx(0, abs=1e-6)


def test_bad_input():
    refused("zero everywhere", effective_rank, np.zeros((4, 3)))
    refused("at least two", uniformity, np.ones((1, 3)))
