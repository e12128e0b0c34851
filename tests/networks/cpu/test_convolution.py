"""Our convolution against torch's, in every derivative that the Jacobian penalty takes, by all of its ways."""

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import functional_call

from sao.networks.cpu import convolution
from sao.networks.layers import Convolution


@pytest.fixture(params=["library", "few channels", "matrix products"])
def way(request, monkeypatch):
    monkeypatch.setattr(convolution, "MANY_CHANNELS", 1 if request.param == "matrix products" else 256)
    monkeypatch.setattr(convolution, "FEW_CHANNELS", 3 if request.param == "few channels" else 0)
    return request.param


def layer_and_images(kernel: int, layout: torch.memory_format, size: tuple[int, int] = (4, 3)) -> tuple[Convolution, Tensor]:
    layer = Convolution(3, 4, kernel).double().to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    images = torch.randn(2, 3, *size, dtype=torch.float64).contiguous(memory_format=layout)
    return layer, images.requires_grad_()


def call(layer: nn.Module):
    return lambda images, weight: functional_call(layer, {"weight": weight}, images)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize(("kernel", "size"), [(1, (4, 3)), (3, (4, 3)), (3, (2, 2)), (1, (2, 2)), (3, (1, 2))])
def test_values_and_all_derivatives(kernel, size, layout):
    layer, images = layer_and_images(kernel, layout, size)
    torch.testing.assert_close(layer(images), nn.Conv2d.forward(layer, images))
    assert gradcheck(call(layer), (images, layer.weight), check_forward_ad=True)
    assert gradgradcheck(call(layer), (images, layer.weight))


def test_matrix_products_are_taken_for_tiny_images_with_many_channels(monkeypatch):
    taken = []
    patches = convolution._patches
    monkeypatch.setattr(convolution, "_patches", lambda images: taken.append(tuple(images.shape)) or patches(images))
    for channels, size in ((256, 4), (255, 4), (256, 5)):
        layer = Convolution(channels, 2, 3).to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        layer(torch.zeros(1, channels, size, size))
    assert taken == [(1, 256, 4, 4)]


@pytest.mark.usefixtures("way")
def test_the_gradient_of_the_input_alone_does_not_pay_for_the_weights(monkeypatch):
    layer, images = layer_and_images(3, torch.channels_last)
    paid = []
    monkeypatch.setattr(convolution, "_weight_gradient", lambda *_: paid.append(True))
    torch.autograd.grad(layer(images).sum(), images, create_graph=True)
    assert not paid


def test_a_frozen_layer_and_a_constant_input_cost_nothing():
    layer, images = layer_and_images(3, torch.channels_last)
    layer(images.detach()).sum().backward()
    assert layer.weight.grad is not None
    layer.requires_grad_(False)
    layer(images).sum().backward()
    assert images.grad is not None
    assert not layer(images.detach()).requires_grad


def test_tangents_have_no_graph():
    layer, images = layer_and_images(3, torch.channels_last)
    with forward_ad.dual_level():
        outputs, tangent = forward_ad.unpack_dual(layer(forward_ad.make_dual(images, torch.ones_like(images))))
        assert outputs.requires_grad
        assert tangent is not None
        assert not tangent.requires_grad
