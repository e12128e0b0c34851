import numpy as np
import pytest
import torch
from given import refused
from sklearn.cluster import KMeans

from sao.evaluation import best_kmeans, spherical_kmeans
from sao.evaluation.kmeans import _assign_and_sum, _lloyd, _refill


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def test_sum_of_cosines_is_as_good_as_scikit_learns(digits):
    x = unit(digits[0])
    ours = best_kmeans(x, 10, repeats=20).cosine_sum
    fit = KMeans(10, n_init=20, random_state=0).fit(x)  # pyright: ignore[reportArgumentType]
    centres = unit(fit.cluster_centers_)
    assert ours >= 0.999 * (x @ centres.T).max(axis=1).sum()


def test_each_run_is_a_fixed_point(digits):
    """Converged: the centroids are the unit means of what is assigned to them, and the sum is what they say."""
    x = unit(digits[2])
    for run in spherical_kmeans(x, 10, repeats=3):
        clusters, cosines = run.nearest(x)
        means = np.stack([x[clusters.numpy() == j].sum(0) for j in range(10)])
        np.testing.assert_allclose(run.centroids.numpy(), unit(means), atol=1e-5)
        assert run.cosine_sum == pytest.approx(cosines.double().sum().item(), rel=1e-6)
        np.testing.assert_array_equal(clusters, (x @ run.centroids.numpy().T).argmax(axis=1))


def test_scale_of_a_sample_does_not_matter(digits):
    x = digits[2]
    scales = np.random.default_rng(0).uniform(0.5, 20, size=(len(x), 1)).astype(np.float32)
    first, second = spherical_kmeans(x, 5, 2), spherical_kmeans(x * scales, 5, 2)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a.assign(x), b.assign(x))


def test_runs_depend_on_their_own_seed_only(digits):
    x = digits[2]
    many, few, shifted = spherical_kmeans(x, 10, 6), spherical_kmeans(x, 10, 2), spherical_kmeans(x, 10, 2, seed=4)
    for a, b in zip(many[:2] + many[4:], few + shifted, strict=True):
        np.testing.assert_allclose(a.centroids, b.centroids, atol=1e-5)
    assert not torch.allclose(many[0].centroids, many[1].centroids, atol=1e-3)


@pytest.mark.parametrize("chunk", [11, 37, 499, 10_000])
def test_chunk_size_does_not_matter(digits, chunk):
    x = digits[2]
    expected, got = spherical_kmeans(x, 10, 3), spherical_kmeans(x, 10, 3, chunk=chunk)
    for a, b in zip(expected, got, strict=True):
        np.testing.assert_array_equal(a.assign(x), b.assign(x))


def test_an_empty_cluster_is_refilled_with_the_worst_sample():
    x = torch.nn.functional.normalize(torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, 0.2], [0.0, 1.0]]), dim=1)
    centroids = torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]])  # nobody is nearest to the second
    _, cosines, sums, counts = _assign_and_sum(x, centroids, 16)
    assert counts.tolist() == [[4, 0]]
    before = sums.clone()
    torch.testing.assert_close(_refill(x, sums, counts, cosines)[0, 1], x[3])
    assert torch.equal(sums, before)


def test_a_run_is_not_over_before_its_centroids_have_moved():
    """Also where the first assignment puts every sample in one cluster, whichever it is."""
    x = torch.nn.functional.normalize(torch.tensor([[1.0, 0.1], [1.0, 0.2], [1.0, 0.3]]), dim=1)
    for mine in range(2):
        starts = torch.tensor([[[-1.0, 0.0], [-1.0, 0.0]]])
        starts[0, mine, 0] = 1.0
        (run,) = _lloyd(x, starts, 300, 16)
        assert run.cosine_sum > 2.99
        assert run.iterations > 1


def test_one_cluster_is_the_direction_of_the_mean(digits):
    x = unit(digits[2])
    (run,) = spherical_kmeans(x, 1, repeats=1)
    np.testing.assert_allclose(run.centroids[0], x.mean(0) / np.linalg.norm(x.mean(0)), atol=1e-6)
    assert len(spherical_kmeans(x[:50], 1)) == 20


def test_starts_are_drawn_by_how_far_they_are_from_those_that_were_drawn():
    """Copies of a centre are at no distance from it, so that the one row elsewhere is always the second centre."""
    x = np.repeat([[1.0, 0.0], [0.0, 1.0]], [300, 1], axis=0).astype(np.float32)
    for run in spherical_kmeans(x, 2, repeats=10, iterations=1):
        assert sorted(run.centroids.tolist()) == [[0.0, 1.0], [1.0, 0.0]]


def test_as_many_distinct_clusters_as_groups_even_from_bad_starts():
    """Thirty tight groups and k = 30: starts that share a group leave others without one."""
    rng = np.random.default_rng(1)
    centres = unit(rng.normal(size=(30, 16)))
    x = unit(np.repeat(centres, 10, axis=0) + 0.01 * rng.normal(size=(300, 16)))
    run = best_kmeans(x, 30, repeats=5)
    assert len(set(run.assign(x).tolist())) == 30
    assert run.cosine_sum > 299


def test_duplicates_fewer_than_k_still_finish():
    x = np.repeat(np.eye(3, dtype=np.float32), 4, axis=0)
    run = spherical_kmeans(x, 5, repeats=2)[0]
    assert run.cosine_sum == pytest.approx(12, rel=1e-6)
    assert torch.isfinite(run.centroids).all()


def test_rows_of_zeros_are_tolerated():
    x = np.vstack([np.eye(4), np.zeros((2, 4))]).astype(np.float32)
    run = spherical_kmeans(x, 2, repeats=2)[0]
    assert torch.isfinite(run.centroids).all()


def test_bad_input(digits):
    x = digits[2]
    refused("k is 501", spherical_kmeans, x, 501)
    refused("repeats", spherical_kmeans, x, 3, repeats=0)
    refused("dimensions", spherical_kmeans(x, 3, repeats=1)[0].assign, x[:, :5])
