"""K-means patches: against a literal version with loops, and on images with too few patches."""

import time

import numpy as np
import pytest
import torch

from sao.evaluation import patches as module
from sao.evaluation.budget import Budget, OutOfTime
from sao.evaluation.patches import Patches, centroids_for, patch_features


def images(n: int, height: int, width: int, channels: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, height, width, channels), dtype=np.uint8)


def normalised(patch: np.ndarray) -> np.ndarray:
    return (patch - patch.mean()) / np.sqrt(patch.var() + module.CONTRAST)


def literal_features(fitted: Patches, image: np.ndarray) -> np.ndarray:
    """As the paper says it, one patch at a time, in float64."""
    rows = range(0, image.shape[0] - fitted.size + 1, fitted.step)
    columns = range(0, image.shape[1] - fitted.size + 1, fitted.step)
    codes = np.zeros((len(rows), len(columns), len(fitted.centroids)))
    for i, top in enumerate(rows):
        for j, left in enumerate(columns):
            patch = image[top : top + fitted.size, left : left + fitted.size].astype(float).transpose(2, 0, 1).ravel()
            white = (normalised(patch) - fitted.mean.double().numpy()) @ fitted.whitening.double().numpy()
            distances = [np.linalg.norm(white - centroid) for centroid in fitted.centroids.double().numpy()]
            codes[i, j] = [max(0.0, np.mean(distances) - distance) for distance in distances]
    found = np.zeros((len(fitted.centroids), 2, 2))
    for y in range(2):
        for x in range(2):
            quarter = codes[_half(len(rows), y), _half(len(columns), x)]
            found[:, y, x] = quarter.mean(axis=(0, 1))
    return found.ravel()


def _half(n: int, which: int) -> slice:
    """Of an odd number of positions the middle one belongs to both halves."""
    return slice(0, -(-n // 2)) if which == 0 else slice(n // 2, n)


@pytest.mark.parametrize(("height", "width", "channels", "positions"), [(9, 11, 3, 27), (8, 8, 1, 27), (14, 14, 2, 4)])
def test_features_are_those_of_a_literal_version(height, width, channels, positions, monkeypatch):
    monkeypatch.setattr(module, "POSITIONS", positions)
    given = images(7, height, width, channels)
    fitted = Patches.fit(given, np.arange(7), centroids=5)
    assert fitted.step == (1 if positions == 27 else 3)
    expected = np.stack([literal_features(fitted, image) for image in given])
    assert (expected > 0).any(axis=1).all()
    np.testing.assert_allclose(fitted.features(given, np.arange(7)), expected, rtol=1e-3, atol=1e-4)


def test_whitening_is_that_of_the_normalised_patches(monkeypatch):
    """Of images of one patch each, of which every one is drawn many times."""
    monkeypatch.setattr(module, "WHITENING", 1e-6)
    given = images(400, 2, 3, 1)[:, :, :2]
    drawn = module.random_patches(given, np.arange(400), 2, seed=0)
    fitted = Patches.fit(given, np.arange(400), centroids=2)
    patches = np.stack([normalised(patch.astype(float)) for patch in drawn.numpy()])
    np.testing.assert_allclose(fitted.mean, patches.mean(axis=0), atol=1e-5)
    white = (patches - patches.mean(axis=0)) @ fitted.whitening.double().numpy()
    covariance = white.T @ white / len(white)
    spectrum = np.linalg.eigvalsh(covariance)
    np.testing.assert_allclose(spectrum[1:], 1, rtol=1e-2)  # the mean of a patch is gone, so one direction is empty


def test_random_patches_are_patches_of_the_given_rows_alone():
    given = np.repeat(np.arange(6, dtype=np.uint8), 8 * 9 * 3).reshape(6, 8, 9, 3)
    drawn = module.random_patches(given, np.array([1, 4]), 6, seed=0)
    assert len(drawn) == 2 * 3 * 4
    assert set(drawn.unique().tolist()) == {1.0, 4.0}
    assert bool((drawn == drawn[:, :1]).all())


def test_centroids_are_those_of_kmeans():
    """Blobs that are far apart: each centroid is the mean of one of them."""
    centres = torch.eye(4) * 100
    points = centres.repeat_interleave(50, dim=0) + torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    found = min(
        (module._kmeans(points, 4, seed) for seed in range(10)),
        key=lambda one: float(torch.cdist(points, one).amin(dim=1).sum()),
    )
    order = found.argmax(dim=1).argsort()
    torch.testing.assert_close(found[order], points.reshape(4, 50, 4).mean(dim=1))


def test_few_images_have_fewer_patches_and_fewer_centroids():
    given = images(20, 8, 8, 1)
    fitted = Patches.fit(given, np.arange(20))
    assert len(fitted.centroids) == 20 * 3 * 3 // module.PER_CENTROID
    tiny = images(3, 2, 2, 1)
    values, facts = patch_features([(tiny, np.arange(3))], 256, 0)
    assert bool(values[0].isfinite().all())
    assert (facts["patch"], facts["centroids"]) == (2, 1)


def test_small_images_take_well_under_a_second():
    given = images(1000, 8, 8, 1)
    started = time.process_time()
    patch_features([(given, np.arange(1000)), (given, np.arange(300))], 256, 0)
    assert time.process_time() - started < 2  # 0.6 on a quiet machine


def test_the_same_seed_gives_the_same_features():
    given = images(30, 10, 10, 3)
    first, second, other = (patch_features([(given, np.arange(30))], 16, seed)[0][0] for seed in (0, 0, 1))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_images_are_read_a_chunk_at_a_time():
    """A mapped file of photographs does not come into memory as a whole."""
    given, read = images(40, 8, 8, 1), []

    class Mapped:
        shape = given.shape

        def __getitem__(self, rows):
            read.append(len(rows))
            return given[rows]

    fitted = Patches.fit(given, np.arange(40))
    found = fitted.features(Mapped(), np.arange(40))  # pyright: ignore[reportArgumentType]
    assert max(read) == module.CHUNK
    torch.testing.assert_close(found, fitted.features(given, np.arange(40)))


def test_centroids_grow_with_the_seconds_and_not_below_256_nor_beyond_memory():
    each = module.SECONDS
    assert [centroids_for(1000 * each * factor, 1000) for factor in (0, 1, 2, 5, 100)] == [256, 256, 512, 1024, 4096]
    assert centroids_for(float("inf"), 20_000) == 1024
    assert centroids_for(float("inf"), 10**6) == 256


def test_what_takes_too_long_is_stopped():
    given, budget = images(50, 16, 16, 3), Budget(minutes=1e-4)
    with pytest.raises(OutOfTime), budget.computation():
        patch_features([(given, np.arange(50))] * 100, 256, 0)
