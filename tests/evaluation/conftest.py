"""Real data for the evaluator: the 8x8 digits inside scikit-learn, split once."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from sao.runtime.torchvision_import import import_torchvision

import_torchvision()  # torch-fidelity, an oracle here, needs it


@pytest.fixture(scope="session")
def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(train_x, train_y, test_x, test_y), float32."""
    x, y = map(np.asarray, load_digits(return_X_y=True))
    x = x.astype(np.float32)
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[500:], order[:500]
    return x[train], y[train], x[test], y[test]


@pytest.fixture(autouse=True)
def one_thread():
    """The arrays here are small: threads would only wait for each other, and for whatever else the machine runs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
