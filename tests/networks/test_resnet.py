import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sao.core.jacobian import jacobian_norm
from sao.networks import PlainResNet, ResNet, resnet_stages
from sao.networks.layers import GroupNorm
from sao.networks.resnet import Block
from sao.networks.spectral import normalise_spectrally


def narrow(size: int, channels: int = 3, spectral: bool = False) -> ResNet:
    widths, downsample = resnet_stages(size, [4, 4, 8, 8, 16] if size >= 64 else [4, 8, 8, 16])
    network = ResNet(channels, widths, [1] * len(widths), downsample)
    if spectral:
        normalise_spectrally(network)
    return network


def last_map(network: ResNet, size: int, channels: int = 3) -> torch.Size:
    shapes = []
    network.stages.register_forward_hook(lambda module, inputs, outputs: shapes.append(outputs.shape))
    with torch.no_grad():
        network(torch.zeros(1, channels, size, size))
    return shapes[0]


def test_the_papers_network_for_128_pixels_reduces_32_times():
    widths, downsample = resnet_stages(128)
    assert widths == [64, 64, 128, 256, 512]
    assert all(downsample)
    assert narrow(128).reduction == 32
    assert last_map(narrow(128), 128)[2:] == (4, 4)
    assert last_map(ResNet(3, widths, [2] * 5, downsample), 128) == (1, 512, 4, 4)


def test_the_papers_network_is_built_as_the_paper_says():
    """Average pools instead of strides, no max-pool, no first norm, 16 channels a group, ELU, no bias beside a norm."""
    network = ResNet()
    assert network.feature_size == 512
    assert last_map(network, 32) == (1, 512, 4, 4)
    convolutions = [m for m in network.modules() if isinstance(m, nn.Conv2d)]
    norms = [m for m in network.modules() if isinstance(m, nn.GroupNorm)]
    kinds = {type(m) for m in network.modules()}
    assert len(convolutions) == 1 + 8 * 2 + 3
    assert len(norms) == 8 + 3
    assert all(c.stride == (1, 1) and c.bias is None for c in convolutions)
    assert all(norm.num_channels // norm.num_groups == 16 for norm in norms)
    assert not kinds & {nn.ReLU, nn.BatchNorm2d, nn.MaxPool2d}
    for convolution in convolutions:
        fan_out = convolution.out_channels * math.prod(convolution.kernel_size)
        assert convolution.weight.std().item() == pytest.approx(math.sqrt(2 / fan_out), rel=0.1)


@pytest.mark.parametrize(("inputs", "outputs", "downsample"), [(3, 4, True), (4, 4, True), (4, 4, False), (3, 4, False)])
def test_block_is_pool_conv_elu_conv_norm_plus_shortcut(inputs, outputs, downsample):
    block, x = Block(inputs, outputs, downsample).double(), torch.randn(2, inputs, 6, 6, dtype=torch.float64)
    pooled = F.avg_pool2d(x, 2) if downsample else x
    residual = F.conv2d(pooled, block.first.weight, padding=1)
    residual = F.group_norm(F.conv2d(F.elu(residual), block.second.weight, padding=1), 1)
    shortcut = pooled
    if isinstance(block.shortcut, nn.Sequential):
        (convolution, _) = block.shortcut
        assert isinstance(convolution, nn.Conv2d)
        shortcut = F.group_norm(F.conv2d(pooled, convolution.weight), 1)
    assert isinstance(block.shortcut, nn.Sequential) == (downsample or inputs != outputs)
    torch.testing.assert_close(block(x), F.elu(residual + shortcut))


@pytest.mark.parametrize("size", [8, 9, 12, 15, 16, 17, 28, 32, 33, 48, 63, 64, 65, 96, 127, 128, 200, 256])
@pytest.mark.parametrize("channels", [1, 4])
def test_any_size_and_channel_count(size, channels):
    network = narrow(size, channels)
    features = network(torch.rand(2, channels, size, size))
    assert features.shape == (2, 16)
    assert min(last_map(network, size, channels)[2:]) >= 2
    features.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


@pytest.mark.parametrize("spectral", [False, True])
def test_the_jacobian_norm_has_a_gradient_in_every_weight(spectral):
    network = narrow(8, spectral=spectral)
    norms = jacobian_norm(network, torch.rand(2, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    norms.sum().backward()
    gradients = [p.grad for name, p in network.named_parameters() if p.ndim > 1]
    assert all(g is not None and g.isfinite().all() and g.abs().sum() > 0 for g in gradients)


@pytest.mark.parametrize("channels", [1, 7, 16, 40, 50, 56, 64, 100, 127])
def test_groups_divide_any_width(channels):
    norm = GroupNorm(channels)
    per_group = channels // norm.num_groups
    assert per_group >= min(16, channels)
    assert norm(torch.randn(2, channels, 2, 2)).shape == (2, channels, 2, 2)


def test_widths_of_ones_own_choose_the_depth():
    widths, downsample = resnet_stages(32, [16, 32])
    assert (widths, downsample) == ([16, 32], [False, True])
    assert resnet_stages(8)[1] == [False, True, True, False]


@pytest.mark.parametrize("network", [ResNet, PlainResNet])
def test_a_position_of_the_first_convolution_is_a_patch(network):
    """Every patch of pixels is seen whole: the stem is a convolution of three patches a side that moves by one patch."""
    encoder = network(3, (4, 8), (1, 1), patch=2, **({"downsample": (False, True)} if network is ResNet else {}))
    images = torch.randn(2, 3, 8, 12)
    weight = encoder.stem.weight.reshape(4, 3, 2, 2, 3, 3)  # (o, c, y in a patch, x in a patch, patch rows, patch columns)
    whole = weight.permute(0, 1, 4, 2, 5, 3).reshape(4, 3, 6, 6)
    expected = F.conv2d(F.pad(images, (2, 2, 2, 2)), whole, stride=2)
    torch.testing.assert_close(encoder.stem(encoder.arranged(images)), expected)
    assert encoder(images).shape == (2, 8)
    assert encoder.reduction == 4
    with pytest.raises(ValueError, match="patches of 2x2 do not divide images of 8x7"):
        encoder(torch.zeros(1, 3, 8, 7))
