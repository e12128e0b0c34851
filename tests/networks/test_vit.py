"""The vision transformer: its size, its patches and places, and that it has the derivatives that smoothness needs."""

import math

import pytest
import torch
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

from sao.core.jacobian import jacobian_audit
from sao.errors import InputError
from sao.methods.encoders import ViTOptions, usual_patch
from sao.networks.vit import VisionTransformer, positions, take


def small(size: int = 8, channels: int = 1, patch: int = 2) -> VisionTransformer:
    return ViTOptions(patch=patch, width=8, depth=2, heads=2).build((channels, size, size))


@pytest.mark.parametrize(
    ("size", "patch"), [(8, 2), (14, 2), (16, 2), (28, 4), (32, 4), (36, 4), (56, 8), (64, 8), (96, 8), (128, 8), (256, 8)]
)
def test_any_size_has_a_usual_patch(size, patch):
    assert usual_patch(size) == patch
    network = ViTOptions(width=8, depth=1, heads=2).build((1, size, size))
    assert network(torch.zeros(2, 1, size, size)).shape == (2, 8)


def test_patches_are_squares_of_the_image_in_reading_order():
    images = torch.randn(2, 3, 8, 8)
    patches = small(channels=3).patches(images)
    assert patches.shape == (2, 16, 12)
    for place in range(16):
        line, column = 2 * (place // 4), 2 * (place % 4)
        square = images[1, :, line : line + 2, column : column + 2]
        assert torch.equal(patches[1, place].reshape(2, 2, 3), square.permute(1, 2, 0))


def test_positions_are_waves_of_column_and_line():
    table = positions(3, 8)
    assert table.shape == (10, 8)
    assert not table[0].any()
    line, column = 2, 1
    angles = [column, column / 100, line, line / 100]
    waves = [math.sin(angles[0]), math.sin(angles[1]), math.cos(angles[0]), math.cos(angles[1])]
    waves += [math.sin(angles[2]), math.sin(angles[3]), math.cos(angles[2]), math.cos(angles[3])]
    torch.testing.assert_close(table[1 + 3 * line + column], torch.tensor(waves))


def test_positions_are_neither_learnt_nor_forgotten():
    network = small()
    assert "positions" in network.state_dict()
    assert "positions" not in dict(network.named_parameters())


def test_tokens_of_some_patches_depend_on_those_alone_in_whatever_order():
    network, images = small(), torch.randn(2, 1, 8, 8)
    kept = torch.tensor([[3, 9, 12], [0, 1, 15]])
    tokens = network.tokens(network.patches(images), kept)
    assert tokens.shape == (2, 4, 8)
    turned = network.tokens(network.patches(images), kept.flip(1))
    torch.testing.assert_close(turned[:, 0], tokens[:, 0])
    torch.testing.assert_close(turned[:, 1:].flip(1), tokens[:, 1:])
    patches = network.patches(images)
    hidden = torch.ones(2, 16, 1).scatter(1, kept[:, :, None], 0).bool()
    torch.testing.assert_close(network.tokens(torch.where(hidden, 7.0, patches), kept), tokens)
    elsewhere = network.tokens(patches, torch.tensor([[3, 9, 13], [0, 1, 14]]))
    assert not torch.allclose(elsewhere[:, 0], tokens[:, 0], atol=1e-4)


def test_all_patches_kept_are_the_whole_image():
    network, images = small(), torch.randn(2, 1, 8, 8)
    everything = torch.arange(16).expand(2, -1)
    torch.testing.assert_close(network.tokens(network.patches(images), everything)[:, 0], network(images))


def test_take():
    rows = torch.arange(12.0).reshape(2, 3, 2)
    assert take(rows, torch.tensor([[2], [0]])).tolist() == [[[4, 5]], [[6, 7]]]


def test_forward_mode_and_the_audit_of_its_jacobian():
    network, images = small().double(), torch.randn(4, 1, 8, 8, dtype=torch.float64)
    direction = torch.randn_like(images)
    with forward_ad.dual_level(), sdpa_kernel(SDPBackend.MATH):  # what sao.core.jacobian does
        _, tangents = forward_ad.unpack_dual(network(forward_ad.make_dual(images, direction)))
    step = 1e-6 * direction
    torch.testing.assert_close(tangents, (network(images + step) - network(images - step)) / 2e-6, rtol=1e-5, atol=1e-7)
    audit = jacobian_audit(network, images, steps=(24,))
    assert audit.exact is not None
    torch.testing.assert_close(audit.estimates[0], audit.exact, rtol=2e-2, atol=0)


def test_what_cannot_be_built_is_refused():
    with pytest.raises(InputError, match="patches of 2x2 do not divide images of 9x9"):
        ViTOptions().build((1, 9, 9))
    with pytest.raises(InputError, match="encoder vit is for images"):
        ViTOptions().build((7,))
    with pytest.raises(ValueError, match="patches of 3x3 do not divide"):
        VisionTransformer(1, 8, 3, 8, 1, 2, lambda width, heads: torch.nn.Identity())
    with pytest.raises(ValueError, match="multiple of 4"):
        positions(2, 6)
