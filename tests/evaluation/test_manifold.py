"""Clusters along the manifold: groups of any shape, against brute force and scikit-learn."""

import numpy as np
import pytest
import torch
from given import refused
from sklearn.cluster import SpectralClustering
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

from sao.evaluation.kmeans import best_kmeans
from sao.evaluation.manifold import (
    NEIGHBOURS,
    _weights,
    manifold_clustering,
    manifold_clusters,
    neighbour_graph,
    proposed_clusters,
    spectral_coordinates,
)
from sao.evaluation.partitions import ari, matched_accuracy


def arcs(groups: int = 4, samples: int = 150, noise: float = 0.02) -> tuple[torch.Tensor, np.ndarray]:
    """Long arcs on a sphere, side by side: near along an arc, apart across, and far longer than they are apart."""
    draws = np.random.default_rng(0)
    angle = draws.uniform(0, 4.5, (groups, samples))
    height = (np.linspace(-0.75, 0.75, groups)[:, None] + noise * draws.standard_normal((groups, samples))).clip(-0.95, 0.95)
    points = np.stack([np.cos(angle) * np.sqrt(1 - height**2), np.sin(angle) * np.sqrt(1 - height**2), height], axis=-1)
    return torch.from_numpy(points.reshape(-1, 3)).float(), np.repeat(np.arange(groups), samples)


def blobs() -> tuple[torch.Tensor, np.ndarray]:
    """Five groups in sixteen dimensions, far apart."""
    labels = np.repeat(np.arange(5), 60)
    noise = torch.randn(300, 16, generator=torch.Generator().manual_seed(0))
    return 2 * torch.eye(16)[labels] + 0.25 * noise, labels


def test_arcs_are_found_where_round_clusters_are_not():
    points, labels = arcs()
    assert matched_accuracy(best_kmeans(points, 4).assign(points), labels) < 0.7
    assert matched_accuracy(manifold_clusters(points, 4), labels) == 1.0


def test_the_graph_joins_each_sample_with_its_nearest_by_cosine():
    points = torch.randn(60, 5, generator=torch.Generator().manual_seed(0)) * torch.linspace(0.1, 9, 60)[:, None]
    graph = neighbour_graph(points).toarray()
    nearest = NearestNeighbors(n_neighbors=NEIGHBOURS + 1, metric="cosine").fit(points).kneighbors(return_distance=False)
    seen = np.zeros_like(graph, dtype=bool)
    seen[np.arange(60)[:, None], nearest[:, :NEIGHBOURS]] = True
    assert np.array_equal(graph > 0, seen | seen.T)
    assert np.allclose(graph, graph.T)
    assert not graph.diagonal().any()
    assert graph.max() == pytest.approx(1.0)  # a sample and its nearest


def test_each_sample_gives_its_neighbours_the_same_total():
    distances = np.sort(np.random.default_rng(1).uniform(0.1, 2, (200, NEIGHBOURS)), axis=1)
    assert np.allclose(_weights(distances).sum(axis=1), np.log2(NEIGHBOURS), rtol=1e-6)


def test_two_samples_are_joined_as_far_as_either_sees_the_other():
    """w + w' − w·w', as in UMAP: one that sees the other wholly is enough."""
    units = torch.nn.functional.normalize(torch.randn(40, 5, generator=torch.Generator().manual_seed(1)))
    distances = torch.cdist(units, units).fill_diagonal_(torch.inf).numpy()
    places = distances.argsort(axis=1)[:, :NEIGHBOURS]
    seen = np.zeros((40, 40))
    np.put_along_axis(seen, places, _weights(np.take_along_axis(distances, places, axis=1)), axis=1)
    found = neighbour_graph(units).toarray()
    np.testing.assert_allclose(found, seen + seen.T - seen * seen.T, atol=1e-4)
    assert found[np.arange(40), places[:, 0]] == pytest.approx(1)  # the nearest is seen wholly


def test_coordinates_are_eigenvectors_of_the_normalised_graph():
    points, _ = arcs(noise=0.1)
    values, vectors = spectral_coordinates(points, 6)
    graph = neighbour_graph(points).toarray()
    roots = np.sqrt(graph.sum(axis=1))
    normalised = graph / roots[:, None] / roots
    assert np.allclose(normalised @ vectors.double().numpy(), vectors.double().numpy() * values, atol=1e-5)
    assert np.allclose(values, np.linalg.eigvalsh(normalised)[::-1][:6], atol=1e-6)


def test_digits_are_grouped_at_least_as_well_as_by_scikit_learn():
    pixels, labels = load_digits(return_X_y=True)
    features = torch.from_numpy(pixels).float()
    ours = manifold_clusters(features, 10)
    theirs = SpectralClustering(10, affinity="nearest_neighbors", n_neighbors=NEIGHBOURS, random_state=0).fit_predict(pixels)
    assert ari(ours, labels) > ari(theirs, labels) - 0.02
    assert matched_accuracy(ours, labels) > matched_accuracy(best_kmeans(features, 10).assign(features), labels)


def test_metrics_say_how_they_were_found():
    points, labels = arcs()
    matched, information, rand = manifold_clustering(points, labels)
    assert [metric.name for metric in (matched, information, rand)] == ["manifold", "manifold_nmi", "manifold_ari"]
    assert matched.value == information.value == rand.value == 1.0
    assert matched.protocol["algorithm"].startswith("spectral on the graph of 10 neighbours")
    assert matched.protocol["k"] == 4
    assert matched.right is not None


def test_others_show_more_of_the_manifold_and_are_not_scored():
    """A few points of an arc do not hang together; with the rest of it beside them they do."""
    points, labels = arcs()
    few, rest = slice(None, None, 12), torch.arange(len(points)) % 12 != 0
    alone = manifold_clustering(points[few], labels[few])[0]
    among = manifold_clustering(points[few], labels[few], beside=points[rest])[0]
    assert alone.value < 1
    assert among.value == 1
    assert among.protocol["n_test"] == len(points[few])
    assert among.protocol["fitted_on"] == f"the scored features and {int(rest.sum()):,} others"
    refused("beside has 1", manifold_clustering, points, labels, beside=points[:, :1])


def test_a_number_is_proposed_with_its_reason():
    points, _ = blobs()
    proposal = proposed_clusters(points)
    assert proposal.k == 5
    assert proposal.sure
    drops = -np.diff(spectral_coordinates(points, 31)[0])[1:]  # after 2, 3, … groups
    first, second, third = (f"{place + 2} (by {drops[place]:.3f})" for place in np.argsort(-drops)[:3])
    assert str(proposal).endswith(f"drop most after {first.replace(' ', ' groups ', 1)}, then after {second}, {third}")


def test_a_number_that_nothing_speaks_for_is_said_to_be_unsure():
    """35 classes that run into each other: no number stands out, and more than 30 are not tried."""
    draws = torch.Generator().manual_seed(0)
    centres = torch.randn(35, 8, generator=draws)
    points = centres.repeat(12, 1) + torch.randn(420, 8, generator=draws)
    proposal = proposed_clusters(points)
    assert not proposal.sure
    said = str(proposal)
    assert said.startswith(f"{proposal.k} clusters, but that is unsure: ")
    for k, drop in proposal.choices[1:3]:
        assert f"{k} (by {drop:.3f})" in said
    assert "2 to 30 were tried" in said


def test_the_same_seed_gives_the_same_clusters():
    points, _ = arcs(noise=0.15)
    assert torch.equal(manifold_clusters(points, 3, seed=1), manifold_clusters(points, 3, seed=1))


def test_small_and_degenerate_data_are_clustered():
    assert manifold_clusters(torch.eye(3), 1).tolist() == [0, 0, 0]
    assert len(set(manifold_clusters(torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), 2).tolist())) == 2
    doubles = torch.eye(2).repeat_interleave(30, dim=0)  # all distances within a group are zero
    assert matched_accuracy(manifold_clusters(doubles, 2), np.repeat([0, 1], 30)) == 1.0


@pytest.mark.slow  # numba compiles it for 20 seconds first
def test_umap_where_it_is_installed_finds_groups():
    pytest.importorskip("umap", exc_type=ImportError)
    points, labels = blobs()
    assert matched_accuracy(manifold_clusters(points, 5, "umap"), labels) == 1.0


def test_bad_requests_are_one_line(monkeypatch):
    points = torch.eye(4)
    refused("unknown manifold 'tsne': there are spectral and umap", manifold_clusters, points, 2, "tsne")
    refused("k is 9 but features has 4 samples", manifold_clusters, points, 9)
    refused("too few to propose", proposed_clusters, torch.eye(3))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    refused(r"umap-learn is not installed: pip install 'sao\[manifold\]'", manifold_clusters, points, 2, "umap")


@pytest.mark.parametrize("dimensions", [6, 10, 13])
def test_a_graph_that_falls_apart_has_every_part_among_its_eigenvectors(dimensions):
    """Ten groups far apart: the eigenvalue 1 ten times, of which an iteration from one start finds a few."""
    draws = np.random.default_rng(0)
    labels = np.repeat(np.arange(10), 36)
    features = torch.tensor(np.eye(10)[labels] + 0.05 * draws.normal(size=(360, 10))).float()
    graph = neighbour_graph(features).toarray()
    roots = 1 / np.sqrt(graph.sum(axis=1))
    normalised = roots[:, None] * graph * roots
    values, vectors = spectral_coordinates(features, dimensions, seed=2)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(normalised)[::-1][:dimensions], atol=1e-6)
    np.testing.assert_allclose(normalised @ vectors.numpy(), vectors.numpy() * values, atol=1e-5)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(dimensions), atol=1e-5)
    assert matched_accuracy(manifold_clusters(features, 10, "spectral", seed=2), labels) == 1
    assert proposed_clusters(features).k == 10


def test_of_a_few_samples_every_coordinate_can_be_had():
    """As many as there are samples, of which an iteration finds all but one at most."""
    values, vectors = spectral_coordinates(torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), 6)
    assert values[0] == pytest.approx(1)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(6), atol=1e-6)


def test_many_clusters_are_found_in_fewer_coordinates_and_the_protocol_says_so(monkeypatch):
    """At a size where all of them can be had too: the clusters are as good."""
    draws = np.random.default_rng(0)
    labels = np.arange(480) % 60
    features = draws.standard_normal((60, 16))[labels] + 0.1 * draws.standard_normal((480, 16))
    whole = manifold_clustering(features, labels)
    monkeypatch.setattr("sao.evaluation.manifold.MOST_DIMENSIONS", 20)
    fewer = manifold_clustering(features, labels)
    assert "eigenvectors" not in whole[0].protocol["algorithm"]
    assert "leading 20 eigenvectors" in fewer[0].protocol["algorithm"]
    assert whole[1].value > 0.99
    assert fewer[1].value > 0.95
