"""The UNet as an encoder: its size, which of its maps the features are, and dropout without a draw of its own."""

import pytest
import torch
from torch import Tensor, nn

from sao.core.jacobian import jacobian_audit
from sao.errors import InputError
from sao.methods.encoders import UNetOptions, usual_multipliers
from sao.networks.unet import DrawnDropout, UNet

TIMES = torch.tensor([3, 700])


def small(**options) -> UNet:
    return UNetOptions(**{"channels": 8, "blocks": 1, **options}).build((1, 16, 16))


def test_the_published_network_has_the_published_size():
    with torch.device("meta"):
        network = UNetOptions().build((3, 32, 32))
    assert network.feature_size == 256
    norms = [module for module in network.modules() if isinstance(module, nn.GroupNorm)]
    assert {norm.num_groups for norm in norms} == {32}
    maps: list[Tensor] = []
    network.network.up_blocks[1].resnets[2].register_forward_hook(lambda module, inputs, output: maps.append(output))
    network.predicted_noise(torch.zeros(1, 3, 32, 32, device="meta"), torch.zeros(1, dtype=torch.long, device="meta"))
    assert maps[0].shape == (1, 256, 8, 8)


@pytest.mark.parametrize(
    ("size", "levels"), [(8, 2), (10, 2), (12, 2), (16, 3), (20, 3), (28, 3), (32, 4), (64, 4), (128, 4), (256, 4)]
)
def test_any_size_has_usual_levels(size, levels):
    assert usual_multipliers(size) == (1, 2, 2, 2)[:levels]
    if size <= 64:
        network, images = UNetOptions(channels=4, blocks=1).build((1, size, size)), torch.zeros(2, 1, size, size)
        assert network.predicted_noise(images, TIMES).shape == images.shape
        assert network(images).shape == (2, network.feature_size)


@pytest.mark.parametrize("channels", [4, 6, 8, 18, 48])
def test_few_channels_have_few_groups(channels):
    images = torch.randn(2, 1, 16, 16)
    assert small(channels=channels).predicted_noise(images, TIMES).isfinite().all()


@pytest.mark.parametrize("attention", [(), (8,), (4, 8, 16)])
@pytest.mark.parametrize("blocks", [1, 2])
def test_features_are_a_map_of_the_whole_pass(attention, blocks):
    """That which leaves the last block of the second level upwards, before its attention and its enlargement."""
    network, images = small(attention=attention, blocks=blocks), torch.randn(2, 1, 16, 16)
    maps: list[Tensor] = []
    block = network.network.up_blocks[1].resnets[blocks]
    hook = block.register_forward_hook(lambda module, inputs, output: maps.append(output))
    network.predicted_noise(images, TIMES)
    hook.remove()
    assert maps[0].shape == (2, 16, 8, 8)
    torch.testing.assert_close(network.features_at(images, TIMES), maps[0].mean((2, 3)))
    torch.testing.assert_close(network(images), network.features_at(images, torch.tensor([0, 0])))


def test_nothing_drops_by_chance_of_its_own():
    network, images = small(dropout=0.5), torch.randn(2, 1, 16, 16)
    assert not [layer for layer in network.modules() if isinstance(layer, nn.Dropout) and layer.p > 0]
    assert len(network.dropouts) == 11  # one in each block: 3 downwards, 2 in the middle, 6 upwards
    assert network.training
    assert torch.equal(network.predicted_noise(images, TIMES), network.predicted_noise(images, TIMES))
    drawn: dict[str, tuple[int, ...]] = {}

    def draw(name: str, shape: tuple[int, ...]) -> Tensor:
        drawn[name] = shape
        return torch.ones(2, *shape)

    kept = network.predicted_noise(images, TIMES, draw)
    assert not torch.allclose(kept, network.predicted_noise(images, TIMES), atol=1e-4)  # activations are doubled
    assert len(drawn) == 11
    assert drawn["down_blocks.0.resnets.0.dropout"] == (8, 16, 16)
    assert not small(dropout=0.0).dropouts


def test_dropout_leaves_out_what_is_drawn_below_its_share():
    dropout = DrawnDropout("name", 0.25)
    inputs = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    assert torch.equal(dropout(inputs), inputs)
    dropout.draw = lambda name, shape: torch.tensor([[0.0, 0.2499, 0.25, 0.9]])
    torch.testing.assert_close(dropout(inputs), torch.tensor([[0.0, 0.0, 4.0, 16 / 3]]))


def test_the_audit_of_its_jacobian():
    """Torch's GroupNorm refuses forward mode after an attention, whose maps lie differently in memory; there is a way round."""
    network = UNetOptions(channels=4, blocks=1).build((1, 8, 8)).double().eval()
    audit = jacobian_audit(network, torch.randn(2, 1, 8, 8, dtype=torch.float64), steps=(24,))
    assert audit.exact is not None
    torch.testing.assert_close(audit.estimates[0], audit.exact, rtol=2e-2, atol=0)


def test_what_cannot_be_built_is_refused():
    with pytest.raises(InputError, match="images of 9x9 cannot be halved 1 times"):
        UNetOptions().build((1, 9, 9))
    with pytest.raises(InputError, match="encoder unet is for images"):
        UNetOptions().build((7,))
