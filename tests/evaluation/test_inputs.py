"""What the evaluator accepts, as it goes on with it."""

import numpy as np
import pytest
import torch

from sao.evaluation.inputs import feature_matrix, principal


@pytest.mark.parametrize("kind", [np.uint8, np.int64, np.float16, np.float32])
def test_features_become_single_precision(kind):
    assert feature_matrix("x", np.ones((2, 3), kind)).dtype == torch.float32


def test_double_precision_is_kept():
    values = np.array([[1.0, 1 + 1e-12]])
    found = feature_matrix("x", values)
    assert found.dtype == torch.float64
    assert np.array_equal(found, values)


@pytest.mark.parametrize("shape", [(40, 12), (12, 40)])
def test_principal_coordinates_and_their_directions_give_the_rows(shape):
    x = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x[1] = x[0]  # fewer dimensions than rows: what is rounding is no direction
    coordinates, directions = principal(x)
    torch.testing.assert_close(coordinates @ directions.mT, x)
    torch.testing.assert_close(directions.mT @ directions, torch.eye(directions.shape[1], dtype=torch.float64))
    products = coordinates.mT @ coordinates
    torch.testing.assert_close(products, products.diagonal().diag(), atol=1e-9, rtol=0)  # uncorrelated
    assert directions.shape[1] == min(shape) - (shape[0] < shape[1])
