"""k-means that goes on from an old clustering: the iteration against scikit-learn's, names kept, starved clusters fed."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans

from sao.methods.self_conditioned import cluster_again, cluster_anew, means_of, nearest, renamed, settled

CENTRES = 6 * torch.tensor([[0.0, 0, 1], [0, 1, 0], [1, 0, 0], [1, 1, 1]], dtype=torch.float64)


def blobs(noise: float = 0.5, far: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Four groups of 30 and which is which, in no order."""
    generator = torch.Generator().manual_seed(3)
    groups = torch.arange(120)[torch.randperm(120, generator=generator)] % 4
    return CENTRES[groups] + noise * torch.randn(120, 3, generator=generator, dtype=torch.float64) + far, groups


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("seed", range(5))
def test_the_iteration_is_scikit_learns(seed):
    features, _ = blobs(noise=3.0)
    start = torch.randint(4, (120,), generator=draws(seed))
    options: Any = {"init": means_of(features, start, 4).numpy(), "n_init": 1, "tol": 0}
    theirs = KMeans(4, **options).fit(features.numpy())
    labels = settled(features, start, 4)
    assert torch.equal(labels, torch.as_tensor(theirs.labels_, dtype=torch.int64))
    np.testing.assert_allclose(means_of(features, labels, 4).numpy(), theirs.cluster_centers_, rtol=1e-9)
    assert squares(features, labels, 4) == pytest.approx(theirs.inertia_)


def squares(features: torch.Tensor, labels: torch.Tensor, k: int) -> float:
    """The sum that k-means makes small."""
    return float(nearest(features, means_of(features, labels, k))[1].sum())


def test_clusters_are_found_and_their_first_names_do_not_matter():
    features, groups = blobs()
    labels = cluster_anew(features, 4, restarts=3, generator=draws())
    assert torch.equal(renamed(labels, groups, 4), groups)


def test_the_best_of_the_restarts_is_taken():
    features, _ = blobs(noise=3.0)
    generator = draws(2)
    several = [squares(features, cluster_anew(features, 7, 1, generator), 7) for _ in range(6)]
    best = squares(features, cluster_anew(features, 7, 6, draws(2)), 7)
    assert best == pytest.approx(min(several))
    assert min(several) < max(several)


def test_the_starts_prefer_what_is_far_away():
    """Three far groups of one sample each beside a crowd: a start that drew evenly would hardly ever find them."""
    features = torch.cat([0.01 * torch.randn(97, 2, generator=draws(), dtype=torch.float64), 100 * torch.eye(3, 2).double()])
    features[-1] = -100
    labels = cluster_anew(features, 4, restarts=1, generator=draws(4))
    assert len(set(labels[-3:].tolist()) | {int(labels[0])}) == 4


def test_names_are_kept_where_the_features_have_changed():
    """The features are turned round, so that only membership can tell which cluster is which."""
    features, groups = blobs()
    names = torch.tensor([2, 0, 3, 1])
    old = names[groups].clone()
    old[:9] = (old[:9] + 1) % 4  # some samples were elsewhere
    assert torch.equal(cluster_again(-features.flip(1), old, 4), names[groups])


def test_as_many_samples_as_possible_keep_their_names():
    generator = draws(1)
    old, new = torch.randint(4, (50,), generator=generator), torch.randint(4, (50,), generator=generator)
    best = max(int((torch.tensor(order)[new] == old).sum()) for order in permutations(range(4)))
    assert int((renamed(new, old, 4) == old).sum()) == best


def test_a_starved_cluster_begins_again_where_samples_are_badly_represented():
    features, groups = blobs()
    old = torch.where(groups == 3, 2, groups)  # cluster 3 has starved, and 2 has two groups
    means = means_of(features, old, 4)
    farthest = (features - means[old]).square().sum(1).argmax()
    assert torch.equal(means[3], features[farthest])
    labels = cluster_again(features, old, 4)
    assert torch.equal(renamed(labels, groups, 4), groups)
    assert torch.equal(labels[groups == 0], old[groups == 0])


def test_two_starved_clusters_begin_at_two_samples():
    features, groups = blobs()
    means = means_of(features, groups % 2, 4)
    assert not torch.equal(means[2], means[3])


def test_fewer_different_samples_than_clusters_are_no_error():
    features = torch.ones(10, 3)
    assert len(cluster_anew(features, 4, 2, draws())) == 10
    assert len(cluster_again(features, torch.arange(10) % 4, 4)) == 10


def test_distance_keeps_its_digits_far_from_the_origin():
    features, groups = blobs(noise=0.3, far=3000.0)
    assert torch.equal(nearest(features.float(), means_of(features, groups, 4).float())[0], groups)
    labels = cluster_anew(features.float(), 4, restarts=3, generator=draws())
    assert torch.equal(renamed(labels, groups, 4), groups)


def test_clustering_is_a_function_of_its_arguments():
    features, _ = blobs(noise=3.0)
    first, second = (cluster_anew(features, 6, 2, draws(7)) for _ in range(2))
    assert torch.equal(first, second)
