"""Spectral normalisation against torch's own, from the same vectors."""

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from sao.networks.spectral import matrix, normalise_spectrally

LAYERS: list[Any] = [nn.Linear(5, 7), nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)]  # pyright: ignore[reportCallIssue]


def pair(layer: Any) -> tuple[Any, Any]:
    """The layer normalised here and by torch, which then gets our vectors; theirs has the kernel's positions last."""
    ours, theirs = copy.deepcopy(layer).double(), copy.deepcopy(layer).double()
    normalise_spectrally(ours)
    spectral_norm(theirs)
    own, other = ours.parametrizations.weight[0], theirs.parametrizations.weight[0]
    other._u.copy_(own._u)
    other._v.copy_(in_their_order(own._v, layer.weight.shape))
    return ours, theirs


def in_their_order(v: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    if len(shape) == 2:
        return v
    _, inputs, height, width = shape
    return v.view(height, width, inputs).permute(2, 0, 1).flatten()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layer", LAYERS, ids=["linear", "convolution", "channels_last"])
def test_weights_vectors_and_gradients_are_those_of_torch(layer, training):
    ours, theirs = (normalised.train(training) for normalised in pair(layer))
    for _ in range(3):  # the vectors move on with each training pass, and so must ours
        weight, other = ours.weight, theirs.weight
        torch.testing.assert_close(weight, other)
    gradient = torch.randn_like(weight)
    weight.backward(gradient)
    other.backward(gradient)
    torch.testing.assert_close(ours.parametrizations.weight.original.grad, theirs.parametrizations.weight.original.grad)
    v = in_their_order(ours.parametrizations.weight[0]._v, weight.shape)
    torch.testing.assert_close(v, theirs.parametrizations.weight[0]._v)


def test_two_passes_of_one_step_keep_their_own_graphs():
    ours, theirs = pair(LAYERS[0])
    x = torch.randn(3, 5, dtype=torch.float64)
    for normalised in (ours, theirs):
        first, second = normalised(x), normalised(2 * x)
        (first.square().sum() + second.sum()).backward()
    torch.testing.assert_close(ours.parametrizations.weight.original.grad, theirs.parametrizations.weight.original.grad)


def test_a_fresh_layer_has_spectral_norm_one():
    torch.manual_seed(0)
    layer = nn.Conv2d(8, 16, 3)
    normalise_spectrally(layer)
    assert torch.linalg.matrix_norm(matrix(layer.weight.detach()), ord=2).item() == pytest.approx(1, abs=0.05)
