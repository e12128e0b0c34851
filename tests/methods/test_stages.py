"""Features with the maps of the stages: which maps they are, and that taking them leaves nothing behind."""

import pytest
import tiny
import torch

from sao.errors import InputError
from sao.methods.base import cells, with_stages
from sao.networks import ResNet


def test_the_last_map_of_each_stage_is_pooled_beside_the_features():
    """To 4x4 where it has at least 8x8 pixels, else to 2x2."""
    network = ResNet(3, widths=(4, 8), blocks=(2, 1), downsample=(False, True))
    inputs = torch.randn(5, 3, 8, 8)
    found = with_stages(network, network, inputs)
    first = network.stages[:2](network.activation(network.stem(network.arranged(inputs))))
    second = network.stages[2](first)
    assert (first.shape[2:], second.shape[2:]) == ((8, 8), (4, 4))
    pooled = [
        stage.unflatten(3, (side, -1)).unflatten(2, (side, -1)).mean((3, 5)).flatten(1)
        for stage, side in ((first, 4), (second, 2))
    ]
    torch.testing.assert_close(found, torch.cat([network(inputs), *pooled], dim=1))
    assert not any(block._forward_hooks for block in network.modules())


@pytest.mark.parametrize(("size", "expected"), [((1, 1), 1), ((2, 2), 2), ((7, 9), 2), ((8, 8), 4), ((32, 16), 4)])
def test_the_cells_of_a_map_follow_from_its_size_alone(size, expected):
    assert cells(torch.zeros(1, 3, *size)) == expected


def test_hooks_are_gone_after_an_error():
    network = ResNet(3, widths=(4,), blocks=(1,), downsample=(False,))
    with pytest.raises(ValueError):
        with_stages(network, network, torch.randn(5, 2, 8, 8))
    assert not any(block._forward_hooks for block in network.modules())


@pytest.mark.parametrize("name", ["structural", "simclr", "biggan", "bigbigan", "supervised"])
def test_every_learner_with_maps_has_layers_of_the_weights_it_is_evaluated_with(name):
    method = tiny.method(method=name).eval()
    method.flipped = False
    inputs = tiny.batch().inputs
    layers, features = method.layers(inputs), method.features(inputs)
    assert layers.shape[1] > features.shape[1]
    torch.testing.assert_close(layers[:, : features.shape[1]], features)
    assert not layers.requires_grad


@pytest.mark.parametrize("name", ["mae", "ddpm"])
def test_an_encoder_without_maps_says_so(name):
    method = tiny.method(method=name).eval()
    with pytest.raises(InputError, match="feature layers is for encoders that make maps"):
        method.layers(tiny.batch().inputs)


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("structural", (3, 32, 32), "layers"),
        ("structural", (3, 16, 16), "backbone"),
        ("structural", (1, 32, 32), "backbone"),
        ("structural", (12,), "backbone"),
        ("mae", (3, 32, 32), "backbone"),
    ],
)
def test_photographs_give_all_layers_and_everything_else_the_backbone(name, shape, expected):
    assert tiny.method(method=name).usual_feature(shape) == expected


FLIP = {"method__augmentation__flip": "true"}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("structural", FLIP),
        ("supervised", FLIP),
        ("bigbigan", FLIP),
        ("simclr", {"method__view__flip": "true"}),
        ("byol", {"method__view__flip": "true", "method__second_view__flip": "true"}),
    ],
)
def test_a_network_that_learnt_from_mirrored_images_gives_the_mean_of_both(name, options):
    method = tiny.method(method=name, **options).eval()
    inputs = tiny.batch().inputs
    alone, turned = (with_stages(method, method.features, images) for images in (inputs, inputs.flip(-1)))
    assert not torch.equal(alone, turned)
    torch.testing.assert_close(method.layers(inputs), (alone + turned) / 2)
    torch.testing.assert_close(method.layers(inputs), method.layers(inputs.flip(-1)))
    torch.testing.assert_close(method.features(inputs), alone[:, : method.features(inputs).shape[1]])


@pytest.mark.parametrize(
    ("name", "options"),
    [("structural", {}), ("byol", {"method__view__flip": "true", "method__second_view__flip": "false"})],
)
def test_one_that_saw_no_mirror_image_gives_those_of_the_image_alone(name, options):
    method = tiny.method(method=name, **options).eval()
    inputs = tiny.batch().inputs
    assert torch.equal(method.layers(inputs), with_stages(method, method.features, inputs))
