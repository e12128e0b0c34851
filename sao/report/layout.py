"""Where samples lie on the map: neighbours in feature space become neighbours on paper."""

import importlib
import importlib.util
import warnings
from typing import Any

import numpy as np

from sao.errors import InputError

COMPONENTS = 50  # of the features that a layout looks at: the rest is noise to it, and time
PERPLEXITY = 30  # about how many neighbours each sample is to keep
FEWEST = 5  # of fewer samples there is no map to draw


def layout(features: np.ndarray, seed: int = 0, umap: bool = False, iterations: int = 500) -> tuple[np.ndarray, str]:
    """Positions (n, 2) of features (n, d) by their directions, and the name of what placed them."""
    if len(features) < FEWEST:
        return _padded(features), "the first two numbers"
    reduced = _reduced(features, seed)
    if umap:
        return _umap(reduced, seed), "UMAP"
    return _tsne(reduced, seed, iterations), "t-SNE"


def check_umap() -> None:
    if importlib.util.find_spec("umap") is None:
        raise InputError("--layout umap needs umap: pip install 'sao[manifold]', or leave it out for t-SNE")


def placed(positions: np.ndarray) -> np.ndarray:
    """Positions as uint16 in a square, the longer side filling it: a 65,536th is finer than any screen."""
    positions = positions - positions.min(axis=0)
    longer = max(float(positions.max()), 1e-12)
    return np.round(positions / longer * 65535).astype(np.uint16)


def _reduced(features: np.ndarray, seed: int) -> np.ndarray:
    """Unit directions on their leading components. A trace of noise keeps equal samples from being divided by nothing."""
    from sklearn.decomposition import PCA

    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    directions = (features / np.maximum(lengths, 1e-12)).astype(np.float64)
    directions += np.random.default_rng(seed).normal(0, 1e-6, directions.shape)
    components = min(COMPONENTS, *directions.shape)
    reduced = PCA(components, random_state=seed).fit_transform(directions)
    return (reduced / reduced.std()).astype(np.float32)


def _padded(values: np.ndarray) -> np.ndarray:
    """The first two columns, where there are two."""
    flat = np.zeros((len(values), 2), np.float32)
    flat[:, : min(2, values.shape[1])] = values[:, :2]
    return flat


def _tsne(reduced: np.ndarray, seed: int, iterations: int) -> np.ndarray:
    from sklearn.manifold import TSNE

    perplexity = min(PERPLEXITY, (len(reduced) - 1) / 3)
    start: Any = _padded(reduced) * 1e-4  # an array, which the annotation of TSNE forgets
    return TSNE(2, perplexity=perplexity, init=start, max_iter=iterations, random_state=seed).fit_transform(reduced)


def _umap(reduced: np.ndarray, seed: int) -> np.ndarray:
    umap: Any = importlib.import_module("umap")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a seed keeps it from using several threads
        return np.asarray(umap.UMAP(n_neighbors=min(15, len(reduced) - 1), random_state=seed).fit_transform(reduced))
