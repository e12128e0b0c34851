"""From one trained pair to everything that the panels show and every number beside them."""

import copy
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial import KDTree
from torch import Tensor
from torch.nn import functional as F

from sao.config import Config
from sao.core.random import batch_rows, generator
from sao.data.dataset import Dataset, Samples
from sao.data.named import SPIRAL_BOX, SPIRAL_NOISE, spiral_point
from sao.evaluation.neighbours import knn_accuracy
from sao.evaluation.probe import linear_probe
from sao.methods.base import Batch, total
from sao.methods.gan import Adversarial, Side

Numbers = dict[str, dict[str, float]]  # panel → name → value
Probed = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # inputs and labels of training, and of held-out points


@dataclass(frozen=True)
class Sizes:
    """How many points each panel works with."""

    points: int = 1500  # held-out points that are embedded and drawn
    probe: int = 4000  # training points, and as many held-out ones, for the accuracies
    generated: int = 4000
    grid: int = 20  # points a side
    neighbours: int = 10
    updates: int = 8  # single updates, each from the same trained state, over which directions are averaged


@dataclass(frozen=True, eq=False)
class Learnt:
    """What the panels draw; n points, g grid points."""

    points: np.ndarray  # (n, 2) held-out data
    arm: np.ndarray  # (n,)
    generated: np.ndarray  # (m, 2)
    plane: np.ndarray  # (n, 2) t-SNE of the embeddings
    grid: np.ndarray  # (g, 2)
    pull: np.ndarray  # (g, 2) −∂L/∂x
    paths: np.ndarray  # (g, 2) optimal transport to data samples
    arrows: np.ndarray  # (n, 2) directions of one update, in the plane of the t-SNE
    numbers: Numbers


def measured(method: Adversarial, config: Config, dataset: Dataset, sizes: Sizes) -> Learnt:
    """The same for every variant. A hinge discriminator's embedding is one score, so its backbone features stand in."""
    scalar = method.embeddings(dataset.test.inputs(slice(0, 1))).shape[1] == 1
    points, arm = dataset.test.inputs(slice(0, sizes.points)).numpy(), _labels(dataset.test)[: sizes.points]
    embeddings = _embedded(method, points, scalar)
    plane = tsne(embeddings, config.seed)
    latents = torch.randn(sizes.generated, *method.latent_shape, generator=generator(config.seed, "figure 2"))
    generated = method.decode(latents).numpy()
    grid = square_grid(sizes.grid, SPIRAL_BOX)
    targets = dataset.test.inputs(slice(sizes.points, sizes.points + len(grid))).numpy()
    pull = pull_on_points(method, grid, targets, config.steps_for(len(dataset.train)))
    paths = transport_paths(grid, targets)
    updates = _mean_update(method, config, dataset, points, sizes.updates)
    probed = _probe_parts(dataset, sizes)
    found: Numbers = {
        "a": {"data_share_on_arms": share_on_arms(probed[2]), "raw_linear_accuracy": linear_probe(*probed).value},
        "b": _of_samples(generated),
        "c": _of_embeddings(method, probed, scalar),
        "d": _of_palette(plane, points, embeddings, arm, sizes.neighbours),
        "e": {"transport_cosine": float(cosines(pull, paths).mean())},
        "f": _of_updates(updates, points, arm, sizes.neighbours),
    }
    arrows = projected(updates, embeddings, plane)
    return Learnt(points, arm, generated, plane, grid, pull, paths, arrows, found)


def tsne(embeddings: np.ndarray, seed: int) -> np.ndarray:
    from sklearn.manifold import TSNE

    perplexity = min(30, (len(embeddings) - 1) / 3)
    return TSNE(perplexity=perplexity, init="pca", random_state=seed, n_jobs=1).fit_transform(embeddings)


def square_grid(side: int, box: float) -> np.ndarray:
    """Points (side², 2) evenly over the box, half a cell from its edge."""
    places = (np.arange(side) + 0.5) / side * 2 * box - box
    return np.stack(np.meshgrid(places, places), axis=-1).reshape(-1, 2).astype(np.float32)


def _mean_update(method: Adversarial, config: Config, dataset: Dataset, points: np.ndarray, updates: int) -> np.ndarray:
    """Where the next batch would move the embeddings; the mean of several next batches, each from the same state."""
    done = config.steps_for(len(dataset.train))
    steps = range(done, done + updates)
    rows = [batch_rows(config.seed, step, config.train.batch, len(dataset.train)).numpy() for step in steps]
    moved = [update_directions(method, dataset.train.inputs(r), points, s) for r, s in zip(rows, steps, strict=True)]
    return np.mean(moved, axis=0)


def _of_samples(generated: np.ndarray) -> dict[str, float]:
    histogram = arm_histogram(generated)
    return {
        "share_on_arms": share_on_arms(generated),
        "bins_hit": int((histogram > 0).sum()),
        "bins": histogram.size,
        "emptiest_bin_share": float(histogram.min() * histogram.size / len(generated)),  # 1 where all are filled alike
    }


def _of_embeddings(method: Adversarial, probed: Probed, scalar: bool) -> dict[str, float]:
    train_x, train_y, test_x, test_y = probed
    parts = _embedded(method, train_x, scalar), train_y, _embedded(method, test_x, scalar), test_y
    return {"nearest_neighbour_accuracy": knn_accuracy(*parts, ks=(1,))[0].value, "linear_accuracy": linear_probe(*parts).value}


def _of_palette(plane: np.ndarray, points: np.ndarray, embeddings: np.ndarray, arm: np.ndarray, k: int) -> dict[str, float]:
    return {
        "shared_neighbours_with_data": shared_neighbours(plane, points, k),
        "shared_neighbours_with_embedding": shared_neighbours(plane, embeddings, k),
        "same_arm_neighbours": same_arm_neighbours(plane, arm, k),
        "chance": k / (len(plane) - 1),
    }


def _of_updates(updates: np.ndarray, points: np.ndarray, arm: np.ndarray, k: int) -> dict[str, float]:
    within, between = direction_agreement(updates, arm)
    return {
        "update_cosine_within": within,
        "update_cosine_between": between,
        "update_cosine_neighbours": local_agreement(updates, points, k),
    }


def _embedded(method: Adversarial, points: np.ndarray, scalar: bool) -> np.ndarray:
    inputs = torch.from_numpy(points)
    return (method.features(inputs) if scalar else method.embeddings(inputs)).numpy()


def _probe_parts(dataset: Dataset, sizes: Sizes) -> Probed:
    rows = slice(0, sizes.probe)
    train, test = dataset.train, dataset.test
    return train.inputs(rows).numpy(), _labels(train)[rows], test.inputs(rows).numpy(), _labels(test)[rows]


def _labels(samples: Samples) -> np.ndarray:
    assert samples.labels is not None, "the spirals know their arms"
    return samples.labels


# --- what the trained loss does to points and embeddings ------------------------------------------------------------------


def pull_on_points(method: Adversarial, points: np.ndarray, data: np.ndarray, step: int) -> np.ndarray:
    """−∂L/∂x (n, 2) for points in the place of generated samples, of the generator's own loss, with the EMA of D."""
    network = method.ema_discriminator.network
    inputs = torch.from_numpy(np.asarray(points, np.float32)).requires_grad_()
    with torch.no_grad():
        real_features, real = network(torch.from_numpy(np.asarray(data, np.float32)))
    fake_features, fake = network(inputs)
    keys = [F.normalize(features.detach()) for features in (real_features, fake_features)]
    # The method's own sum of terms, and not a second copy of it: the panel must show the loss that was trained.
    nothing = real.new_empty(0)  # neither norms nor maps of a middle stage
    sides = Side(real, keys[0], nothing, nothing), Side(fake, keys[1], nothing, nothing)
    loss = total(method.generator_losses(*sides, step))
    (gradient,) = torch.autograd.grad(loss, inputs)
    return -gradient.numpy()


def update_directions(method: Adversarial, batch: Tensor, points: np.ndarray, step: int) -> np.ndarray:
    """How one training step on a batch moves the embedding of each point, (n, p); the method itself is left as it was."""
    inputs = torch.from_numpy(np.asarray(points, np.float32))
    updated = copy.deepcopy(method)
    updated.step(Batch(batch, torch.arange(len(batch))), step)
    return (_unit_embeddings(updated, inputs) - _unit_embeddings(method, inputs)).numpy()


@torch.no_grad()
def _unit_embeddings(method: Adversarial, inputs: Tensor) -> Tensor:
    """Unit embeddings by the D that learns; its EMA would show a hundredth of the update."""
    embeddings = method.discriminator(inputs)[1]
    return embeddings if embeddings.shape[1] == 1 else F.normalize(embeddings)


ARMS = 2
RESOLUTION, BINS = 4096, 20  # along each arm: points to be near to, and parts that are counted
DEVIATIONS = 3  # of the noise: so far from an arm a point still belongs to it
SHARPNESS = 5.0  # of the weights with which an arrow chooses among the neighbours it points to


def nearest_on_arms(points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each point (n, 2): the distance to the nearest noiseless arm, which arm, and where along it, in [0, 1]."""
    position = np.linspace(0, 1, RESOLUTION)
    arms = np.concatenate([spiral_point(position, np.full(RESOLUTION, arm)) for arm in range(ARMS)])
    distance, row = map(np.asarray, KDTree(arms).query(points))
    return distance, row // RESOLUTION, position[row % RESOLUTION]


def share_on_arms(points: np.ndarray) -> float:
    """Part of the points within three standard deviations of the noise of an arm; of the data itself about 0.997."""
    return float(np.mean(nearest_on_arms(points)[0] <= DEVIATIONS * SPIRAL_NOISE))


def arm_histogram(points: np.ndarray) -> np.ndarray:
    """Points on an arm, counted by arm and by part of its length, (2, bins); the data fills all alike."""
    distance, arm, position = nearest_on_arms(points)
    on = distance <= DEVIATIONS * SPIRAL_NOISE
    part = np.minimum((position * BINS).astype(int), BINS - 1)
    return np.bincount(arm[on] * BINS + part[on], minlength=ARMS * BINS).reshape(ARMS, BINS)


def shared_neighbours(one: np.ndarray, other: np.ndarray, k: int) -> float:
    """Mean share of a point's k nearest neighbours in one space among those in the other; chance is k / (n - 1)."""
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
    """Mean cosine over all pairs of different points of the same arm, and over all pairs of points of different arms."""
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

    An arrow is the mean of the unit vectors to a point's k neighbours, weighted by how well the direction points to each in the
    embedding, less their plain mean, as velocities of cells are drawn over their map.
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
