"""StyleGAN2's pair: the authors' sizes, and every layer against a literal version of what it is defined to do."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from sao.networks.stylegan2 import (
    BatchDeviation,
    EqualConvolution,
    EqualLinear,
    Filter,
    ModulatedConvolution,
    StyleDiscriminator,
    StyleGenerator,
    activated,
)

TAPS = np.outer([1, 3, 3, 1], [1, 3, 3, 1]) / 64


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def filtered(x: np.ndarray, before: int, after: int) -> np.ndarray:
    """One channel: zeros around it, then the sum of every 4x4 window under the taps."""
    padded = np.pad(x, ((before, after), (before, after)))
    rows, columns = (side - 3 for side in padded.shape)
    return np.array([[(padded[i : i + 4, j : j + 4] * TAPS).sum() for j in range(columns)] for i in range(rows)])


def spread_out(x: np.ndarray) -> np.ndarray:
    """Every pixel followed by zeros, to the right and below."""
    wide = np.zeros((2 * x.shape[0], 2 * x.shape[1]))
    wide[::2, ::2] = x
    return wide


def lrelu(x: Tensor) -> Tensor:
    return math.sqrt(2) * torch.where(x > 0, x, 0.2 * x)


# --- sizes -------------------------------------------------------------------------------------------------------------------


def test_the_defaults_are_the_authors_networks():
    generator, discriminator = StyleGenerator(), StyleDiscriminator()
    assert discriminator.feature_size == 512
    assert generator.noise_size == 16 + 2 * (64 + 256 + 1024)


@pytest.mark.parametrize("size", [8, 16, 28, 30, 64, 128])
def test_any_size(size):
    generator, discriminator = StyleGenerator(size, 1, 4, 5, 3), StyleDiscriminator(size, 1, 4, group=2)
    images = generator(torch.randn(2, 5), torch.randn(2, generator.noise_size))
    assert images.shape == (2, 1, size, size)
    features, scores = discriminator(images, 2)
    assert (features.shape, scores.shape) == ((2, 4), (2, 1))


def test_beyond_64_pixels_there_are_fewer_channels():
    shapes = {name: tuple(value.shape) for name, value in StyleGenerator(256, 1, 8, 4).state_dict().items()}
    outputs = [shapes[f"layers.{index}.convolution.weight"][0] for index in range(13)]
    assert outputs == [8] * 9 + [4, 4, 2, 2]


# --- filters -----------------------------------------------------------------------------------------------------------------


def test_filtering_is_a_sum_over_windows():
    x = normal(2, 3, 5, 6)
    found = Filter(gain=1).double()(x, padding=2)
    for sample in range(2):
        for channel in range(3):
            np.testing.assert_allclose(found[sample, channel], filtered(x[sample, channel].numpy(), 2, 2))


def test_an_image_is_doubled_by_zeros_between_its_pixels_and_a_filter():
    x = normal(2, 3, 5, 4)
    found = Filter(gain=4).double().doubled(x)
    assert found.shape == (2, 3, 10, 8)
    np.testing.assert_allclose(found[1, 2], 4 * filtered(spread_out(x[1, 2].numpy()), 2, 1))
    inside = F.interpolate(x, scale_factor=2, mode="bilinear")[..., 1:-1, 1:-1]
    torch.testing.assert_close(found[..., 1:-1, 1:-1], inside)


def test_a_convolution_that_halves_filters_first():
    layer = EqualConvolution(2, 3, 3, halve=True).double()
    torch.nn.init.normal_(layer.bias)
    x = normal(1, 2, 6, 8)
    soft = np.stack([filtered(channel.numpy(), 2, 2) for channel in x[0]])
    weight, bias = (layer.weight / math.sqrt(2 * 9)).detach().numpy(), layer.bias.detach().numpy()
    expected = np.zeros((3, 3, 4))
    for o in range(3):
        for i in range(3):
            for j in range(4):
                expected[o, i, j] = (soft[:, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3] * weight[o]).sum() + bias[o]
    torch.testing.assert_close(layer(x)[0], lrelu(torch.from_numpy(expected)))


# --- styles ------------------------------------------------------------------------------------------------------------------


def own_weights(layer: ModulatedConvolution, styles: Tensor, sample: int) -> Tensor:
    """The weights that one sample's style makes: scaled by it, and each output's then divided by their length."""
    style = styles[sample] @ layer.style.weight.T / math.sqrt(styles.shape[1]) + layer.style.bias
    weight = layer.weight / math.sqrt(layer.weight[0].numel()) * style[None, :, None, None]
    if layer.demodulate:
        weight = weight / (weight.square().sum((1, 2, 3), keepdim=True) + 1e-8).sqrt()
    return weight


@pytest.mark.parametrize(("kernel", "demodulate"), [(3, True), (1, True), (1, False)])
def test_every_sample_has_the_weights_that_its_style_makes(kernel, demodulate):
    layer = ModulatedConvolution(3, 4, kernel, style_size=5, demodulate=demodulate).double()
    x, styles = normal(2, 3, 6, 6), 3 * normal(2, 5, seed=1)
    for sample in range(2):
        expected = F.conv2d(x[sample : sample + 1], own_weights(layer, styles, sample), padding=kernel // 2)
        torch.testing.assert_close(layer(x, styles)[sample : sample + 1], expected)


def test_demodulated_weights_have_unit_length():
    """Of an impulse in each input the answers are the weights themselves."""
    layer = ModulatedConvolution(3, 4, 3, style_size=5).double()
    impulses = torch.zeros(3, 3, 5, 5, dtype=torch.float64)
    impulses[range(3), range(3), 2, 2] = 1
    for size in (1, 50):
        answers = layer(impulses, size * normal(1, 5).expand(3, -1))
        lengths = answers.square().sum((0, 2, 3))
        torch.testing.assert_close(lengths, torch.ones_like(lengths), atol=1e-5, rtol=0)


def test_a_convolution_that_doubles_spreads_first_and_filters_last():
    layer = ModulatedConvolution(2, 3, 3, style_size=5, double=True).double()
    x, styles = normal(2, 2, 4, 5), normal(2, 5, seed=1)
    found = layer(x, styles)
    assert found.shape == (2, 3, 8, 10)
    weight = own_weights(layer, styles, 1).detach().flip(2, 3)  # a convolution that spreads turns its kernel round
    wide = torch.from_numpy(np.stack([spread_out(channel.numpy()) for channel in x[1]]))[None]
    everywhere = F.conv2d(F.pad(wide, (2, 1, 2, 1)), weight)[0]
    for channel in range(3):
        np.testing.assert_allclose(found[1, channel].detach(), 4 * filtered(everywhere[channel].numpy(), 1, 1))


def test_weights_are_scaled_when_they_are_used():
    plain, slow = EqualLinear(400, 300, bias=1.0).double(), EqualLinear(400, 300, bias=1.0, rate=0.01).double()
    x = normal(7, 400)
    torch.testing.assert_close(plain(x), x @ plain.weight.T / 20 + 1)
    torch.testing.assert_close(slow(x), x @ slow.weight.T * 0.01 / 20 + 1)
    assert float(plain.weight.detach().std()) == pytest.approx(1, abs=0.02)
    assert float(slow.weight.detach().std()) == pytest.approx(100, abs=2)
    assert float(slow.bias.detach()[0]) == pytest.approx(100)


def test_the_activation_keeps_its_gain():
    x = torch.tensor([-1.0, 0.0, 2.0])
    torch.testing.assert_close(activated(x), torch.tensor([-0.2, 0.0, 2.0]) * 2**0.5)


# --- the generator -----------------------------------------------------------------------------------------------------------


def generator() -> StyleGenerator:
    network = StyleGenerator(16, 2, 4, 5, mapping_layers=2).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return network


def test_the_generator_is_its_layers_and_the_sum_of_their_images():
    network, latents = generator(), normal(3, 5)
    noise = normal(3, network.noise_size, seed=2)
    noises = [part.reshape(3, 1, side, side) for part, side in zip(noise.split([16, 64, 64, 256, 256], 1), (4, 8, 8, 16, 16))]  # noqa: B905
    w = latents / latents.square().mean(1, keepdim=True).sqrt()
    state = network.state_dict()
    for index in range(2):
        weight, bias = (state[f"mapping.{index}.linear.{name}"] for name in ("weight", "bias"))
        w = lrelu(w @ weight.T * 0.01 / math.sqrt(5) + 0.01 * bias)
    x, images = state["constant"].expand(3, -1, -1, -1), torch.zeros(3, 2, 2, 2, dtype=torch.float64)
    for index in range(5):
        layer = network.layers[index]
        x = layer.convolution(x, w) + layer.strength * noises[index] + layer.bias[:, None, None]  # pyright: ignore
        x = lrelu(x)
        if index % 2 == 0:
            made = network.to_images[index // 2]
            own = made.convolution(x, w) + made.bias[:, None, None]  # pyright: ignore
            images = own if index == 0 else Filter(gain=4).double().doubled(images) + own
    torch.testing.assert_close(network(latents, noise), images)


def test_without_noise_of_its_own_a_sample_has_always_the_same():
    network, latents = generator(), normal(3, 5)
    fixed = torch.cat([value.flatten() for name, value in network.state_dict().items() if name.endswith(".noise")])
    torch.testing.assert_close(network(latents), network(latents, fixed.expand(3, -1)))
    assert not torch.allclose(network(latents), network(latents, normal(3, network.noise_size)))
    torch.testing.assert_close(network(latents)[1:2], network(latents[1:2]))


def test_the_length_of_a_latent_says_nothing():
    network, latents = generator(), normal(3, 5)
    torch.testing.assert_close(network(latents), network(7 * latents), rtol=1e-5, atol=1e-5)


# --- the discriminator -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("batch", "group", "groups"), [(6, 3, 2), (6, 32, 1), (7, 3, 2), (4, 1, 4)])
def test_the_deviation_of_a_group_is_the_mean_of_its_deviations(batch, group, groups):
    x = normal(batch, 2, 3, 3)
    found = BatchDeviation(group)(x, batch)
    assert found.shape == (batch, 1, 3, 3)
    for sample in range(batch):
        mates = x[[other for other in range(batch) if other % groups == sample % groups]]
        expected = (mates.var(0, correction=0) + 1e-8).sqrt().mean()
        torch.testing.assert_close(found[sample], expected.expand(1, 3, 3))


def test_the_discriminator_is_its_layers():
    network = StyleDiscriminator(8, 2, 4, group=2).double()
    images = normal(4, 2, 8, 8)
    x = network.convolutions(network.first(images))
    torch.testing.assert_close(network.features(images), x.mean((2, 3)))
    both = torch.cat([x, BatchDeviation(2)(x, 4)], dim=1)
    mixed = lrelu(F.conv2d(both, network.mixed.weight / math.sqrt(5 * 9), network.mixed.bias, padding=1)).flatten(1)
    hidden = lrelu(mixed @ network.hidden.weight.T / math.sqrt(4 * 16) + network.hidden.bias)
    features, scores = network(images, 4)
    torch.testing.assert_close(scores, hidden @ network.score.weight.T / 2 + network.score.bias)
    torch.testing.assert_close(features, network.features(images))


def test_scores_see_the_batch_and_features_do_not():
    network, images = StyleDiscriminator(8, 1, 4, group=4).double(), normal(4, 1, 8, 8)
    torch.testing.assert_close(network.features(images)[:2], network.features(images[:2]))
    assert not torch.allclose(network(images, 4)[1][:2], network(images[:2], 2)[1])
