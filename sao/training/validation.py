"""Validation: evaluation during training, cheap enough to repeat, on fixed rows, also without labels; signs of a collapse."""

import math
from collections import deque
from collections.abc import Mapping
from math import isnan
from statistics import median

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
    return {"eval/memorised": memorised(drawn, train.bytes[:COPIES_REALS], limit=500, seed=seed).share.value}


def _smoothness(method: Method, dataset: Dataset, seed: int) -> dict[str, float]:
    device = next(method.parameters()).device
    inputs = dataset.test.inputs(slice(0, SMOOTHNESS_SAMPLES), device)
    draws = generator(seed, "watch")  # the old name: another one would draw other numbers
    try:
        norms = jacobian_norm(method.smooth_function, inputs, steps=4, generator=draws).detach()
    except torch.OutOfMemoryError:
        raise
    except (ValueError, RuntimeError):  # a network from outside that mixes samples, draws, or has no second derivative
        return {}
    levels = (0.05, 0.5, 0.95)
    return {f"eval/jacobian_norm_q{100 * level:02.0f}": float(norms.float().quantile(level)) for level in levels}


SPREAD = "network/spread"  # of the directions in a batch: about 1 where they differ, 0 where all are the same
ALIKE = 0.05
PATIENCE = 10  # rows of the log in which all were alike, after which it is said; some networks begin so, and leave it
NEAR = 0.005  # of a loss that all outputs alike would have
DISTANCE = "discriminator/distance"  # of the structural method, negative: between the statistics of real and generated samples
NONE_LEFT = 0.1  # runs that learnt never had less than 0.3 (median of ten rows); those that had collapsed came below 0.03
LENGTH, RUN_AWAY = "discriminator/embedding_norm", 3.0  # of runs that learn, mostly 0.5 to 3
LONGER = 30  # rows: prototypes are frozen at first, and the loss begins there


class Collapse:
    """`uniform_losses` are the values of logged losses at which every output is as likely as every other."""

    def __init__(self, uniform_losses: Mapping[str, float] | None = None) -> None:
        self._uniform = uniform_losses or {}
        self._alike = self._stuck = 0
        self._distances: deque[float] = deque(maxlen=PATIENCE)
        self._same = False

    def seen(self, step: int, values: Mapping[str, float]) -> str | None:
        """What there is to say after a row of the log: a collapse, once each time that it happens."""
        news = self._of_spread(values) or self._of_loss(values) or self._of_distance(values)
        return None if news is None else f"step {step}: {news}"

    def _of_loss(self, values: Mapping[str, float]) -> str | None:
        near = [name for name, value in self._uniform.items() if name in values and abs(values[name] - value) < NEAR * value]
        self._stuck = self._stuck + 1 if near else 0
        if self._stuck != LONGER:
            return None
        return (
            f"{near[0]} has stayed at {self._uniform[near[0]]:.3f}, where all outputs are equally likely, so it learns "
            "nothing: start again with fewer outputs or prototypes, or a lower learning rate"
        )

    def _of_spread(self, values: Mapping[str, float]) -> str | None:
        if SPREAD not in values:
            return None
        self._alike = self._alike + 1 if not values[SPREAD] >= ALIKE else 0  # NaN is no spread
        said = f"the network answers nearly the same to every image ({SPREAD} {values[SPREAD]:.3f}), so it has collapsed"
        return f"{said}: start again with a lower learning rate" if self._alike == PATIENCE else None

    def _of_distance(self, values: Mapping[str, float]) -> str | None:
        """The median, because the distance of a network that has collapsed still jumps up for a step now and then."""
        if DISTANCE not in values:
            return None
        self._distances.append(0.0 if isnan(values[DISTANCE]) else -values[DISTANCE])
        before, typical = self._same, median(self._distances)
        self._same = len(self._distances) == PATIENCE and typical < NONE_LEFT
        if before or not self._same:
            return None
        length = values[LENGTH]
        advice = (
            "lower learning rates, or with --method.norm_side ceiling --method.norm_weight 0.02"
            if length > RUN_AWAY
            else "a higher --method.lipschitz, in case the samples lie close together"
        )
        found = f"distance {typical:.3f}, embeddings of length {length:.1f}"
        return (
            f"the discriminator does not tell real samples from generated ones ({found}), so it learns nothing: "
            f"start again with {advice}"
        )
