"""Validation: evaluation during training, cheap enough to repeat, on fixed rows, and useful without labels too."""

import math

import torch
from torch import Tensor

from sao.core.jacobian import jacobian_norm
from sao.core.random import generator
from sao.data.dataset import Dataset, Images
from sao.evaluation.clusters import cluster_agreement
from sao.evaluation.evaluator import LEARNT, VALIDATED, measure, representations
from sao.evaluation.extract import extract_together
from sao.evaluation.memorisation import memorised
from sao.evaluation.suite import CLUSTERS_WITHOUT_LABELS, LABELLED
from sao.methods import Method, generative
from sao.training.pictures import decoded, to_pixels

SMOOTHNESS_SAMPLES = 64
STARTS = 5  # of k-means, whose clusters are compared
COPIES_SAMPLES, COPIES_REALS = 256, 4000


def validate(method: Method, dataset: Dataset, seed: int = 0) -> dict[str, float]:
    """Scalars named eval/…: rank, clusters, copies, Jacobian norms, accuracies; what the data does not allow is left out."""
    learnt = representations(method, dataset, VALIDATED, seed, extract=extract_together)
    found = measure(learnt, VALIDATED, seed)
    scalars = {
        f"eval/{metric.name}_n{found.n_test}" if metric.name in LABELLED else f"eval/{metric.name}": metric.value
        for metric in found.metrics
        if math.isfinite(metric.value)
    }
    test = learnt[LEARNT][1]
    assert test is not None
    return scalars | _agreement(test.values, seed) | _copies(method, dataset, seed) | _smoothness(method, dataset, seed)


def _agreement(features: Tensor, seed: int) -> dict[str, float]:
    """How well clusters agree between starts of k-means; 1 where they are the same."""
    if len(features) < 2 * CLUSTERS_WITHOUT_LABELS or not bool(features.isfinite().all()):
        return {}
    return {"eval/clusters_agree": cluster_agreement(features, CLUSTERS_WITHOUT_LABELS, STARTS, seed).value}


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
    draws = generator(seed, "watch")  # the old name: another one would draw other numbers
    norms = jacobian_norm(method.smooth_function, inputs, steps=4, generator=draws).detach()
    levels = (0.05, 0.5, 0.95)
    return {f"eval/jacobian_norm_q{100 * level:02.0f}": float(norms.float().quantile(level)) for level in levels}
