"""Where samples lie on the map: neighbours in feature space become neighbours on paper."""

import importlib
import importlib.util
import warnings
from typing import Any

import numpy as np
import torch

from sao.errors import InputError

COMPONENTS = 50  # of the features that a layout looks at: the rest is noise to it, and time
ITERATIONS = 500  # of t-SNE
SEED = 0
PERPLEXITY = 30  # about how many neighbours each sample is to keep
FEWEST = 5  # of fewer samples there is no map to draw
BESIDE = 3  # samples with a place, between which one without is put
WIDTH, HEIGHT = 65535, 43690  # of the rectangle that places lie in: as wide as a screen, and finer
MOST_STRETCHED = 1.5  # of one axis, to fill it


def layout(features: np.ndarray, umap: bool = False, most: int | None = None) -> tuple[np.ndarray, str]:
    """Positions (n, 2) of features (n, d) by their directions, and the name of what placed them.

    Of 2,000 photographs t-SNE kept neighbours better than UMAP (trustworthiness .938 against .901), in less time.
    Of more than `most` samples only so many are placed like that; the others lie among the most similar of these.
    """
    if len(features) < FEWEST:
        return _padded(features), "the first two numbers"
    reduced = _reduced(features)
    chosen = np.arange(len(reduced))
    if most is not None and most < len(reduced):
        chosen = np.sort(np.random.default_rng(SEED).permutation(len(reduced))[:most])
    positions = np.empty((len(reduced), 2), np.float32)
    positions[chosen] = _umap(reduced[chosen]) if umap else _tsne(reduced[chosen])
    others = np.setdiff1d(np.arange(len(reduced)), chosen)
    if len(others):
        positions[others] = _between(reduced[others], reduced[chosen], positions[chosen])
    return positions, "UMAP" if umap else "t-SNE"


def check_umap() -> None:
    if importlib.util.find_spec("umap") is None:
        raise InputError("--layout umap needs umap: pip install 'sao[manifold]', or leave it out for t-SNE")


def placed(positions: np.ndarray) -> np.ndarray:
    """Positions as uint16 in a rectangle, turned so that most of them lie along its longer side, and stretched to fill it."""
    centred = positions.astype(np.float64) - positions.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    turned = centred @ axes.T if axes.shape == (2, 2) else centred
    turned -= turned.min(axis=0)
    needed = np.maximum(turned.max(axis=0), 1e-12) / (WIDTH, HEIGHT)
    scales = 1 / np.maximum(needed, needed.max() / MOST_STRETCHED)
    return np.round(turned * scales).astype(np.uint16)


def clearances(places: np.ndarray, others: np.ndarray | None = None) -> np.ndarray:
    """uint16 (n,): how large a square at each place may be before it touches one that was given its own earlier.

    Places are taken from the freest on, so at any size those with clearance overlap nowhere and leave no room for one more.
    `others` are places that come before all of these.
    """
    from scipy.spatial import KDTree

    x, y = places.astype(np.int32).T.copy()
    distances = np.full(len(x), WIDTH, np.int32)
    if others is not None and len(others):
        # The distance to the nearest of the others, along the axis along which it is greater.
        distances = KDTree(others).query(places, p=np.inf)[0].astype(np.int32)
    elif len(x):
        distances[np.maximum(np.abs(x - x.mean()), np.abs(y - y.mean())).argmin()] = WIDTH + 1  # the first is in the middle
    found = np.zeros(len(x), np.uint16)
    across, down = np.empty_like(x), np.empty_like(y)
    for _ in range(len(x)):
        furthest = int(distances.argmax())
        found[furthest] = min(distances[furthest], WIDTH)
        if found[furthest] == 0:
            break  # all that are left stand where another one stands
        np.abs(np.subtract(x, x[furthest], out=across), out=across)
        np.abs(np.subtract(y, y[furthest], out=down), out=down)
        np.minimum(distances, np.maximum(across, down, out=across), out=distances)
        distances[furthest] = -1
    return found


def _reduced(features: np.ndarray) -> np.ndarray:
    """Unit directions on their leading components. A trace of noise keeps equal samples from being divided by nothing."""
    from sklearn.decomposition import PCA

    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    directions = (features / np.maximum(lengths, 1e-12)).astype(np.float64)
    directions += np.random.default_rng(SEED).normal(0, 1e-6, directions.shape)
    components = min(COMPONENTS, *directions.shape)
    reduced = PCA(components, random_state=SEED).fit_transform(directions)
    return (reduced / reduced.std()).astype(np.float32)


def _padded(values: np.ndarray) -> np.ndarray:
    """The first two columns, where there are two."""
    flat = np.zeros((len(values), 2), np.float32)
    flat[:, : min(2, values.shape[1])] = values[:, :2]
    return flat


def _between(rows: np.ndarray, others: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Near the mean position of the nearest others, and not exactly there, so that rows with the same ones stay apart."""
    table = torch.from_numpy(others)
    parts = torch.from_numpy(rows).split(1024)
    near = torch.cat([torch.cdist(part, table).topk(BESIDE, largest=False).indices for part in parts])
    around = positions[near.numpy()]  # (n, BESIDE, 2)
    spread = np.median(np.ptp(around, axis=1))
    middle = np.median(around, axis=1)  # their mean would lie in the gap where two of them are far apart
    return middle + np.random.default_rng(SEED).normal(0, 0.25 * spread + 1e-6, middle.shape)


def _tsne(reduced: np.ndarray) -> np.ndarray:
    from sklearn.manifold import TSNE

    perplexity = min(PERPLEXITY, (len(reduced) - 1) / 3)
    start: Any = _padded(reduced) * 1e-4  # an array, which the annotation of TSNE forgets
    return TSNE(2, perplexity=perplexity, init=start, max_iter=ITERATIONS, random_state=SEED).fit_transform(reduced)


def _umap(reduced: np.ndarray) -> np.ndarray:
    umap: Any = importlib.import_module("umap")
    with warnings.catch_warnings(action="ignore"):  # that a seed keeps it from using several threads
        return np.asarray(umap.UMAP(n_neighbors=min(15, len(reduced) - 1), random_state=SEED).fit_transform(reduced))
