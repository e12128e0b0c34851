"""Whether a written network computes what `sao` computes, on real inputs and on batches of several lengths."""

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from sao.core.agreement import difference
from sao.errors import InputError
from sao.export.whole import Whole

TOLERANCE = 1e-4  # of the largest value
PREPARED = 0.05  # the same where images are prepared in the graph: Pillow rounds some pixels the other way
ROUNDED = 1e-3  # share of pixels that may be rounded the other way
BATCHES = (1, 2, 5, 7)  # lengths that are tried beside the whole: a graph may have kept the one that it was traced with

Run = Callable[[np.ndarray], np.ndarray]  # what a written file computes
Inputs = np.ndarray | list[np.ndarray]  # a list where they are of several sizes


def run_of(module: nn.Module) -> Run:
    @torch.no_grad()
    def run(x: np.ndarray) -> np.ndarray:
        return module(torch.from_numpy(x)).numpy()

    return run


def check(whole: Whole, run: Run, inputs: Inputs) -> float:
    """The largest difference, as a share of the largest value; too large a one is an error."""
    several = inputs if isinstance(inputs, list) else [inputs]
    expected = [whole.expected(one) for one in several]
    worst = 0.0
    for one, wanted in zip(several, expected, strict=True):
        for length in (*BATCHES, len(one)):
            rows = np.arange(length) % len(one)  # of few inputs some come again, so that every length is tried
            worst = max(worst, _difference(wanted[rows], run(one[rows])))
    tolerance = TOLERANCE if len(whole.free_axes) == 1 else PREPARED
    if worst > tolerance:
        raise InputError(
            f"the exported {whole.kind} differs from the run by {worst:.1e} of the largest value, more than {tolerance:.0e}, "
            "so nothing was written: please report this with the run's config.yaml"
        )
    return worst


def _difference(expected: np.ndarray, found: np.ndarray) -> float:
    if expected.dtype != np.uint8:
        return difference(expected, found)
    apart = difference(expected, found, least=255)
    rounding = apart <= 1 / 255 and np.mean(found != expected) <= ROUNDED
    return 0.0 if rounding else apart
