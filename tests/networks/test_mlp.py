import pytest
import torch
from torch import nn

from sao.networks import VectorEncoder, VectorGenerator
from sao.networks.spectral import normalise_spectrally


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


@pytest.mark.parametrize("spectral", [False, True])
def test_vectors_never_interact_in_the_encoder(spectral):
    network = VectorEncoder(3, 32, 2)
    if spectral:
        normalise_spectrally(network)
    network.double().eval()
    vectors = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    features = network(vectors)
    (gradient,) = torch.autograd.grad(features[1].square().sum(), vectors)
    assert gradient[1].abs().sum() > 0
    assert (gradient[[0, 2]] == 0).all()
    torch.testing.assert_close(network(vectors[1:2]), features[1:2])


def test_the_length_of_a_vector_is_not_forgotten():
    network = VectorEncoder(2, 32, 2)
    point = torch.tensor([[1.0, 2.0]])
    assert (network(point) - network(5 * point)).abs().max() > 1e-3


def test_normalisation_is_that_of_the_image_networks():
    """Groups of 16 channels in D; in G batch statistics conditioned on the latent, and spectral normalisation."""
    norms = [m for m in VectorEncoder(2, 64, 3).modules() if isinstance(m, nn.GroupNorm)]
    assert len(norms) == 3
    assert all(norm.num_channels // norm.num_groups == 16 for norm in norms)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        networks = [VectorGenerator(2, 16, 2, 5), VectorEncoder(5, 16, 2)]
        normalise_spectrally(networks[1])
        for _ in range(80):
            for network in networks:
                network(torch.randn(3, 5))
    for network, count in zip(networks, [2 + 2 * 3, 1 + 2 * 2], strict=True):
        layers = [m for m in network.eval().modules() if isinstance(m, nn.Linear)]
        assert len(layers) == count
        for layer in layers:
            assert torch.linalg.matrix_norm(layer.weight, ord=2).item() == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize("vectors", [torch.zeros(0, 3), torch.zeros(3), torch.zeros(2, 4)])
def test_wrong_vectors_are_named(vectors):
    with pytest.raises(ValueError, match=r"^vectors "):
        VectorEncoder(3, 16, 1)(vectors)


@pytest.mark.parametrize("latents", [torch.zeros(0, 5), torch.zeros(5), torch.zeros(2, 4), torch.zeros(1, 5)])
def test_wrong_latents_are_named(latents):
    """One latent alone has no batch statistics to train with."""
    with pytest.raises(ValueError, match=r"^latents "):
        VectorGenerator(3, 16, 1, 5)(latents)


def test_one_latent_is_enough_to_sample():
    assert VectorGenerator(3, 16, 1, 5).eval()(torch.zeros(1, 5)).shape == (1, 3)


@pytest.mark.parametrize("network", [VectorEncoder, VectorGenerator])
@pytest.mark.parametrize("name", ["width", "depth"])
def test_wrong_options_are_named(network, name):
    with pytest.raises(ValueError, match=f"^{name} "):
        network(2, **{name: 0})
