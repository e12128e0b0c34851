"""Which network the options of an encoder build."""

import pytest
import tiny
import torch

from sao.errors import InputError
from sao.methods import METHODS
from sao.methods.encoders import GeneratorOptions, ResNetOptions, UNetOptions
from sao.networks import PlainResNet, ResNet
from sao.networks.layers import ELU, ReLU


@pytest.mark.parametrize(
    ("norm", "activation", "network", "layer"),
    [
        ("group", None, ResNet, ELU),
        ("group", "relu", ResNet, ReLU),
        ("batch", None, PlainResNet, ReLU),
        ("batch", "elu", PlainResNet, ELU),
    ],
)
def test_norm_and_activation_choose_the_resnet(norm, activation, network, layer):
    encoder = ResNetOptions(widths=(4, 8), blocks=1, norm=norm, activation=activation).build((3, 16, 16))
    assert type(encoder) is network
    kinds = {type(module) for module in encoder.modules()} & {ELU, ReLU}
    assert kinds == {layer}
    assert encoder(torch.zeros(2, 3, 16, 16)).shape == (2, 8)


def test_large_images_have_the_large_stem():
    small, large = (ResNetOptions(widths=(4, 8), norm="batch").build((3, size, size)) for size in (63, 64))
    assert isinstance(small, PlainResNet)
    assert isinstance(large, PlainResNet)
    assert (small.stem.kernel_size, large.stem.kernel_size) == ((3, 3), (7, 7))


def test_a_baseline_learns_with_batchnorm_and_a_discriminator_refuses_it():
    method = tiny.method(method="supervised", encoder__norm="batch")
    assert all(bool(value.isfinite()) for value in method.step(tiny.batch(), 0).values())
    for name in ("structural", "hinge"):
        with pytest.raises(InputError, match=r"encoder\.norm batch"):
            tiny.method(method=name, encoder__norm="batch")


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_patches_make_a_smaller_image_of_more_channels(norm):
    encoder = ResNetOptions(widths=(4, 8), blocks=1, norm=norm, patch=2).build((3, 16, 16))
    assert encoder.get_submodule("stem").in_channels == 12
    assert encoder(torch.zeros(2, 3, 16, 16)).shape == (2, 8)
    with pytest.raises(InputError, match=r"patches of 3x3 do not divide images of 16x16: set --encoder\.patch or --data\.size"):
        ResNetOptions(norm=norm, patch=3).build((3, 16, 16))


def test_falling_channels_are_those_of_images():
    plain, falling = (GeneratorOptions(width=8, depth=1, falling=falls).build((1, 16, 16)) for falls in (False, True))
    assert sum(map(torch.numel, falling.parameters())) < sum(map(torch.numel, plain.parameters()))
    with pytest.raises(InputError, match=r"method\.generator\.falling is for images"):
        GeneratorOptions(falling=True).build((7,))


def test_images_that_cannot_be_halved_at_all_are_refused_in_one_line():
    with pytest.raises(InputError, match=r"images of 9x9 cannot be halved 1 times: set --encoder\.multipliers or --data\.size"):
        UNetOptions(channels=4).build((1, 9, 9))


def test_the_network_of_a_diffusion_model_is_for_it_and_for_the_untrained_control_alone():
    assert [name for name, options in METHODS.items() if options.can_use(UNetOptions)] == ["ddpm", "random"]
