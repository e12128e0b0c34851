"""Which network the options of an encoder build."""

import pytest
import tiny
import torch

from sao.errors import InputError
from sao.methods.architecture import ResNetOptions
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
