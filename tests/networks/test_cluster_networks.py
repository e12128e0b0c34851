"""The pair of the self-conditioned GAN: the authors' sizes, any image size, and no sample that sees another."""

import pytest
import torch
from torch.nn import functional as F

from sao.networks.self_conditioned import ClusterGenerator, ConvolutionalEncoder


def weights_of(network: torch.nn.Module) -> list[torch.Tensor]:
    """Of its convolutions."""
    state = network.state_dict()
    return [value for name, value in state.items() if name.startswith("convolutions") and name.endswith("weight")]


def test_the_defaults_are_the_authors_networks():
    encoder, generator = ConvolutionalEncoder(), ClusterGenerator(100)
    assert encoder.feature_size == 8192
    shapes = [(weight.shape[0], weight.shape[2]) for weight in weights_of(encoder)]
    assert shapes == [(64, 3), (64, 4), (128, 3), (128, 4), (256, 3), (256, 4), (512, 3)]
    assert [weight.shape[1] for weight in weights_of(generator)] == [256, 128, 64]


@pytest.mark.parametrize("size", [8, 16, 28, 30, 64, 128])
def test_any_size(size):
    encoder = ConvolutionalEncoder(size, channels=1, width=2)
    generator = ClusterGenerator(3, size, channels=1, width=2, latent_size=4, embedding_size=3)
    images = generator(torch.randn(2, 4), torch.tensor([0, 2]))
    assert images.shape == (2, 1, size, size)
    assert encoder(images).shape == (2, encoder.feature_size)
    assert max(len(weight) for weight in weights_of(encoder)) <= 16


def test_the_encoder_is_its_convolutions_with_leaky_rectifiers_between():
    encoder = ConvolutionalEncoder(8, channels=2, width=3).double()
    x = images = torch.randn(4, 2, 8, 8, dtype=torch.float64)
    state = encoder.state_dict()
    for index, stride in enumerate((1, 2, 1)):
        weight, bias = (state[f"convolutions.{index}.{name}"] for name in ("weight", "bias"))
        x = F.conv2d(x, weight, bias, stride=stride, padding=1)
        x = torch.where(x > 0, x, 0.1 * x)
    torch.testing.assert_close(encoder(images), x.reshape(4, -1))
    torch.testing.assert_close(encoder(images)[1:2], encoder(images[1:2]))


def test_the_generator_is_told_the_direction_of_a_cluster():
    generator = ClusterGenerator(4, 8, channels=1, width=2, latent_size=4, embedding_size=3).double()
    latents, clusters = torch.randn(5, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 1])
    first = generator(latents, clusters)
    with torch.no_grad():
        unit = generator.embedding.weight / generator.embedding.weight.square().sum(1, keepdim=True).sqrt()
        joined = torch.cat([latents, unit[clusters]], dim=1)
        x = (joined @ generator.first.weight.T + generator.first.bias).reshape(5, 4, 4, 4)
        (weight,), bias = weights_of(generator), generator.state_dict()["convolutions.0.bias"]
        x = F.conv_transpose2d(x, weight, bias, stride=2, padding=1)
        x = (x - x.mean((0, 2, 3), keepdim=True)) / (x.var((0, 2, 3), keepdim=True, correction=0) + 1e-5).sqrt()
        expected = torch.tanh(F.conv2d(x.clamp_min(0), generator.last.weight, generator.last.bias, padding=1))
        generator.embedding.weight *= 3  # its length says nothing
    torch.testing.assert_close(first, expected)
    torch.testing.assert_close(generator(latents, clusters), expected)
    assert not torch.allclose(generator(latents, clusters.roll(1)), expected)
