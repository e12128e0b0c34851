"""Which samples look like none of the others: empty frames, noise, screenshots among photographs, and what else is junk.

Spherical k-means sees directions only, so junk can be central to a cluster. Three plain numbers tell it apart together, though
each alone may not: how far a sample's features are from those around it, and of images contrast and detail.
"""

from typing import Any

import numpy as np
import torch
from scipy.stats import chi2

from sao.evaluation.inputs import feature_matrix

FEWEST = 50  # of fewer samples nobody can say what is usual
REFERENCES = 2000  # samples in which neighbours are looked for
NEIGHBOURS = 30  # more than a person usually has copies of one piece of junk
USUAL_SHARE = 0.9  # of the samples, at least
# In deviations from what is usual. Of 2,000 photographs and 48 pieces of junk it took 2 and 46.
FAR = 6.0


def outliers(features: Any, pixels: Any = None, seed: int = 0) -> np.ndarray:
    """A truth value for each sample, from features (n, d) and, for images, pixels (n, h, w, c)."""
    return ~(outlier_scores(features, pixels, seed) <= FAR)  # a NaN is as far as can be


def outlier_scores(features: Any, pixels: Any = None, seed: int = 0) -> np.ndarray:
    """How far each sample is from what is usual, in deviations: beyond `FAR` it is an outlier. Zeros where nobody can say."""
    features = feature_matrix("features", features)
    columns = [_remoteness(features, seed)]
    if pixels is not None:
        columns += list(_contrast_and_detail(pixels))
    table = np.stack([_spread(column) for column in columns], axis=1)
    table = table[:, np.ptp(np.quantile(table, (0.05, 0.95), axis=0), axis=0) > 0]
    if len(features) < FEWEST or table.shape[1] == 0:
        return np.zeros(len(features))
    return _distances(table)


def _distances(table: np.ndarray, rounds: int = 20) -> np.ndarray:
    """Mahalanobis distance of each row from the usual ones, which are found by turns with their mean and covariance."""
    middle = np.median(table, axis=0)
    distances = np.linalg.norm((table - middle) / (np.median(np.abs(table - middle), axis=0) + 1e-12), axis=1)
    size = table.shape[1]
    # The covariance of the nearest share alone would be too small: of a Gaussian by this factor.
    cut = chi2(size + 2).cdf(chi2(size).ppf(USUAL_SHARE)) / USUAL_SHARE
    for _ in range(rounds):
        usual = table[np.argsort(distances, kind="stable")[: int(np.ceil(USUAL_SHARE * len(table)))]]
        covariance = np.atleast_2d(np.cov(usual.T)) / cut + 1e-9 * np.eye(size)
        centred = table - usual.mean(axis=0)
        distances = np.sqrt((centred @ np.linalg.inv(covariance) * centred).sum(axis=1))
    return distances


def _remoteness(features: torch.Tensor, seed: int) -> np.ndarray:
    """Distance to the k-th nearest of the references, not counting the sample itself."""
    draws = np.random.default_rng(seed)
    chosen = np.sort(draws.permutation(len(features))[:REFERENCES])
    k = min(NEIGHBOURS, len(chosen) - 1)
    references = features[torch.as_tensor(chosen)]
    # A sample that is a reference finds itself first.
    ranks = torch.full((len(features),), max(k - 1, 0))
    ranks[torch.as_tensor(chosen)] = k
    parts = [torch.cdist(part, references).topk(k + 1, largest=False).values for part in features.split(1024)]
    return torch.cat(parts).gather(1, ranks[:, None])[:, 0].double().numpy()


def _contrast_and_detail(pixels: Any) -> tuple[np.ndarray, np.ndarray]:
    """Deviation of the pixels, and mean difference between neighbouring ones."""
    contrast, detail = np.empty(len(pixels)), np.empty(len(pixels))
    for start in range(0, len(pixels), 1024):
        block = pixels[start : start + 1024].astype(np.float32)
        rows = slice(start, start + len(block))
        contrast[rows] = block.std(axis=(1, 2, 3))
        detail[rows] = sum(np.abs(np.diff(block, axis=axis)).mean(axis=(1, 2, 3)) for axis in (1, 2))
    return contrast, detail


def _spread(values: np.ndarray) -> np.ndarray:
    """Logarithms, with a floor far below what is usual: an empty frame is far from it, but not infinitely."""
    return np.log(values + 0.02 * max(float(np.median(values)), 1e-12))
