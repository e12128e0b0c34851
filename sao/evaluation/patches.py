"""The strongest cheap baseline for photographs: k-means of whitened patches (Coates, Ng and Lee, 2011).

Every image is cut into overlapping patches. Each patch is normalised in contrast, whitened, and encoded by how much nearer than
average it is to each centroid (the "triangle"). Codes are averaged over a 2x2 grid and standardised. Nothing but the centroids
is learnt.
"""

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from sao.data.dataset import Pixels
from sao.evaluation.budget import check_time
from sao.evaluation.inputs import standardiser

CENTROIDS = (256, 512, 1024, 2048, 4096)  # fewer than the first are not worth comparing with
PATCH = 6  # pixels a side, as published for 32x32 images
POSITIONS = 27  # patches a side at the most: 27 is every position of a 32x32 image, larger images are stepped over
SAMPLE = 100_000  # patches for whitening and k-means at the most; no more than the images have
PER_CENTROID = 4  # patches at the least: where there are fewer, there are fewer centroids
CONTRAST = 10.0  # added to a patch's variance, in units of squared pixel values, so that flat patches stay small
WHITENING = 0.1  # added to each eigenvalue
ITERATIONS = 30
CHUNK = 4  # images at once: their codes stay in the cache, which halves the time of 64
SECONDS = 1.5e-3  # of one core for an image and the fewest centroids
FITTED_BYTES = 2**28  # of the images whose patches are drawn
FEATURE_NUMBERS = 2**27  # of a part, at the most


@dataclass(frozen=True, eq=False)
class Patches:
    """Fitted to training images; turns images (n, h, w, c) of bytes into features (n, 4 · centroids)."""

    size: int  # pixels a side of a patch
    step: int  # pixels between two patches
    mean: Tensor  # (q,) of normalised patches
    whitening: Tensor  # (q, q)
    centroids: Tensor  # (k, q)

    @classmethod
    def fit(
        cls, images: Pixels, rows: np.ndarray, centroids: int = CENTROIDS[0], seed: int = 0, size: int = PATCH
    ) -> "Patches":
        """Learn whitening and centroids from random patches of these rows; few patches give fewer centroids."""
        size = min(size, *images.shape[1:3])
        step = max(1, -(-(min(images.shape[1:3]) - size + 1) // POSITIONS))
        patches = _normalised(random_patches(images, rows, size, seed))
        mean = patches.mean(dim=0)
        patches = patches - mean
        values, vectors = torch.linalg.eigh((patches.mT @ patches / len(patches)).double())
        whitening = (vectors * (values + WHITENING).rsqrt() @ vectors.mT).float()
        centroids = max(1, min(centroids, len(patches) // PER_CENTROID))
        return cls(size, step, mean, whitening, _kmeans(patches @ whitening, centroids, seed))

    def features(self, images: Pixels, rows: np.ndarray) -> Tensor:
        """float32 (n, 4 · k): codes of all patches of these rows, averaged over each quarter of the image."""
        return torch.cat([self._encode(images[rows[start : start + CHUNK]]) for start in range(0, len(rows), CHUNK)])

    def _encode(self, images: np.ndarray) -> Tensor:
        check_time()
        planes = torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2).float()
        patches = F.unfold(planes, self.size, stride=self.step).mT  # (n, positions, q)
        whitened = (_normalised(patches) - self.mean) @ self.whitening
        distances = _distances(whitened.flatten(0, 1), self.centroids)
        codes = F.relu(distances.mean(dim=1, keepdim=True) - distances)
        height, width = ((side - self.size) // self.step + 1 for side in images.shape[1:3])
        grid = codes.reshape(len(images), height, width, -1).permute(0, 3, 1, 2)
        return F.adaptive_avg_pool2d(grid, 2).flatten(1)


def patch_features(parts: list[tuple[Pixels, np.ndarray]], centroids: int, seed: int) -> tuple[list[Tensor], dict[str, Any]]:
    """Features of the given rows of each part, fitted to the first part alone, and what the protocol says of them.

    They are standardised: codes are positive, and cosines between positive rows are all alike. 1-NN on 3,000 images of CIFAR-10
    has .348 without it, .353 where codes are centred alone, .399 with it.
    """
    started = time.monotonic()
    fitted = Patches.fit(*parts[0], centroids, seed)
    found = [fitted.features(*part) for part in parts]
    mean, scale = standardiser(found[0])
    found = [(values - mean).div_(scale) for values in found]
    size, count = fitted.size, len(fitted.centroids)
    facts = {
        "feature": f"k-means patches of {size}x{size}, {count} centroids",
        "weights": "none",
        "patch": size,
        "centroids": count,
        "seconds": round(time.monotonic() - started, 1),
    }
    return found, facts


def centroids_for(seconds: float, images: int) -> int:
    """The largest of `CENTROIDS` whose codes of all images take so many seconds of one core, and fit into memory."""
    affordable = [k for k in CENTROIDS if images * SECONDS * k / CENTROIDS[0] <= seconds and images * 4 * k <= FEATURE_NUMBERS]
    return affordable[-1] if affordable else CENTROIDS[0]


def random_patches(images: Pixels, rows: np.ndarray, size: int, seed: int) -> Tensor:
    """(at most SAMPLE, q) random patches, channels first, in the order of F.unfold."""
    draws = np.random.default_rng(seed)
    most = max(1, FITTED_BYTES // math.prod(images.shape[1:]))
    if len(rows) > most:
        rows = np.sort(draws.permutation(rows)[:most])
    height, width = (side - size + 1 for side in images.shape[1:3])
    count = min(SAMPLE, len(rows) * height * width)
    which, tops, lefts = (draws.integers(n, size=count) for n in (len(rows), height, width))
    windows = np.lib.stride_tricks.sliding_window_view(images[rows], (size, size), axis=(1, 2))  # (n, y, x, c, size, size)
    return torch.from_numpy(windows[which, tops, lefts].reshape(count, -1)).float()


def _normalised(patches: Tensor) -> Tensor:
    """Each patch (…, q) with mean 0 and, unless it is flat, deviation 1."""
    centred = patches - patches.mean(dim=-1, keepdim=True)
    return centred * (centred.square().mean(dim=-1, keepdim=True) + CONTRAST).rsqrt()


def _kmeans(points: Tensor, k: int, seed: int) -> Tensor:
    """Lloyd's algorithm from random points; an empty cluster starts again at another one."""
    generator = torch.Generator().manual_seed(seed)
    centroids = points[torch.randperm(len(points), generator=generator)[:k]]
    for _ in range(ITERATIONS):
        check_time()
        halves = centroids.square().sum(dim=1) / 2  # of |p - c|² only |c|² / 2 - p·c depends on the centroid
        scores = (torch.addmm(halves, chunk, centroids.mT, alpha=-1) for chunk in points.split(1024))
        nearest = torch.cat([chunk.argmin(dim=1) for chunk in scores])
        counts = torch.bincount(nearest, minlength=k)
        sums = torch.zeros_like(centroids).index_add_(0, nearest, points)
        others = points[torch.randint(len(points), (k,), generator=generator)]
        centroids = torch.where(counts[:, None] > 0, sums / counts.clamp_min(1)[:, None], others)
    return centroids


def _distances(points: Tensor, centroids: Tensor) -> Tensor:
    """(n, k) Euclidean distances by one matrix product."""
    squares = points.square().sum(dim=1, keepdim=True) + centroids.square().sum(dim=1)
    return torch.addmm(squares, points, centroids.mT, alpha=-2).clamp_min_(0).sqrt_()
