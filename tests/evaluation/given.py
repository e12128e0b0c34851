"""What tests of the evaluator are given, and how it refuses what it cannot measure."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from sao.errors import InputError

Splits = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def refused(message: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    with pytest.raises(InputError, match=message):
        call(*arguments, **options)


def standardised(splits: Splits) -> Splits:
    """By the training rows."""
    train_x, train_y, test_x, test_y = splits
    scaler = StandardScaler().fit(train_x)
    return np.asarray(scaler.transform(train_x)), train_y, np.asarray(scaler.transform(test_x)), test_y
