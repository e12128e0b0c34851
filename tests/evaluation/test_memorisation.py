import subprocess
import sys

import numpy as np
import pytest
import torch
from given import refused
from scipy.spatial.distance import cdist

from sao.evaluation import memorised


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
    threshold, median = np.quantile(between.min(axis=1), (0.2, 0.5), method="lower")
    assert found.share.protocol["threshold"] == pytest.approx(threshold)
    assert found.share.protocol["median_between_reals"] == pytest.approx(median)
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
    refused("dimensions", memorised, reals[:, :4], reals)
    refused("at least three", memorised, reals, reals[:2])
    refused("quantile", memorised, reals, reals, quantile=0)
    refused("quantile", memorised, reals, reals, quantile=1)
    refused("samples must be images", memorised, reals[0, 0, 0], reals)


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
