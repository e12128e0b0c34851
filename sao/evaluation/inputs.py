"""What the evaluator accepts: arrays or tensors, checked once at the door, with errors that name the argument."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from sao.errors import InputError


def feature_matrix(name: str, values: Any) -> Tensor:
    """Finite floating (n, d); float64 stays, everything else becomes float32."""
    tensor = torch.as_tensor(values).detach()
    if tensor.ndim != 2:
        raise InputError(
            f"{name} must have shape (samples, dimensions), got {tuple(tensor.shape)}: flatten each sample to one row"
        )
    if 0 in tensor.shape:
        raise InputError(f"{name} is empty, shape {tuple(tensor.shape)}: give at least one sample and one dimension")
    tensor = tensor if tensor.dtype == torch.float64 else tensor.to(torch.float32)
    bad = ~torch.isfinite(tensor).all(dim=1)
    if bad.any():
        raise InputError(
            f"{name} has NaN or infinity in {int(bad.sum())} of {len(tensor)} rows (first: row {int(bad.nonzero()[0])}): "
            "remove those rows or look for a diverged network"
        )
    return tensor


def same_width(name: str, features: Tensor, other_name: str, other: Tensor) -> None:
    if features.shape[1] != other.shape[1]:
        raise InputError(
            f"{name} has {features.shape[1]} dimensions but {other_name} has {other.shape[1]}: "
            "take both from the same network and layer"
        )


def label_codes(name: str, labels: Any, n: int) -> tuple[Tensor, np.ndarray]:
    """Labels of any kind → codes 0..c-1 (n,) and the c sorted classes; at least two classes."""
    array = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.ndim != 1:
        raise InputError(f"{name} must be one label for each sample, got shape {array.shape}: flatten it to ({n},)")
    if len(array) != n:
        raise InputError(f"{name} has {len(array)} labels for {n} samples: give one label for each sample")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(f"{name} has NaN or infinity: drop the unlabelled samples first")
    classes, codes = np.unique(array, return_inverse=True)
    if len(classes) < 2:
        raise InputError(f"{name} has only one class ({classes[0]}): at least two are needed to measure anything")
    return torch.from_numpy(codes.astype(np.int64)), classes


def train_and_test(train_x: Any, train_y: Any, test_x: Any, test_y: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
    """Both splits checked against each other: (train_x, train codes, test_x, test codes, number of classes)."""
    train_x, test_x = feature_matrix("train_x", train_x), feature_matrix("test_x", test_x)
    same_width("train_x", train_x, "test_x", test_x)
    train_codes, classes = label_codes("train_y", train_y, len(train_x))
    test_labels = test_y.detach().cpu().numpy() if isinstance(test_y, Tensor) else np.asarray(test_y)
    if test_labels.shape != (len(test_x),):
        raise InputError(f"test_y has shape {test_labels.shape} for {len(test_x)} samples: give one label for each sample")
    unknown = np.setdiff1d(test_labels, classes)
    if len(unknown):
        raise InputError(
            f"test_y has labels that train_y lacks ({', '.join(map(str, unknown[:5]))}): use the same classes in both"
        )
    test_codes = torch.from_numpy(np.searchsorted(classes, test_labels).astype(np.int64))
    return train_x, train_codes.to(train_x.device), test_x.to(train_x), test_codes.to(train_x.device), len(classes)


def standardiser(train: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and scale of the training features; a constant feature is only centred, never divided by rounding noise."""
    mean = train.mean(dim=0, dtype=torch.float64)
    scale = ((train - mean.to(train)).square().mean(dim=0, dtype=torch.float64)).sqrt()
    constant = scale <= 1e-6 * mean.abs().clamp_min(1e-30)
    return mean.to(train), scale.masked_fill(constant, 1.0).to(train)


def unit_rows(features: Tensor) -> Tensor:
    """Rows scaled to length one; a row of zeros stays zero (its cosine with everything is 0)."""
    return torch.nn.functional.normalize(features, dim=1, eps=1e-30)
