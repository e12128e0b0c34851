"""Evaluation while training: cheap enough to repeat, on a fixed part of the data, and useful without labels too."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sao.data.dataset import Dataset, Images
from sao.engine.evaluate import LEARNT, WATCHED, measure, representations
from sao.engine.features import extract_together
from sao.engine.pictures import decoded, to_pixels
from sao.evaluation.clusters import agreeing_clusters
from sao.evaluation.memorisation import memorised
from sao.evaluation.partitions import ari
from sao.evaluation.suite import CLUSTERS_WITHOUT_LABELS, LABELLED
from sao.methods import Method, generative
from sao.randomness import generator
from sao.smoothness import jacobian_norm

SMOOTHNESS_SAMPLES = 64
STARTS = 5  # of k-means, whose clusters are compared
COPIES_SAMPLES, COPIES_REALS = 256, 4000


@dataclass(frozen=True)
class Watched:
    """Scalars named eval/…, and the clusters (n,) of the held-out part, found without labels; None where it is too small."""

    scalars: dict[str, float]
    clusters: np.ndarray | None


def watch(method: Method, dataset: Dataset, seed: int = 0, before: np.ndarray | None = None) -> Watched:
    """Rank, steadiness of clusters, copies and quantiles of the Jacobian norm always; accuracies where there are labels.

    `before` are the clusters of the evaluation before this one. A measure that the data does not allow (a single class, three
    held-out samples) is left out: it must not end a run.
    """
    learnt = representations(method, dataset, WATCHED, seed, extract=extract_together)
    found = measure(learnt, WATCHED, seed)
    scalars = {
        f"eval/{metric.name}_n{found.n_test}" if metric.name in LABELLED else f"eval/{metric.name}": metric.value
        for metric in found.metrics
        if math.isfinite(metric.value)
    }
    held_out = learnt[LEARNT][1]
    assert held_out is not None
    steady, clusters = _steadiness(held_out.values, seed, before)
    return Watched(scalars | steady | _copies(method, dataset, seed) | _smoothness(method, dataset, seed), clusters)


def _steadiness(features: Tensor, seed: int, before: np.ndarray | None) -> tuple[dict[str, float], np.ndarray | None]:
    """How well clusters agree between starts, and with those of the evaluation before; 1 where they are the same."""
    if len(features) < 2 * CLUSTERS_WITHOUT_LABELS or not bool(features.isfinite().all()):
        return {}, None
    agreement, best = agreeing_clusters(features, CLUSTERS_WITHOUT_LABELS, STARTS, seed)
    clusters = best.cpu().numpy().astype(np.uint8)
    found = {"eval/clusters_agree": agreement.value}
    if before is not None and len(before) == len(clusters):
        found["eval/clusters_kept"] = ari(torch.from_numpy(clusters).long(), torch.from_numpy(before).long())
    return found, clusters


def _copies(method: Method, dataset: Dataset, seed: int) -> dict[str, float]:
    """The share of samples suspiciously near to a training image, against a part of the training data."""
    maker, train = generative(method), dataset.train
    if maker is None or not isinstance(train, Images) or len(train) < 3:
        return {}
    latents = torch.randn(COPIES_SAMPLES, *maker.latent_shape, generator=generator(seed, "samples"))
    drawn = to_pixels(decoded(maker, latents, train.shape, next(method.parameters()).device))
    return {"eval/memorised": memorised(drawn, train.pixels[:COPIES_REALS], limit=500, seed=seed).share.value}


def _smoothness(method: Method, dataset: Dataset, seed: int) -> dict[str, float]:
    device = next(method.parameters()).device
    inputs = dataset.test.inputs(slice(0, SMOOTHNESS_SAMPLES), device)
    norms = jacobian_norm(method.smooth_function, inputs, steps=4, generator=generator(seed, "watch")).detach()
    levels = (0.05, 0.5, 0.95)
    return {f"eval/jacobian_norm_q{100 * level:02.0f}": float(norms.float().quantile(level)) for level in levels}
