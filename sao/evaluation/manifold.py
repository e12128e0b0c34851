"""Clusters along the manifold of the data: groups that are connected by neighbours, of whatever shape they are.

`spectral` needs nothing beside SciPy: the leading eigenvectors of the graph of nearest neighbours, clustered by angle. `umap`
needs the package umap-learn. Both see cosines only, as every clustering here.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from sao.errors import InputError
from sao.evaluation.budget import check_time
from sao.evaluation.inputs import feature_matrix, label_codes, same_width, unit_rows
from sao.evaluation.kmeans import best_kmeans, starts_for
from sao.evaluation.neighbours import nearest_with_products
from sao.evaluation.partitions import ari, matched_samples, nmi
from sao.evaluation.result import Metric, accuracy

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Manifold = Literal["spectral", "umap"]
NEIGHBOURS = 10  # in the graph: of 5 to 30, none did better on raw digits, Fashion-MNIST and CIFAR-10
UMAP_NEIGHBOURS = 20
RESTARTS = 20  # of the k-means in the new coordinates
MOST_DIMENSIONS = 256  # a thousand eigenvectors of 5,000 samples took 90 s
UMAP_DIMENSIONS = 10
MOST_CLUSTERS = 30  # that are looked at when the number is to be proposed
CLEAR = 2.0  # times the second largest drop


def manifold_clustering(
    features: Any, labels: Any, k: int | None = None, algorithm: Manifold = "spectral", seed: int = 0, beside: Any = None
) -> list[Metric]:
    """Matched accuracy, NMI and ARI of the clusters along the manifold, matched on the scored features.

    More samples show more of the manifold: features of others in `beside` are clustered with the scored ones, and not scored.
    """
    features = feature_matrix("features", features)
    codes, classes = label_codes("labels", labels, len(features))
    k = len(classes) if k is None else k
    others = features[:0] if beside is None else feature_matrix("beside", beside)
    same_width("features", features, "beside", others)
    clusters = manifold_clusters(torch.cat([features, others]), k, algorithm, seed)[: len(features)]
    protocol = {
        "algorithm": _described(algorithm, k),
        "normalisation": "unit length",
        "k": k,
        "classes": len(classes),
        "fitted_on": "the scored features" + (f" and {len(others):,} others" if len(others) else ""),
        "n_test": len(features),
    }
    matched = {**protocol, "matched_on": "the scored features", "matching": "optimal one-to-one"}
    return [
        accuracy("manifold", matched_samples(clusters, codes), matched),
        Metric("manifold_nmi", nmi(clusters, codes), None, {**protocol, "nmi_mean": "arithmetic"}),
        Metric("manifold_ari", ari(clusters, codes), None, protocol),
    ]


def manifold_clusters(features: Any, k: int, algorithm: Manifold = "spectral", seed: int = 0) -> Tensor:
    """The cluster (n,) of each sample; the best of many k-means runs in coordinates that follow the neighbours."""
    check_algorithm(algorithm)
    features = feature_matrix("features", features)
    if not 1 <= k <= len(features):
        raise InputError(f"k is {k} but features has {len(features)} samples: choose k between 1 and the sample count")
    if k == 1:
        return torch.zeros(len(features), dtype=torch.long)
    if algorithm == "umap":
        return _umap_clusters(features, k, seed)
    if k <= MOST_DIMENSIONS:
        coordinates = spectral_coordinates(features, k, seed)[1]
    else:
        coordinates = _leading_subspace(features, MOST_DIMENSIONS, seed)
    return best_kmeans(coordinates, k, starts_for(k, RESTARTS), seed).assign(coordinates)


@dataclass(frozen=True)
class Proposal:
    """Numbers of clusters, the best first, each with the drop of eigenvalues after it; and how many were tried."""

    choices: list[tuple[int, float]]
    most: int

    @property
    def k(self) -> int:
        return self.choices[0][0]

    @property
    def sure(self) -> bool:
        """Whether the first stands out: of well separated groups it is many times the second."""
        return len(self.choices) == 1 or self.choices[0][1] >= CLEAR * max(self.choices[1][1], 0.0)

    def __str__(self) -> str:
        (k, drop), *others = self.choices[:3]
        after = f"the eigenvalues of the graph of {NEIGHBOURS} nearest neighbours drop most after {k} groups (by {drop:.3f})"
        then = ", ".join(f"{other} (by {less:.3f})" for other, less in others)
        if self.sure:
            return f"{k} clusters: {after}" + (f", then after {then}" if others else "")
        return (
            f"{k} clusters, but that is unsure: {after}, and hardly less after {then}; 2 to {self.most} were tried. "
            "Look at the groups, and give -k if you know better"
        )


def proposed_clusters(features: Any, seed: int = 0) -> Proposal:
    """How many groups the graph of neighbours falls into: the eigenvalues drop most after the last well separated group."""
    features = feature_matrix("features", features)
    most = min(MOST_CLUSTERS, len(features) - 2)
    if most < 2:
        raise InputError(f"{len(features)} samples are too few to propose a number of clusters: give -k")
    values = spectral_coordinates(features, most + 1, seed)[0]
    drops = values[1:most] - values[2 : most + 1]  # after 2, 3, … groups
    return Proposal([(int(i) + 2, float(drops[i])) for i in np.argsort(-drops, kind="stable")], most)


def spectral_coordinates(features: Tensor, dimensions: int, seed: int = 0) -> tuple[np.ndarray, Tensor]:
    """The largest eigenvalues of the normalised graph of neighbours, falling, and their eigenvectors (n, dimensions)."""
    from scipy.sparse.csgraph import connected_components
    from scipy.sparse.linalg import eigsh

    graph, normalised, lengths = _normalised_graph(features)
    n, (count, part) = len(features), connected_components(graph, directed=False)
    if dimensions >= n - 1 or n <= 200:  # too few rows for an iteration; they cost nothing
        values, vectors = np.linalg.eigh(normalised.toarray())
    elif count > 1:
        values, vectors = _of_parts(normalised, lengths, count, part, dimensions, seed)
    else:
        start = np.random.default_rng(seed).standard_normal(n)
        values, vectors = eigsh(_operator(n, lambda x: normalised @ x), k=dimensions, which="LA", v0=start)
    order = np.argsort(-values)[:dimensions]
    return values[order], torch.from_numpy(np.ascontiguousarray(vectors[:, order])).float()


def _normalised_graph(features: Tensor) -> "tuple[csr_matrix, csr_matrix, np.ndarray]":
    """The graph of neighbours, the same divided by the roots of both degrees, and these roots."""
    from scipy.sparse import diags

    graph = neighbour_graph(features)
    lengths = np.sqrt(np.asarray(graph.sum(axis=1)).ravel())
    roots = diags(1 / lengths)
    return graph, (roots @ graph @ roots).tocsr(), lengths


def _leading_subspace(features: Tensor, dimensions: int, seed: int) -> Tensor:
    """Coordinates (n, dimensions) in the span of about the leading eigenvectors, by a fixed number of block products.

    With more groups than dimensions many eigenvalues are nearly 1: an iteration for each eigenvector would not converge, and
    which of them are found does not matter.
    """
    normalised = _normalised_graph(features)[1]
    block = np.random.default_rng(seed).standard_normal((len(features), dimensions))
    for _ in range(20):
        for _ in range(5):
            check_time()
            block = (normalised @ block + block) / 2  # eigenvalues in [0, 1], so that the greatest lead
        block = np.linalg.qr(block)[0]
    vectors = np.linalg.eigh(block.T @ (normalised @ block))[1]
    return torch.from_numpy(np.ascontiguousarray(block @ vectors[:, ::-1])).float()


def _of_parts(
    normalised: "csr_matrix", lengths: np.ndarray, count: int, part: np.ndarray, dimensions: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """The same of a graph that falls apart. Each part has the eigenvalue 1, and an iteration would find some of these alone.

    Their eigenvectors are known, so the iteration is for those that are left. More parts than dimensions are rotated.
    """
    from scipy.sparse.linalg import eigsh

    draws, n = np.random.default_rng(seed), len(part)
    norms = np.sqrt(np.bincount(part, lengths**2))
    directions = np.eye(count) if count <= dimensions else np.linalg.qr(draws.standard_normal((count, dimensions)))[0]
    known = (lengths / norms[part])[:, None] * directions[part]
    left = dimensions - known.shape[1]
    if left == 0:
        return np.ones(dimensions), known
    rest = _operator(n, lambda x: normalised @ x - known @ (known.T @ x))
    values, vectors = eigsh(rest, k=left, which="LA", v0=draws.standard_normal(n))
    return np.concatenate([np.ones(known.shape[1]), values]), np.hstack([known, vectors])


def _operator(n: int, product: Callable[[np.ndarray], np.ndarray]) -> Any:
    """A symmetric matrix by its product with a vector, which is also where an iteration without end is stopped."""
    from scipy.sparse.linalg import LinearOperator

    def matvec(x: np.ndarray) -> np.ndarray:
        check_time()
        return product(x)

    return LinearOperator((n, n), matvec=matvec, dtype=np.float64)  # pyright: ignore


def neighbour_graph(features: Tensor) -> "csr_matrix":
    """Symmetric weights between each sample and its nearest ones, scaled by how dense its surroundings are.

    The weight falls with the distance beyond the nearest neighbour, at a rate that gives every sample the same total
    (McInnes et al. 2018); two samples are joined where either sees the other.
    """
    from scipy.sparse import csr_matrix

    n = len(features)
    count = min(NEIGHBOURS, n - 1)
    units = unit_rows(features)
    neighbours, cosines = nearest_with_products(units, units, count, own=True)
    weights = _weights((2 - 2 * cosines.double()).clamp_min(0).sqrt().cpu().numpy())
    rows = np.repeat(np.arange(n), count)
    graph = csr_matrix((weights.ravel(), (rows, neighbours.cpu().numpy().ravel())), shape=(n, n))
    return (graph + graph.T - graph.multiply(graph.T)).tocsr()


def _weights(distances: np.ndarray) -> np.ndarray:
    """exp(-(distance - nearest) / scale) with the scale at which a row sums to log2 of its length; found by bisection."""
    beyond = distances - distances[:, :1]
    target = max(np.log2(distances.shape[1]), 1.0)
    low = np.full((len(distances), 1), 1e-6)
    high = np.full((len(distances), 1), 1e3)
    for _ in range(60):
        middle = np.sqrt(low * high)
        small = np.exp(-beyond / middle).sum(axis=1, keepdims=True) < target
        low, high = np.where(small, middle, low), np.where(small, high, middle)
    return np.exp(-beyond / high)


def _umap_clusters(features: Tensor, k: int, seed: int) -> Tensor:
    import warnings

    from sklearn.cluster import KMeans

    with warnings.catch_warnings(action="ignore"):  # a seeded run says that it uses one thread
        from umap import UMAP  # pyright: ignore[reportMissingImports]

        count = min(UMAP_NEIGHBOURS, len(features) - 1)
        dimensions = min(UMAP_DIMENSIONS, len(features) - 2)
        umap = UMAP(n_components=dimensions, n_neighbors=count, min_dist=0.0, metric="cosine", random_state=seed)
        coordinates = umap.fit_transform(features.cpu().numpy())
    found = KMeans(k, n_init=starts_for(k, RESTARTS), random_state=seed).fit_predict(coordinates)  # pyright: ignore[reportArgumentType]
    return torch.from_numpy(found).long()


def check_algorithm(algorithm: str) -> None:
    if algorithm not in get_args(Manifold):
        raise InputError(f"unknown manifold {algorithm!r}: there are {' and '.join(get_args(Manifold))}")
    if algorithm == "umap" and importlib.util.find_spec("umap") is None:
        raise InputError("umap-learn is not installed: pip install 'sao[manifold]', or use spectral")


def _described(algorithm: Manifold, k: int) -> str:
    starts = starts_for(k, RESTARTS)
    if algorithm == "umap":
        coordinates = f"UMAP ({UMAP_DIMENSIONS} dimensions, {UMAP_NEIGHBOURS} neighbours, min_dist 0, cosine)"
        return f"{coordinates}, best of {starts} k-means"
    fewer = f", about the leading {MOST_DIMENSIONS} eigenvectors" if k > MOST_DIMENSIONS else ""
    return f"spectral on the graph of {NEIGHBOURS} neighbours by cosine{fewer}, best of {starts} spherical k-means"
