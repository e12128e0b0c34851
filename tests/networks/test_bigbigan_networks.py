"""BigBiGAN's networks: any size, three scores that see what they should, latents with a deviation."""

import pytest
import torch
from test_spectral import norms_of_layers
from torch import Tensor
from torch.nn import functional as F

from sao.networks import ResNet
from sao.networks.bigbigan import ImageTower, JointDiscriminator, LatentEncoder, ResidualPerceptron
from sao.networks.biggan import SelfAttention


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    ("size", "widths", "attends"),
    [
        (8, [2, 4], False),
        (16, [2, 4, 8], False),
        (30, [2, 4, 8], False),
        (32, [2, 4, 8, 16], False),
        (64, [2, 4, 8, 16, 32], False),
        (128, [2, 4, 8, 16, 32, 32], True),
    ],
)
def test_the_tower_is_biggans_at_any_size(size, widths, attends):
    tower = ImageTower(size, channels=1, width=2)
    state = tower.state_dict()
    assert [len(value) for name, value in state.items() if name.endswith("second.weight")] == widths
    assert any(isinstance(module, SelfAttention) for module in tower.modules()) == attends
    assert tower(torch.randn(2, 1, size, size)).shape == (2, tower.feature_size)
    assert tower.feature_size == widths[-1]
    assert size // tower.reduction in range(4, 8)


def test_the_tower_sums_over_all_positions():
    tower = ImageTower(8, channels=1, width=2).double()
    images = normal(3, 1, 8, 8)
    torch.testing.assert_close(tower(images), tower.blocks(images).clamp_min(0).flatten(2).sum(2))


def test_a_residual_perceptron_adds_what_each_layer_makes():
    network = ResidualPerceptron(3, 4, depth=3).double()
    x = normal(5, 3)
    y = x @ network.first.weight.T + network.first.bias
    state = network.state_dict()
    for index in range(2):
        y = y + F.linear(y.clamp_min(0), state[f"layers.{index}.weight"], state[f"layers.{index}.bias"])
    torch.testing.assert_close(network(x), y)


def discriminator() -> JointDiscriminator:
    return JointDiscriminator(ImageTower(8, channels=1, width=2), 3, width=5, depth=2).double().eval()


def test_the_three_scores_see_images_latents_and_both():
    network, images, latents = discriminator(), normal(4, 1, 8, 8), normal(4, 3, seed=1)
    scores = network(images, latents)
    assert scores.shape == (4, 3)
    other_images, other_latents = network(images.flip(0), latents), network(images, latents.flip(0))
    torch.testing.assert_close(other_images[:, 1], scores[:, 1])
    torch.testing.assert_close(other_latents[:, 0], scores[:, 0])
    for column, others in ((0, other_images), (1, other_latents), (2, other_images), (2, other_latents)):
        assert not torch.allclose(others[:, column], scores[:, column])
    f, h = network.tower(images), network.of_latents(latents)
    torch.testing.assert_close(scores[:, 2:], network.scores[2](network.of_pairs(torch.cat([f, h], 1))))


def test_every_layer_of_the_discriminator_is_normalised_spectrally():
    norms = norms_of_layers(discriminator(), normal(2, 1, 8, 8), normal(2, 3))
    assert len(norms) > 8
    assert norms == pytest.approx([1] * len(norms), abs=1e-2)


def test_the_encoder_gives_means_and_positive_deviations():
    backbone = ResNet(1, (4, 8), (1, 1), (False, True))
    network = LatentEncoder(backbone, 3, width=6, depth=2).double()
    images = normal(4, 1, 8, 8)
    mean, deviation = network(images)
    torch.testing.assert_close(network.features(images), backbone(images))
    raw = F.linear(network.hidden(backbone(images)).clamp_min(0), network.output.weight, network.output.bias)
    torch.testing.assert_close(mean, raw[:, :3])
    torch.testing.assert_close(deviation, torch.log(1 + raw[:, 3:].exp()))
