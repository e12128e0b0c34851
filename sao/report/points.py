"""The samples of the map: held-out ones and generated ones with features, clusters, neighbours and Jacobian norms."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sao.core.jacobian import jacobian_norm
from sao.core.random import generator
from sao.data.dataset import Images, Samples
from sao.evaluation.extract import extract
from sao.evaluation.kmeans import best_kmeans
from sao.evaluation.outliers import outliers
from sao.evaluation.suite import CLUSTERS_WITHOUT_LABELS
from sao.methods import generative
from sao.training.model import Model

NEIGHBOURS = 5
SHOWN = 8  # samples of each kind of a cluster


@dataclass(frozen=True)
class Points:
    """Held-out samples and what is known of each; axes: n samples, k clusters."""

    samples: Samples
    rows: np.ndarray  # (n,) their places in the test set
    directions: np.ndarray  # (n, d) features of unit length
    neighbours: np.ndarray  # (n, NEIGHBOURS)
    closeness: np.ndarray  # (n, k) cosine with the centre of each cluster
    strange: np.ndarray  # (n,) whether it looks like none of the others

    @property
    def clusters(self) -> np.ndarray:
        return self.closeness.argmax(axis=1)


@dataclass(frozen=True)
class Generated:
    samples: Samples
    directions: np.ndarray
    neighbours: np.ndarray  # (g, NEIGHBOURS) the nearest held-out ones
    closeness: np.ndarray


def held_out_points(model: Model, samples: Samples, rows: np.ndarray, clusters: int | None, seed: int) -> tuple[Points, Any]:
    """The points, and the clusters that were found among them."""
    features = extract(model.method.features, samples, model.device)
    directions = _directions(features)
    k = clusters or model.facts.classes or CLUSTERS_WITHOUT_LABELS
    found = best_kmeans(features, min(k, len(features)), seed=seed)
    centres = found.centroids.cpu().numpy().astype(np.float32)
    strange = outliers(features, samples.pixels if isinstance(samples, Images) else None, seed)
    neighbours = _neighbours(directions, directions, own=True)
    return Points(samples, rows, directions, neighbours, directions @ centres.T, strange), centres


def generated_points(model: Model, points: Points, centres: Any, count: int, seconds: float, seed: int) -> Generated | None:
    """As many generated samples as the time allows, at most `count`; None where the method makes none."""
    maker = generative(model.method)
    if maker is None or count < 1:
        return None
    latents = torch.randn(count, *maker.latent_shape, generator=generator(seed, "report"))
    drawn = np.concatenate([model.decode(part) for part in _while_there_is_time(latents.split(32), seconds)])
    samples = model.samples(drawn)
    directions = _directions(extract(model.method.features, samples, model.device))
    return Generated(samples, directions, _neighbours(directions, points.directions, own=False), directions @ centres.T)


def jacobian_norms(model: Model, samples: Samples, seconds: float, seed: int) -> np.ndarray | None:
    """The norm at as many samples as the time allows, NaN at the others; None where the network has no such number."""
    norms = np.full(len(samples), np.nan)
    order = np.random.default_rng(seed).permutation(len(samples))
    draws = generator(seed, "report")
    at_once = min(64, model.config.train.batch)  # no more than training could hold
    parts = np.array_split(order, -(-len(order) // at_once))
    try:
        for rows in _while_there_is_time(parts, seconds):
            inputs = samples.inputs(np.sort(rows)).to(model.device)
            found = jacobian_norm(model.method.smooth_function, inputs, steps=2, generator=draws)
            norms[np.sort(rows)] = found.detach().float().cpu().numpy()
    except (ValueError, FloatingPointError, RuntimeError):  # a network that mixes samples, draws, or has no second derivative
        return None
    return norms


def described_clusters(points: Points, drawn: Generated | None) -> list[dict[str, Any]]:
    """Of each cluster its size, its labels, and its central, borderline and strangest samples; generated ones in it."""
    assigned, own = points.clusters, points.closeness.max(axis=1)
    ranked = np.sort(points.closeness, axis=1)
    margin = ranked[:, -1] - ranked[:, -2] if points.closeness.shape[1] > 1 else ranked[:, -1]
    second = np.argsort(points.closeness, axis=1)[:, -2] if points.closeness.shape[1] > 1 else assigned
    found = []
    for cluster in range(points.closeness.shape[1]):
        members = np.flatnonzero(assigned == cluster)
        usual = members[~points.strange[members]]
        borderline = usual[np.argsort(margin[usual], kind="stable")][:SHOWN]
        odd = members[np.lexsort((own[members], ~points.strange[members]))][:SHOWN]
        found.append(
            {
                "size": len(members),
                "cosine": float(own[members].mean()) if len(members) else None,
                "labels": _label_counts(points.samples.labels, members),
                "central": usual[np.argsort(-own[usual], kind="stable")][:SHOWN].tolist(),
                "borderline": borderline.tolist(),
                "towards": second[borderline].tolist(),
                "outliers": odd.tolist(),
                "strange": int(points.strange[members].sum()),
                **_generated_in(cluster, drawn),
            }
        )
    return found


def _generated_in(cluster: int, drawn: Generated | None) -> dict[str, Any]:
    if drawn is None:
        return {}
    members = np.flatnonzero(drawn.closeness.argmax(axis=1) == cluster)
    nearest = members[np.argsort(-drawn.closeness[members, cluster], kind="stable")]
    return {"generated": nearest[:SHOWN].tolist(), "generated_count": len(members)}


def _label_counts(labels: np.ndarray | None, members: np.ndarray) -> list[list[int]] | None:
    """(label, count) from the commonest on."""
    if labels is None:
        return None
    codes, counts = np.unique(labels[members], return_counts=True)
    return [[int(codes[i]), int(counts[i])] for i in np.argsort(-counts, kind="stable")]


def _directions(features: np.ndarray) -> np.ndarray:
    return features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)


def _neighbours(directions: np.ndarray, others: np.ndarray, own: bool, chunk: int = 1024) -> np.ndarray:
    """The others of greatest cosine, without a sample itself where both are the same."""
    table, found = torch.from_numpy(others), []
    k = min(NEIGHBOURS, len(others) - own)
    for start in range(0, len(directions), chunk):
        cosines = torch.from_numpy(directions[start : start + chunk]) @ table.mT
        if own:
            rows = torch.arange(len(cosines))
            cosines[rows, rows + start] = -torch.inf
        found.append(cosines.topk(k, dim=1).indices)
    return torch.cat(found).numpy()


def _while_there_is_time(parts: Any, seconds: float, clock: Callable[[], float] = time.monotonic) -> Iterator[Any]:
    """The first part in any case, and others until the time is over."""
    started = clock()
    for number, part in enumerate(parts):
        if number and clock() - started > seconds:
            return
        yield part
