"""Whether a written network computes what `sao` computes, on real inputs and on batches of several lengths."""

from collections.abc import Callable

import numpy as np

from sao.core.agreement import difference
from sao.errors import InputError
from sao.export.whole import Whole

TOLERANCE = 1e-4  # of the largest value
ROUNDED = 1e-3  # share of pixels that may be rounded the other way
BATCHES = (1, 2, 5, 7)  # lengths that are tried beside the whole: a graph may have kept the one that it was traced with


def check(whole: Whole, run: Callable[[np.ndarray], np.ndarray], inputs: np.ndarray) -> float:
    """The largest difference, as a share of the largest value; too large a one is an error."""
    expected = whole.expected(inputs)
    worst = 0.0
    for length in (*BATCHES, len(inputs)):
        rows = np.arange(length) % len(inputs)  # of few inputs some come again, so that every length is tried
        worst = max(worst, _difference(expected[rows], run(inputs[rows])))
    if worst > TOLERANCE:
        raise InputError(
            f"the exported {whole.kind} differs from the run by {worst:.1e} of the largest value, more than {TOLERANCE:.0e}, "
            "so nothing was written: please report this with the run's config.yaml"
        )
    return worst


def _difference(expected: np.ndarray, found: np.ndarray) -> float:
    if expected.dtype != np.uint8:
        return difference(expected, found)
    apart = difference(expected, found, least=255)
    rounding = apart <= 1 / 255 and np.mean(found != expected) <= ROUNDED
    return 0.0 if rounding else apart
