"""No sample is its own neighbour, in whichever chunk of the rows it comes."""

import numpy as np
import pytest
import torch

from sao.evaluation import manifold
from sao.evaluation.memorisation import memorised

DRAWS = np.random.default_rng(0).standard_normal((11, 5)).astype(np.float32)


def literal(rows: np.ndarray, count: int) -> np.ndarray:
    """Places of the nearest others by Euclidean distance."""
    distances = np.linalg.norm(rows[:, None] - rows[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    return np.argsort(distances, axis=1)[:, :count]


@pytest.mark.parametrize("cells", [11, 44, 2**24])
def test_the_graph_of_a_manifold_joins_each_sample_with_others(cells, monkeypatch):
    monkeypatch.setattr(manifold, "CELLS", cells)
    units = torch.nn.functional.normalize(torch.from_numpy(DRAWS))
    places, distances = manifold._nearest(units, 3)
    np.testing.assert_array_equal(places, literal(units.numpy(), 3))
    assert (distances > 0.01).all()


@pytest.mark.parametrize("chunk", [1, 4, 1024])
def test_the_distance_between_reals_is_to_another_one(chunk):
    found = memorised(DRAWS[:3], DRAWS, chunk=chunk).share.protocol
    distances = np.linalg.norm(DRAWS - DRAWS[literal(DRAWS, 1)[:, 0]], axis=1)
    assert found["median_between_reals"] == pytest.approx(np.median(distances), rel=1e-5)


def test_two_samples_are_joined_as_far_as_either_sees_the_other():
    """w + w' − w·w', as in UMAP: one that sees the other wholly is enough."""
    rows = torch.from_numpy(np.random.default_rng(1).standard_normal((40, 5)).astype(np.float32))
    places, distances = manifold._nearest(torch.nn.functional.normalize(rows), manifold.NEIGHBOURS)
    seen = np.zeros((40, 40))
    np.put_along_axis(seen, places, manifold._weights(distances), axis=1)
    found = manifold.neighbour_graph(rows).toarray()
    np.testing.assert_allclose(found, seen + seen.T - seen * seen.T, atol=1e-9)
    assert found[np.arange(40), places[:, 0]] == pytest.approx(1)  # the nearest is seen wholly
