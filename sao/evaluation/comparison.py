"""Two accuracies of the same samples, compared sample by sample: McNemar's test, and an interval for the difference.

What one sample gets right both representations often get right: their difference is known far better than either accuracy.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sao.core import agreement
from sao.errors import InputError
from sao.evaluation.result import Metric

LEVEL = 0.05


@dataclass(frozen=True)
class Comparison:
    """A metric of ours beside the best of its references; p and interval are corrected for the number of comparisons."""

    metric: str
    reference: str
    ours: float
    theirs: float
    low: float
    high: float
    p: float
    samples: int
    resolution: float  # how far apart the two must be to be told apart, for want of samples

    @property
    def difference(self) -> float:
        return self.ours - self.theirs

    @property
    def decided(self) -> bool:
        return self.p < LEVEL

    def __str__(self) -> str:
        p = f"p = {self.p:.2g}" if self.p >= 0.001 else "p < 0.001"
        interval = f"{self.difference:+.3f}, {self.low:+.3f} to {self.high:+.3f}, {p}"
        return f"{self.ours:.3f} against {self.theirs:.3f} of {self.reference} ({interval})"


def compare(ours: Metric, references: Mapping[str, Metric], comparisons: int = 1) -> Comparison:
    """Ours against all references: it is better if it beats each of them, worse if any of them beats it.

    So a gain has the largest p of all references, and needs no correction for their number; a loss has the smallest, corrected.
    `comparisons` is the number of metrics that are looked at, for which p and interval are corrected (Bonferroni).
    """
    unmeasured = [one.name for one in (ours, *references.values()) if one.right is None or not math.isfinite(one.value)]
    if ours.right is None or unmeasured:
        raise InputError(f"{', '.join(unmeasured)} was not measured, so there is nothing to compare")
    found = {name: paired(ours.right, other.right) for name, other in references.items() if other.right is not None}
    best = agreement.best({name: references[name].value for name in found})
    if ours.value >= references[best].value:
        p = max(one.p for one in found.values())
    else:
        p = len(found) * min(one.p for name, one in found.items() if references[name].value > ours.value)
    nearest, width = found[best], _quantile(1 - LEVEL / comparisons / 2)
    return Comparison(
        ours.name,
        best,
        ours.value,
        references[best].value,
        low=nearest.centre - width * nearest.error,
        high=nearest.centre + width * nearest.error,
        p=min(1.0, comparisons * p),
        samples=ours.right.shape[-1],
        resolution=width * nearest.sampling_error,
    )


@dataclass(frozen=True)
class Paired:
    """Centre and standard error of a difference, and the p of there being none (two-sided)."""

    centre: float
    error: float
    sampling_error: float  # the part of it that more samples would lessen
    p: float


def paired(ours: np.ndarray, theirs: np.ndarray) -> Paired:
    """Of which samples are right: (n,) for each, or (restarts, n) where something was drawn."""
    if ours.ndim == theirs.ndim == 1:
        return _mcnemar(ours, theirs)
    return _with_restarts(np.atleast_2d(ours), np.atleast_2d(theirs))


def _mcnemar(ours: np.ndarray, theirs: np.ndarray) -> Paired:
    """McNemar's test (mid-p: what was found counts half), and Agresti and Min's interval: half a sample more on each side.

    Both hold for small counts, and they agree with each other; the exact test would be wrong far less often than it says.
    """
    from scipy.stats import binom

    gained, lost, n = int((ours & ~theirs).sum()), int((~ours & theirs).sum()), len(ours) + 2
    fewer = min(gained, lost), gained + lost, 0.5
    p = float(2 * binom.cdf(*fewer) - binom.pmf(*fewer))
    variance = gained + lost + 1 - (gained - lost) ** 2 / n
    error = math.sqrt(variance) / n
    return Paired((gained - lost) / n, error, error, p)


def _with_restarts(ours: np.ndarray, theirs: np.ndarray) -> Paired:
    """Each sample's share of restarts in which it is right; the finite number of restarts adds to the error."""
    difference = ours.mean(axis=0) - theirs.mean(axis=0)
    if len(difference) < 2:  # of one sample nobody knows how it varies, and a NaN for its error would pass for none
        return Paired(float(difference.mean()), math.inf, math.inf, 1.0)
    sampling = difference.var(ddof=1) / len(difference)
    restarts = sum(runs.mean(axis=1).var(ddof=1) / len(runs) for runs in (ours, theirs) if len(runs) > 1)
    centre, error = float(difference.mean()), math.sqrt(sampling + restarts)
    p = math.erfc(abs(centre) / error / math.sqrt(2)) if error > 0 else float(centre == 0)
    return Paired(centre, error, math.sqrt(sampling), p)


def over_seeds(ours: Sequence[float], theirs: Sequence[float], comparisons: int = 1) -> Comparison:
    """Values of runs with the same seeds, at least two: Student's t of their differences, whose interval says how far seeds go.

    Where all differences are the same nobody knows how they vary, and p is 1.
    """
    from scipy.stats import t

    apart = np.asarray(ours) - np.asarray(theirs)
    n, mean = len(apart), float(apart.mean())
    error = float(apart.std(ddof=1)) / math.sqrt(n)
    exact = np.ptp(apart) == 0
    p = 1.0 if exact else float(2 * t.sf(abs(mean) / error, n - 1))
    width = 0.0 if exact else float(t.ppf(1 - LEVEL / comparisons / 2, n - 1)) * error
    p = min(1.0, comparisons * p)
    return Comparison("", "", float(np.mean(ours)), float(np.mean(theirs)), mean - width, mean + width, p, n, width)


def _quantile(share: float) -> float:
    from scipy.stats import norm

    return float(norm.ppf(share))
