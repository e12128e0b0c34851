"""Against torchvision's ResNet-18, layer by layer the same."""

import copy

import pytest
import torch
from torch import nn

from sao.networks import PlainResNet
from sao.runtime.torchvision_import import import_torchvision


def pair(large: bool) -> tuple[PlainResNet, nn.Module]:
    """Both in float64 with torchvision's weights, which come in the same order."""
    import_torchvision()
    from torchvision.models import resnet18

    theirs, ours = resnet18(), PlainResNet(large=large).double()
    if not large:
        theirs.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        theirs.maxpool = nn.Identity()  # pyright: ignore[reportAttributeAccessIssue]
    theirs.fc = nn.Identity()  # pyright: ignore[reportAttributeAccessIssue]
    theirs.double()
    with torch.no_grad():
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            mine.copy_(other.add_(0.01 * torch.randn_like(other)))
    return ours, theirs


@pytest.mark.parametrize(("large", "size"), [(False, 8), (True, 32)])
def test_features_gradients_and_statistics_are_those_of_torchvision(large, size):
    ours, theirs = pair(large)
    images = torch.randn(3, 3, size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    results = []
    for network in (ours, theirs):
        inputs = images.clone().requires_grad_()
        features = network(inputs)
        features.square().sum().backward()
        evaluated = copy.deepcopy(network).eval()(images)
        gradients = [inputs.grad, *(p.grad for p in network.parameters())]
        statistics = [value for name, value in network.named_buffers() if "running_" in name]
        results.append([features, evaluated, *gradients, *statistics])
    torch.testing.assert_close(*results, rtol=1e-8, atol=1e-9)
    assert ours.feature_size == features.shape[1] == 512


@pytest.mark.parametrize(("large", "smallest"), [(False, 8), (True, 32)])
def test_images_down_to_the_reduction_are_taken(large, smallest):
    network = PlainResNet(1, (4, 4, 8, 8), (1, 1, 1, 1), large)
    assert network(torch.randn(2, 1, smallest, smallest)).shape == (2, 8)
    with pytest.raises(ValueError, match=rf"^images .* at least {smallest}"):
        network(torch.randn(2, 1, smallest, smallest - 1))
