"""Whether a written network computes what `sao` computes, on real inputs and on batches of several lengths."""

from collections.abc import Callable

import numpy as np

from sao.errors import InputError
from sao.export.whole import Whole

TOLERANCE = 1e-4  # of the largest value
ROUNDED = 1e-3  # share of pixels that may be rounded the other way
BATCHES = (1, 2, 5)  # lengths that are tried beside the whole


def check(whole: Whole, run: Callable[[np.ndarray], np.ndarray], inputs: np.ndarray) -> float:
    """The largest difference, as a share of the largest value; too large a one is an error."""
    expected = whole.expected(inputs)
    worst = 0.0
    for length in (*BATCHES, len(inputs)):
        worst = max(worst, _difference(expected[:length], run(inputs[:length])))
    if not worst <= TOLERANCE:  # NaN is no agreement
        raise InputError(
            f"the exported {whole.kind} differs from the run by {worst:.1e} of the largest value, more than {TOLERANCE:.0e}, "
            "so nothing was written: please report this with the run's config.yaml"
        )
    return worst


def _difference(expected: np.ndarray, found: np.ndarray) -> float:
    if found.shape != expected.shape:
        return float("inf")
    if expected.dtype == np.uint8:
        apart = np.abs(found.astype(int) - expected.astype(int))
        return 0.0 if apart.max() <= 1 and np.mean(apart > 0) <= ROUNDED else float(apart.max() / 255)
    return float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-30))
