"""Evaluation while training: cheap enough to repeat, on a fixed part of the data, and useful without labels too."""

import math

from sao.data.samples import Dataset
from sao.engine.evaluate import WATCHED, measure, representations
from sao.engine.features import extract_together
from sao.evaluation.suite import LABELLED
from sao.methods import Method
from sao.randomness import generator
from sao.smoothness import jacobian_norm

SMOOTHNESS_SAMPLES = 64


def watch(method: Method, dataset: Dataset, seed: int = 0) -> dict[str, float]:
    """Scalars named eval/…: effective rank and quantiles of the Jacobian norm always; accuracies where there are labels.

    A measure that the data does not allow (a single class, three held-out samples) is left out: it must not end a run.
    """
    found = measure(representations(method, dataset, WATCHED, seed, extract=extract_together), WATCHED, seed)
    scalars = {
        f"eval/{metric.name}_n{found.n_test}" if metric.name in LABELLED else f"eval/{metric.name}": metric.value
        for metric in found.metrics
        if math.isfinite(metric.value)
    }
    device = next(method.parameters()).device
    inputs = dataset.test.inputs(slice(0, SMOOTHNESS_SAMPLES), device)
    norms = jacobian_norm(method.smooth_function, inputs, steps=4, generator=generator(seed, "watch")).detach()
    for level in (0.05, 0.5, 0.95):
        scalars[f"eval/jacobian_norm_q{100 * level:02.0f}"] = float(norms.float().quantile(level))
    return scalars
