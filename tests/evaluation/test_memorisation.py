import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

from sao.errors import InputError
from sao.evaluation import manifold, memorised


@pytest.fixture
def reals(digits):
    return (digits[0] * 15).astype(np.uint8).reshape(-1, 8, 8, 1)


def test_copies_are_counted_and_pointed_at(reals):
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (40, 8, 8, 1), dtype=np.uint8)
    found = memorised(np.concatenate([noise, reals[[5, 70, 9]]]), reals)
    assert found.count == 3
    assert found.rows.tolist() == [40, 41, 42]
    assert found.nearest[40:].tolist() == [5, 70, 9]
    assert found.distances[40:].tolist() == [0, 0, 0]
    assert found.share.value == pytest.approx(3 / 43)


@pytest.mark.parametrize("chunk", [17, 1024])
def test_against_all_distances(digits, chunk):
    samples, reals = digits[2][:50], digits[0][:300]
    found = memorised(samples, reals, quantile=0.2, chunk=chunk)
    distances = cdist(samples, reals)
    between = cdist(reals, reals) + np.diag(np.full(len(reals), np.inf))
    threshold = np.quantile(between.min(axis=1), 0.2, method="lower")
    assert found.share.protocol["threshold"] == pytest.approx(threshold)
    np.testing.assert_array_equal(found.nearest, distances.argmin(axis=1))
    np.testing.assert_allclose(found.distances, distances.min(axis=1), rtol=1e-6)
    assert found.count == (distances.min(axis=1) <= threshold).sum()


def test_the_threshold_is_that_of_a_seeded_part_of_the_reals(digits):
    reals = digits[0][:300]
    found = memorised(digits[2][:5], reals, quantile=0.5, limit=40, seed=3)
    rows = torch.randperm(300, generator=torch.Generator().manual_seed(3))[:40].numpy()
    between = cdist(reals, reals) + np.diag(np.full(300, np.inf))
    threshold = np.quantile(between[rows].min(axis=1), 0.5, method="lower")
    assert found.share.protocol["threshold"] == pytest.approx(threshold)


def test_a_copy_counts_where_the_reals_themselves_repeat(reals):
    """Then the threshold is no distance at all."""
    found = memorised(reals[:2], np.concatenate([reals[:100], reals[:100]]))
    assert found.share.protocol["threshold"] == 0
    assert found.count == 2


def test_samples_may_come_from_a_generator_with_their_graph(reals):
    samples = torch.from_numpy(reals[:3]).float().requires_grad_()
    assert memorised(samples, reals).nearest.tolist() == [0, 1, 2]


def test_fresh_real_data_is_not_called_memorised(digits):
    assert memorised(digits[2], digits[0]).share.value < 0.03


def test_bad_input(reals):
    with pytest.raises(InputError, match="dimensions"):
        memorised(reals[:, :4], reals)
    with pytest.raises(InputError, match="at least three"):
        memorised(reals, reals[:2])
    with pytest.raises(InputError, match="quantile"):
        memorised(reals, reals, quantile=0)
    with pytest.raises(InputError, match="quantile"):
        memorised(reals, reals, quantile=1)
    with pytest.raises(InputError, match="samples must be images"):
        memorised(reals[0, 0, 0], reals)


def test_bytes_are_not_copied_as_floating_point_numbers(tmp_path):
    """37 MB of images on disk: as float32, and centred, they would be 295 MB more."""
    np.save(tmp_path / "reals.npy", np.random.default_rng(0).integers(0, 256, (3000, 64, 64, 3), dtype=np.uint8))
    code = f"""
import resource, numpy as np, torch
from sao.evaluation import memorised
torch.set_num_threads(1)
reals = np.load({str(tmp_path / "reals.npy")!r}, mmap_mode="r")
memorised(np.array(reals[:20]), np.array(reals[:50]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = memorised(np.array(reals[[5, 900]]), reals, limit=100, chunk=128)
assert found.nearest.tolist() == [5, 900] and found.count == 2
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 120  # the file itself, and a few blocks of 128 rows


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
