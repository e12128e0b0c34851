"""Evaluation while training: cheap enough to repeat, on a fixed part of the data, and useful without labels too."""

from contextlib import suppress

import numpy as np
import torch

from sao.data.samples import Dataset, Samples
from sao.engine.features import extract_together
from sao.errors import InputError
from sao.evaluation.clusters import kmeans_accuracy
from sao.evaluation.neighbours import knn_accuracy
from sao.evaluation.probe import linear_probe
from sao.evaluation.rank import effective_rank
from sao.methods import Method
from sao.randomness import generator
from sao.smoothness import jacobian_norm

LIMIT = 5000  # samples of each part
SMOOTHNESS_SAMPLES = 64


def watch(method: Method, dataset: Dataset, seed: int = 0) -> dict[str, float]:
    """Scalars named eval/…: effective rank and quantiles of the Jacobian norm always; accuracies where there are labels.

    A measure that the data does not allow (a single class, three held-out samples) is left out: it must not end a run.
    """
    device = next(method.parameters()).device
    train, test = _first(dataset.train, seed), _first(dataset.test, seed)
    test_features = extract_together(method.features, test, device)
    scalars: dict[str, float] = {}
    with suppress(InputError):
        scalars["eval/effective_rank"] = effective_rank(test_features).value
    inputs = test.inputs(slice(0, SMOOTHNESS_SAMPLES)).to(device)
    norms = jacobian_norm(method.smooth_function, inputs, steps=4, generator=generator(seed, "watch")).detach()
    for level in (0.05, 0.5, 0.95):
        scalars[f"eval/jacobian_norm_q{100 * level:02.0f}"] = float(norms.float().quantile(level))
    if train.labels is not None and test.labels is not None:
        train_features = extract_together(method.features, train, device)
        both = (train_features, train.labels, test_features, test.labels)
        with suppress(InputError):
            scalars[f"eval/kmeans_n{len(test)}"] = kmeans_accuracy(test_features, test.labels, repeats=5, seed=seed).value
        with suppress(InputError):
            scalars[f"eval/probe_n{len(test)}"] = linear_probe(*both).value
        with suppress(InputError):
            scalars |= {f"eval/{metric.name}_n{len(test)}": metric.value for metric in knn_accuracy(*both)}
    return scalars


def _first(samples: Samples, seed: int) -> Samples:
    if len(samples) <= LIMIT:
        return samples
    rows = torch.randperm(len(samples), generator=generator(seed, "watched rows"))[:LIMIT]
    return samples.select(np.sort(rows.numpy()))
