"""What is known of each sample of the map: groups, neighbours, outlier scores, Jacobian norms; and the generated ones."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sao.core.jacobian import jacobian_norm
from sao.core.random import generator
from sao.data.dataset import Samples
from sao.evaluation.extract import extract
from sao.evaluation.kmeans import best_kmeans
from sao.evaluation.neighbours import nearest_with_products
from sao.evaluation.outliers import FAR, outlier_scores
from sao.methods import generative
from sao.report.gallery import Gallery
from sao.training.model import Model

NEIGHBOURS = 12
SHOWN = 12  # samples of each kind of a group


@dataclass(frozen=True)
class Points:
    """Samples and what is known of each; axes: n samples, k groups."""

    gallery: Gallery
    features: np.ndarray  # (n, d)
    directions: np.ndarray  # (n, d) of unit length
    neighbours: np.ndarray  # (n, NEIGHBOURS)
    similarities: np.ndarray  # (n, NEIGHBOURS) cosines with them
    closeness: np.ndarray  # (n, k) cosine with the centre of each group
    scores: np.ndarray  # (n,) how far it is from all others, in deviations from what is usual

    @property
    def groups(self) -> np.ndarray:
        return self.closeness.argmax(axis=1)

    @property
    def odd(self) -> np.ndarray:
        """Whether it looks like none of the others; a NaN is as far as can be."""
        return ~(self.scores <= FAR)


@dataclass(frozen=True)
class Generated:
    samples: Samples
    directions: np.ndarray
    neighbours: np.ndarray  # (g, NEIGHBOURS) the nearest real ones
    closeness: np.ndarray


def points_of(gallery: Gallery, features: np.ndarray, k: int, seed: int) -> tuple[Points, np.ndarray]:
    """The points, and the centres of the groups that were found among them."""
    directions = _directions(features)
    found = best_kmeans(features, min(k, len(features)), seed=seed)
    centres = found.centroids.cpu().numpy().astype(np.float32)
    scores = outlier_scores(features, gallery.pixels, seed)
    neighbours, similarities = _nearest(directions, directions, own=True)
    closeness = directions @ centres.T
    return Points(gallery, features, directions, neighbours, similarities, closeness, scores), centres


def generated_points(model: Model, points: Points, centres: Any, count: int, seconds: float, seed: int) -> Generated | None:
    """As many generated samples as the time allows, at most `count`; None where the method makes none."""
    maker = generative(model.method)
    if maker is None or count < 1:
        return None
    latents = torch.randn(count, *maker.latent_shape, generator=generator(seed, "report"))
    drawn = np.concatenate([model.decode(part) for part in _while_there_is_time(latents.split(32), seconds)])
    samples = model.samples(drawn)
    directions = _directions(extract(model.method.representation(model.usual_feature), samples, model.device))
    neighbours, _ = _nearest(directions, points.directions, own=False)
    return Generated(samples, directions, neighbours, directions @ centres.T)


def jacobian_norms(model: Model, gallery: Gallery, seconds: float, seed: int) -> np.ndarray | None:
    """The norm at as many samples as the time allows, NaN at the others; None where the network has no such number."""
    norms = np.full(len(gallery), np.nan)
    order = np.random.default_rng(seed).permutation(len(gallery))
    draws = generator(seed, "report")
    at_once = min(64, model.config.train.batch)  # no more than training could hold
    parts = np.array_split(order, -(-len(order) // at_once))
    try:
        for rows in _while_there_is_time(parts, seconds):
            inputs = gallery.inputs(np.sort(rows)).to(model.device)
            found = jacobian_norm(model.method.smooth_function, inputs, steps=2, generator=draws)
            norms[np.sort(rows)] = found.detach().float().cpu().numpy()
    except (ValueError, FloatingPointError, RuntimeError):  # a network that mixes samples, draws, or has no second derivative
        return None
    return norms


def described_groups(points: Points, drawn: Generated | None) -> list[dict[str, Any]]:
    """Of each group its size, its labels, and its typical and borderline samples; generated ones in it."""
    assigned, own = points.groups, points.closeness.max(axis=1)
    ranked = np.sort(points.closeness, axis=1)
    several = points.closeness.shape[1] > 1
    margin = ranked[:, -1] - ranked[:, -2] if several else ranked[:, -1]
    second = np.argsort(points.closeness, axis=1)[:, -2] if several else assigned
    found = []
    for group in range(points.closeness.shape[1]):
        members = np.flatnonzero(assigned == group)
        usual = members[~points.odd[members]]
        borderline = usual[np.argsort(margin[usual], kind="stable")][:SHOWN] if several else usual[:0]
        found.append(
            {
                "size": len(members),
                "labels": _label_counts(points.gallery.labels, members),
                "typical": usual[np.argsort(-own[usual], kind="stable")][:SHOWN].tolist(),
                "borderline": borderline.tolist(),
                "towards": second[borderline].tolist(),
                **_generated_in(group, drawn),
            }
        )
    return found


def _generated_in(group: int, drawn: Generated | None) -> dict[str, Any]:
    if drawn is None:
        return {}
    members = np.flatnonzero(drawn.closeness.argmax(axis=1) == group)
    ranked = members[np.argsort(-drawn.closeness[members, group], kind="stable")]
    return {"generated": ranked[:SHOWN].tolist(), "generated_count": len(members)}


def _label_counts(labels: np.ndarray | None, members: np.ndarray) -> list[list[int]] | None:
    """(label, count) from the commonest on."""
    if labels is None:
        return None
    codes, counts = np.unique(labels[members], return_counts=True)
    return [[int(codes[i]), int(counts[i])] for i in np.argsort(-counts, kind="stable")]


def _directions(features: np.ndarray) -> np.ndarray:
    return features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)


def _nearest(directions: np.ndarray, others: np.ndarray, own: bool) -> tuple[np.ndarray, np.ndarray]:
    """The others of greatest cosine and these cosines, without a sample itself where both are the same."""
    k = min(NEIGHBOURS, len(others) - own)
    found = nearest_with_products(torch.from_numpy(directions), torch.from_numpy(others), k, own=own)
    return found[0].numpy(), found[1].numpy()


def _while_there_is_time(parts: Any, seconds: float) -> Iterator[Any]:
    """The first part in any case, and others until the time is over."""
    started = time.monotonic()
    for number, part in enumerate(parts):
        if number and time.monotonic() - started > seconds:
            return
        yield part
