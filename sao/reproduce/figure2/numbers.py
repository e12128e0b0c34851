"""The numbers beside the panels: pure functions of arrays. n points, p embedding, k neighbours."""

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial import KDTree

from sao.data.named import spiral_point

ARMS = 2
BINS = 20  # along each arm
DEVIATIONS = 3  # of the noise: so far from an arm a point still belongs to it
SHARPNESS = 5.0  # of the weights with which an arrow chooses among the neighbours it points to


def nearest_on_arms(points: np.ndarray, resolution: int = 4096) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each point (n, 2): the distance to the nearest noiseless arm, which arm, and where along it, in [0, 1]."""
    position = np.linspace(0, 1, resolution)
    arms = np.concatenate([spiral_point(position, np.full(resolution, arm)) for arm in range(ARMS)])
    distance, row = KDTree(arms).query(points)
    row = np.asarray(row)
    return distance, row // resolution, position[row % resolution]


def share_on_arms(points: np.ndarray, noise: float) -> float:
    """Part of the points within three standard deviations of the noise of an arm; of the data itself about 0.997."""
    return float(np.mean(nearest_on_arms(points)[0] <= DEVIATIONS * noise))


def arm_histogram(points: np.ndarray, noise: float, bins: int = BINS) -> np.ndarray:
    """Points on an arm, counted by arm and by part of its length, (2, bins); the data fills all alike."""
    distance, arm, position = nearest_on_arms(points)
    on = distance <= DEVIATIONS * noise
    part = np.minimum((position * bins).astype(int), bins - 1)
    return np.bincount(arm[on] * bins + part[on], minlength=ARMS * bins).reshape(ARMS, bins)


def shared_neighbours(one: np.ndarray, other: np.ndarray, k: int) -> float:
    """Mean share of a point's k nearest neighbours in one space that are among its k nearest in the other.

    Chance is k / (n - 1).
    """
    first, second = (_neighbours(space, k) for space in (one, other))
    return float(np.mean([len(np.intersect1d(a, b)) / k for a, b in zip(first, second, strict=True)]))


def same_arm_neighbours(space: np.ndarray, arm: np.ndarray, k: int) -> float:
    """Mean share of a point's k nearest neighbours that lie on its own arm."""
    return float(np.mean(arm[_neighbours(space, k)] == arm[:, None]))


def transport_paths(sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Displacements (n, 2) of the optimal transport of n points to n others: an exact assignment, squared distances."""
    if len(sources) != len(targets):
        raise ValueError(f"targets has {len(targets)} points for {len(sources)} sources: an assignment needs as many")
    cost = np.square(sources[:, None] - targets[None]).sum(-1)
    rows, columns = linear_sum_assignment(cost)
    paths = np.empty_like(sources)
    paths[rows] = targets[columns] - sources[rows]
    return paths


def cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Cosine of the angle between each pair of rows, (n,)."""
    return (unit(one) * unit(other)).sum(1)


def direction_agreement(directions: np.ndarray, arm: np.ndarray) -> tuple[float, float]:
    """Mean cosine over all pairs of different points of the same arm, and over all pairs of points of different arms.

    A sum over pairs is the square of a sum: no matrix of pairs is made.
    """
    rows = unit(directions)
    sums = np.stack([rows[arm == one].sum(0) for one in range(ARMS)])
    counts = np.bincount(arm, minlength=ARMS)
    within = (np.square(sums).sum() - len(rows)) / (counts * (counts - 1)).sum()
    return float(within), float(sums[0] @ sums[1] / counts.prod())


def local_agreement(directions: np.ndarray, neighbourhood: np.ndarray, k: int) -> float:
    """Mean cosine between the direction of a point and those of its k nearest neighbours in another space."""
    rows = unit(directions)
    return float(np.einsum("np,nkp->nk", rows, rows[_neighbours(neighbourhood, k)]).mean())


def projected(directions: np.ndarray, embeddings: np.ndarray, plane: np.ndarray, k: int = 50) -> np.ndarray:
    """Directions in the embedding (n, p) as arrows in a plane (n, 2) that only has the points' places in common with it.

    t-SNE has no derivative to carry a direction over. An arrow is the mean of the unit vectors to a point's k neighbours,
    weighted by how well the direction points to each in the embedding, less their plain mean: the way in which velocities of
    cells are drawn over their map. Its length says how clearly the neighbours agree.
    """
    near = _neighbours(embeddings, k)
    towards = embeddings[near] - embeddings[:, None]
    towards /= np.linalg.norm(towards, axis=2, keepdims=True) + 1e-12
    weights = np.exp(SHARPNESS * np.einsum("np,nkp->nk", unit(directions), towards))
    weights = weights / weights.sum(1, keepdims=True) - 1 / k
    steps = plane[near] - plane[:, None]
    steps /= np.linalg.norm(steps, axis=2, keepdims=True) + 1e-12
    return np.einsum("nk,nkd->nd", weights, steps)


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / (np.linalg.norm(rows, axis=1, keepdims=True) + 1e-12)


def _neighbours(space: np.ndarray, k: int) -> np.ndarray:
    """Indices (n, k) of the nearest others; the point itself is left out even where another lies exactly on it."""
    if not 1 <= k < len(space):
        raise ValueError(f"k must be between 1 and {len(space) - 1} for {len(space)} points, got {k}")
    found = np.asarray(KDTree(space).query(space, k + 1)[1])
    own = found == np.arange(len(space))[:, None]
    own[~own.any(1), -1] = True  # more than k duplicates: drop the last instead
    return found[~own].reshape(len(space), k)
