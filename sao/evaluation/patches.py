"""The strongest cheap baseline for photographs: k-means of whitened patches (Coates, Ng and Lee, 2011).

Every image is cut into overlapping patches. Each patch is normalised in contrast, whitened, and encoded by how much nearer than
average it is to each centroid (the "triangle"). Codes are summed over a 2x2 grid. Nothing but the centroids is learnt.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from sao.errors import InputError

CENTROIDS = 256  # the fewest that are worth comparing with
PATCH = 6  # pixels a side, as published for 32x32 images
POSITIONS = 27  # patches a side at the most: 27 is every position of a 32x32 image, larger images are stepped over
SAMPLE = 100_000  # patches for whitening and k-means
CONTRAST = 10.0  # added to a patch's variance, in units of squared pixel values, so that flat patches stay small
WHITENING = 0.1  # added to each eigenvalue
ITERATIONS = 30
CHUNK = 64  # images at once


@dataclass(frozen=True, eq=False)
class Patches:
    """Fitted to training images; turns images (n, h, w, c) of bytes into features (n, 4 · centroids)."""

    size: int  # pixels a side of a patch
    step: int  # pixels between two patches
    mean: Tensor  # (q,) of normalised patches
    whitening: Tensor  # (q, q)
    centroids: Tensor  # (k, q)

    @classmethod
    def fit(cls, images: np.ndarray, centroids: int = CENTROIDS, seed: int = 0, size: int = PATCH) -> "Patches":
        """Learn whitening and centroids from random patches of these images."""
        height, width = images.shape[1:3]
        size = min(size, height, width)
        step = max(1, -(-(min(height, width) - size + 1) // POSITIONS))
        patches = _normalised(random_patches(images, size, seed))
        if len(patches) < centroids:
            raise InputError(
                f"{len(patches)} patches are too few for {centroids} centroids: give more images"
            )
        mean = patches.mean(dim=0)
        patches = patches - mean
        values, vectors = torch.linalg.eigh((patches.mT @ patches / len(patches)).double())
        whitening = (vectors * (values + WHITENING).rsqrt() @ vectors.mT).float()
        return cls(size, step, mean, whitening, _kmeans(patches @ whitening, centroids, seed))

    def features(self, images: np.ndarray) -> np.ndarray:
        """float32 (n, 4 · k): codes of all patches, summed over each quarter of the image."""
        return np.concatenate([self._encode(images[start : start + CHUNK]) for start in range(0, len(images), CHUNK)])

    def _encode(self, images: np.ndarray) -> np.ndarray:
        planes = torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2).float()
        patches = F.unfold(planes, self.size, stride=self.step).mT  # (n, positions, q)
        whitened = (_normalised(patches) - self.mean) @ self.whitening
        distances = _distances(whitened.flatten(0, 1), self.centroids)
        codes = F.relu(distances.mean(dim=1, keepdim=True) - distances)
        rows, columns = ((side - self.size) // self.step + 1 for side in images.shape[1:3])
        grid = codes.reshape(len(images), rows, columns, -1).permute(0, 3, 1, 2)
        return F.adaptive_avg_pool2d(grid, 2).flatten(1).numpy()


def random_patches(images: np.ndarray, size: int, seed: int) -> Tensor:
    """(SAMPLE, q) random patches, channels first, in the order of F.unfold."""
    draws = np.random.default_rng(seed)
    which = draws.integers(len(images), size=SAMPLE)
    tops = draws.integers(images.shape[1] - size + 1, size=SAMPLE)
    lefts = draws.integers(images.shape[2] - size + 1, size=SAMPLE)
    windows = np.lib.stride_tricks.sliding_window_view(images, (size, size), axis=(1, 2))  # (n, y, x, c, size, size)
    return torch.from_numpy(windows[which, tops, lefts].reshape(SAMPLE, -1)).float()


def _normalised(patches: Tensor) -> Tensor:
    """Each patch (…, q) with mean 0 and, unless it is flat, deviation 1."""
    centred = patches - patches.mean(dim=-1, keepdim=True)
    return centred * (centred.square().mean(dim=-1, keepdim=True) + CONTRAST).rsqrt()


def _kmeans(points: Tensor, k: int, seed: int) -> Tensor:
    """Lloyd's algorithm from random points; an empty cluster starts again at another one."""
    generator = torch.Generator().manual_seed(seed)
    centroids = points[torch.randperm(len(points), generator=generator)[:k]]
    for _ in range(ITERATIONS):
        nearest = torch.cat([_distances(chunk, centroids).argmin(dim=1) for chunk in points.split(2**14)])
        counts = torch.bincount(nearest, minlength=k)
        sums = torch.zeros_like(centroids).index_add_(0, nearest, points)
        others = points[torch.randint(len(points), (k,), generator=generator)]
        centroids = torch.where(counts[:, None] > 0, sums / counts.clamp_min(1)[:, None], others)
    return centroids


def _distances(points: Tensor, centroids: Tensor) -> Tensor:
    """(n, k) Euclidean distances by one matrix product."""
    squares = points.square().sum(dim=1, keepdim=True) + centroids.square().sum(dim=1)
    return torch.addmm(squares, points, centroids.mT, alpha=-2).clamp_min_(0).sqrt_()


def centroids_for(seconds: float, images: int, choices: Sequence[int] = (256, 512, 1024, 2048, 4096)) -> int:
    """The largest of the choices that takes at most so many seconds on one core, by 1 ms an image for 256 centroids."""
    affordable = [k for k in choices if images * 1e-3 * k / choices[0] <= seconds]
    return affordable[-1] if affordable else choices[0]
