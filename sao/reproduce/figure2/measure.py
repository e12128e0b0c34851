"""From one trained pair to everything that the panels show and every number beside them."""

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from sao.config import Config
from sao.core.random import batch_rows, generator
from sao.data.dataset import Dataset, Samples
from sao.data.named import SPIRAL_BOX, SPIRAL_NOISE
from sao.evaluation.neighbours import knn_accuracy
from sao.evaluation.probe import linear_probe
from sao.methods.base import Batch, total
from sao.methods.gan import Adversarial, Side
from sao.reproduce.figure2 import numbers

Numbers = dict[str, dict[str, float]]  # panel → name → value


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
    pull, paths = pull_on_points(method, grid, targets), numbers.transport_paths(grid, targets)
    updates = _mean_update(method, config, dataset, points, sizes.updates)
    found: Numbers = {
        "a": _of_data(dataset, sizes),
        "b": _of_samples(generated),
        "c": _of_embeddings(method, dataset, sizes, scalar),
        "d": _of_palette(plane, points, embeddings, arm, sizes.neighbours),
        "e": _of_gradient(pull, paths),
        "f": _of_updates(updates, points, arm, sizes.neighbours),
    }
    arrows = numbers.projected(updates, embeddings, plane)
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


def _of_data(dataset: Dataset, sizes: Sizes) -> dict[str, float]:
    train_x, train_y, test_x, test_y = _probe_parts(dataset, sizes)
    return {
        "data_share_on_arms": numbers.share_on_arms(test_x, SPIRAL_NOISE),
        "raw_linear_accuracy": linear_probe(train_x, train_y, test_x, test_y).value,
    }


def _of_samples(generated: np.ndarray) -> dict[str, float]:
    histogram = numbers.arm_histogram(generated, SPIRAL_NOISE)
    return {
        "share_on_arms": numbers.share_on_arms(generated, SPIRAL_NOISE),
        "bins_hit": int((histogram > 0).sum()),
        "bins": histogram.size,
        "emptiest_bin_share": float(histogram.min() * histogram.size / len(generated)),  # 1 where all are filled alike
    }


def _of_embeddings(method: Adversarial, dataset: Dataset, sizes: Sizes, scalar: bool) -> dict[str, float]:
    train_x, train_y, test_x, test_y = _probe_parts(dataset, sizes)
    parts = _embedded(method, train_x, scalar), train_y, _embedded(method, test_x, scalar), test_y
    return {
        "nearest_neighbour_accuracy": knn_accuracy(*parts, ks=(1,))[0].value,
        "linear_accuracy": linear_probe(*parts).value,
    }


def _of_palette(plane: np.ndarray, points: np.ndarray, embeddings: np.ndarray, arm: np.ndarray, k: int) -> dict[str, float]:
    return {
        "shared_neighbours_with_data": numbers.shared_neighbours(plane, points, k),
        "shared_neighbours_with_embedding": numbers.shared_neighbours(plane, embeddings, k),
        "same_arm_neighbours": numbers.same_arm_neighbours(plane, arm, k),
        "chance": k / (len(plane) - 1),
    }


def _of_gradient(pull: np.ndarray, paths: np.ndarray) -> dict[str, float]:
    return {"transport_cosine": float(numbers.cosines(pull, paths).mean())}


def _of_updates(updates: np.ndarray, points: np.ndarray, arm: np.ndarray, k: int) -> dict[str, float]:
    within, between = numbers.direction_agreement(updates, arm)
    return {
        "update_cosine_within": within,
        "update_cosine_between": between,
        "update_cosine_neighbours": numbers.local_agreement(updates, points, k),
    }


def _embedded(method: Adversarial, points: np.ndarray, scalar: bool) -> np.ndarray:
    inputs = torch.from_numpy(points)
    return (method.features(inputs) if scalar else method.embeddings(inputs)).numpy()


def _probe_parts(dataset: Dataset, sizes: Sizes) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rows = slice(0, sizes.probe)
    train, test = dataset.train, dataset.test
    return train.inputs(rows).numpy(), _labels(train)[rows], test.inputs(rows).numpy(), _labels(test)[rows]


def _labels(samples: Samples) -> np.ndarray:
    assert samples.labels is not None, "the spirals know their arms"
    return samples.labels


# --- what the trained loss does to points and embeddings ------------------------------------------------------------------


def pull_on_points(method: Adversarial, points: np.ndarray, data: np.ndarray) -> np.ndarray:
    """−∂L/∂x (n, 2) for points in the place of generated samples: the way in which the loss asks G to move each of them.

    L is the generator's own loss, between the embeddings of the points and those of data samples; the EMA of D gives both.
    """
    network = method.ema_discriminator.network
    inputs = torch.from_numpy(np.asarray(points, np.float32)).requires_grad_()
    with torch.no_grad():
        real_features, real = network(torch.from_numpy(np.asarray(data, np.float32)))
    fake_features, fake = network(inputs)
    keys = [F.normalize(features.detach()) for features in (real_features, fake_features)]
    # The method's own sum of terms, and not a second copy of it: the panel must show the loss that was trained.
    without_norms = real.new_empty(0)
    loss = total(method.generator_losses(Side(real, keys[0], without_norms), Side(fake, keys[1], without_norms)))
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
