import pytest
import torch
from torch import nn

from sao.networks import VectorEncoder, VectorGenerator


@pytest.mark.parametrize(("inputs", "width", "depth"), [(2, 16, 1), (64, 50, 3), (1, 8, 2)])
def test_shapes_of_the_pair(inputs, width, depth):
    encoder = VectorEncoder(inputs, width, depth)
    generator = VectorGenerator(inputs, width, depth, 5)
    vectors = generator(torch.randn(4, 5, generator=torch.Generator().manual_seed(0)))
    assert vectors.shape == (4, inputs)
    features = encoder(vectors)
    assert features.shape == (4, encoder.feature_size) == (4, width)
    features.square().sum().backward()
    for network in (encoder, generator):
        assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


def test_the_length_of_a_vector_is_not_forgotten():
    network = VectorEncoder(2, 32, 2)
    point = torch.tensor([[1.0, 2.0]])
    assert (network(point) - network(5 * point)).abs().max() > 1e-3


def test_normalisation_is_that_of_the_image_networks():
    """Groups of 16 channels."""
    norms = [m for m in VectorEncoder(2, 64, 3).modules() if isinstance(m, nn.GroupNorm)]
    assert len(norms) == 3
    assert all(norm.num_channels // norm.num_groups == 16 for norm in norms)


def test_one_latent_is_enough_to_sample():
    assert VectorGenerator(3, 16, 1, 5).eval()(torch.zeros(1, 5)).shape == (1, 3)
