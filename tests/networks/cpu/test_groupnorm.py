"""Our GroupNorm against torch's, in every derivative that the Jacobian penalty takes."""

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad, gradcheck
from torch.func import functional_call

from sao.networks.cpu.groupnorm import group_norm

SHAPES = [((3, 8, 4, 4), False), ((3, 8, 4, 4), True), ((2, 6, 3, 5), True), ((5, 8), False)]


class GroupNorm(nn.GroupNorm):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return group_norm(input, self.num_groups, self.weight, self.bias, self.eps)


def pair(shape: tuple[int, ...], channels_last: bool) -> tuple[GroupNorm, nn.GroupNorm, torch.Tensor]:
    ours, theirs = GroupNorm(2, shape[1]).double(), nn.GroupNorm(2, shape[1]).double()
    nn.init.normal_(ours.weight)
    nn.init.normal_(ours.bias)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(shape, dtype=torch.float64)
    return ours, theirs, x.contiguous(memory_format=torch.channels_last) if channels_last else x


def double_backward(norm: nn.GroupNorm, x: torch.Tensor) -> list[torch.Tensor]:
    """Gradients of a function of the gradients with respect to input, weight and bias."""
    inputs = x.detach().requires_grad_()
    weights = [norm.weight, norm.bias]
    direction = torch.sin(torch.arange(x.numel(), dtype=x.dtype)).reshape(x.shape)
    for_x, for_weight, for_bias = torch.autograd.grad(norm(inputs).sin(), [inputs, *weights], direction, create_graph=True)
    value = (for_x * direction.cos()).square().sum() + for_weight.sin().sum() + for_bias.square().sum()
    return list(torch.autograd.grad(value, [inputs, *weights]))


@pytest.mark.parametrize(("shape", "channels_last"), SHAPES)
def test_values_and_gradients(shape, channels_last):
    ours, theirs, x = pair(shape, channels_last)
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-12, atol=1e-12)
    call = lambda *arguments: functional_call(ours, dict(zip(["weight", "bias"], arguments[1:], strict=True)), arguments[0])  # noqa: E731
    assert gradcheck(call, (x.requires_grad_(), ours.weight, ours.bias))


@pytest.mark.parametrize(("shape", "channels_last"), SHAPES)
def test_double_backward(shape, channels_last):
    ours, theirs, x = pair(shape, channels_last)
    torch.testing.assert_close(double_backward(ours, x), double_backward(theirs, x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("shape", "channels_last"), SHAPES)
def test_forward_mode_in_input_and_weights(shape, channels_last):
    ours, theirs, x = pair(shape, channels_last)
    tangents = [torch.randn_like(t) for t in (x, ours.weight, ours.bias)]
    results = []
    for norm in (ours, theirs):
        with forward_ad.dual_level():
            # torch's own rule works on contiguous tensors only, which is why ours exists.
            values = [x.contiguous() if norm is theirs else x, norm.weight.detach(), norm.bias.detach()]
            duals = [forward_ad.make_dual(v, t.clone()) for v, t in zip(values, tangents, strict=True)]
            result = functional_call(norm, {"weight": duals[1], "bias": duals[2]}, duals[0])
            tangent = forward_ad.unpack_dual(result).tangent
            assert tangent is not None
            results.append(tangent.clone())
    torch.testing.assert_close(results[0], results[1], rtol=1e-10, atol=1e-10)
