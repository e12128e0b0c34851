"""Spectral normalisation against torch's own, from the same vectors."""

import copy
from typing import Any

import pytest
import torch
from examples import NETWORKS
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
    layer = nn.Conv2d(8, 16, 3)
    normalise_spectrally(layer)
    assert torch.linalg.matrix_norm(matrix(layer.weight.detach()), ord=2).item() == pytest.approx(1, abs=0.05)


def norms_of_layers(network: nn.Module, *inputs: torch.Tensor) -> list[float]:
    """The norms of all weights, each of which a pass in training brings nearer to the one that it is held at."""
    for _ in range(200):
        network.train()(*inputs)
    layers = [module for module in network.eval().modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    return [float(torch.linalg.matrix_norm(layer.weight.detach().flatten(1), ord=2)) for layer in layers]


# Layers: of the generators the condition, the first and the last, and those of blocks and of the gains and biases of norms.
@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("resnet, spectral", 1 + 3 * 2 + 2 + 2),
        ("biggan", 11),
        ("vectors, spectral", 1 + 2 * 2 + 2),
        ("generator", 3 + 2 * (4 + 4 * 2)),
        ("generator of vectors", 2 + 2 * 3),
    ],
)
def test_every_weight_is_held_at_norm_one(name, layers):
    norms = norms_of_layers(NETWORKS[name].network(), NETWORKS[name].batch())
    assert len(norms) == layers
    assert norms == pytest.approx([1] * layers, rel=0.01)


def test_without_it_weights_have_other_norms():
    assert norms_of_layers(NETWORKS["resnet"].network(), NETWORKS["resnet"].batch())[0] != pytest.approx(1, abs=0.05)
