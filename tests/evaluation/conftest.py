"""Real data for the evaluator: the 8x8 digits inside scikit-learn, split once."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from sao.evaluation import Features
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


@pytest.fixture
def splits(digits) -> tuple[Features, Features]:
    train_x, train_y, test_x, test_y = digits
    facts = {"feature": "backbone", "weights": "ema"}
    return Features(train_x, train_y, {**facts, "split": "train"}), Features(test_x, test_y, {**facts, "split": "test"})


@pytest.fixture
def random_inception(tmp_path, monkeypatch) -> tuple[torch.nn.Module, Path]:
    """torch-fidelity's network and a file of its weights: the published ones cannot be fetched here."""
    from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

    with monkeypatch.context() as patch:
        patch.setattr(FeatureExtractorInceptionV3, "load_state_dict", lambda self, state: None)
        torch.save({}, tmp_path / "blank.pth")
        network = FeatureExtractorInceptionV3("inception", ["2048", "logits_unbiased"], str(tmp_path / "blank.pth"))
    torch.save(network.state_dict(), tmp_path / "random.pth")
    return network, tmp_path / "random.pth"


@pytest.fixture(autouse=True)
def one_thread():
    """The arrays here are small: threads would only wait for each other, and for whatever else the machine runs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
