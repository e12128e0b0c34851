"""Real data for the evaluator: the 8x8 digits inside scikit-learn, split once."""

import importlib
import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits


def import_torchvision() -> None:
    """torch-fidelity, an oracle here, needs torchvision but none of its compiled operators.

    A torchvision built for another kind of torch (CUDA beside CPU) fails only for want of their declarations.
    """
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import_torchvision.kept = library  # pyright: ignore[reportFunctionMemberAccess]  # it undeclares when collected
        importlib.import_module("torchvision")


import_torchvision()


@pytest.fixture(scope="session")
def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(train_x, train_y, test_x, test_y), float32."""
    x, y = load_digits(return_X_y=True)
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
