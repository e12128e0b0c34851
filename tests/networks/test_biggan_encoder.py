"""BigGAN's discriminator, of encoder and score: its size, its normalisation, and where it is refused."""

import pytest
import torch
from torch import nn

from sao.config import build
from sao.errors import InputError
from sao.networks import BigGANEncoder, Discriminator, ScoreHead
from sao.networks.biggan import EncoderBlock


def discriminator(channels: int = 3, width: int = 256) -> Discriminator:
    return Discriminator(BigGANEncoder(channels, width), ScoreHead(width))


@pytest.mark.parametrize("size", [8, 16, 17, 32])
def test_features_are_sums_and_the_score_is_linear_in_them(size):
    network = discriminator(channels=1, width=12).eval()
    images = torch.randn(3, 1, size, size)
    features, scores = network(images)
    assert features.shape == (3, 12)
    assert scores.shape == (3, 1)
    assert float(features.detach().min()) >= 0
    torch.testing.assert_close(network.features(images), features)
    at_zero = network.head(torch.zeros_like(features))
    torch.testing.assert_close(network.head(3 * features) - at_zero, 3 * (scores - at_zero))


def test_the_pooled_shortcut_is_the_convolved_one_pooled():
    block = EncoderBlock(4, 4, pooled=True, first=False)
    x = torch.randn(2, 4, 8, 8)
    pool = nn.AvgPool2d(2)
    expected = pool(block.second(block.first(x.relu()).relu()) + block.shortcut(x))
    torch.testing.assert_close(block(x), expected)


@pytest.mark.parametrize("shape", [(2,), (3, 64, 64)])
def test_other_data_is_refused(shape):
    with pytest.raises(InputError, match="biggan"):
        build({"method": {"name": "biggan"}}).build_method(shape, 100, None)
