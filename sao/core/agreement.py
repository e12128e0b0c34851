"""What decides about numbers: whether two arrays agree, whether all of an array is finite, which of several values is best.

NaN agrees with nothing, is not finite and is never best. Python's `max` and torch's `argmax` do otherwise, without a word.
"""

import math
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from sao.errors import InputError

Key = TypeVar("Key")
TINY = 1e-30


def difference(expected: Any, found: Any, least: float = TINY) -> float:
    """The largest difference as a share of the largest expected value, or of `least`; infinite for NaN and for other shapes."""
    expected, found = (torch.as_tensor(values).detach().cpu().double() for values in (expected, found))
    if expected.shape != found.shape:
        return math.inf
    apart = torch.where(expected == found, 0.0, (expected - found).abs())  # inf − inf would be NaN
    if not bool(apart.isfinite().all()):
        return math.inf
    largest = torch.where(expected.isfinite(), expected, 0.0).abs()
    return _greatest(apart) / max(_greatest(largest), least)


def _greatest(values: Tensor) -> float:
    return float(values.max()) if values.numel() else 0.0


def check_finite(what: str, values: Any, advice: str) -> None:
    """Refuse rows (n, …) with a NaN or an infinity; say how many they are and what to do."""
    rows = torch.as_tensor(values).detach()
    broken = rows.isfinite().flatten(1).all(dim=1).logical_not()
    if bool(broken.any()):
        raise InputError(f"{what} of {int(broken.sum())} of {len(broken)} samples hold NaN or infinity: {advice}")


def best(values: Mapping[Key, float]) -> Key:
    """The key of the greatest value, of equal ones the first; where every value is NaN, there is none to choose."""
    known = {key: value for key, value in values.items() if not math.isnan(value)}
    if not known:
        raise InputError("there is nothing to choose from: every value is NaN, so look for a diverged network")
    return max(known, key=known.__getitem__)
