"""Our ELU against torch's, in every derivative that the Jacobian penalty takes."""

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.nn import functional as F

from sao.networks.cpu.activation import elu


def values(count: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(3, 5, dtype=torch.float64, generator=generator).requires_grad_() for _ in range(count)]


@pytest.mark.parametrize("count", [1, 2])
def test_values_and_both_derivatives(count):
    inputs = values(count)
    torch.testing.assert_close(elu(*inputs), F.elu(torch.stack(inputs).sum(0)))
    assert gradcheck(elu, inputs, check_forward_ad=True)
    assert gradgradcheck(elu, inputs)


def test_input_is_left_alone():
    (x,) = values(1)
    before = x.detach().clone()
    elu(x, x)
    assert torch.equal(x, before)


def test_only_the_result_is_kept():
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        y = elu(*values(2))
    assert [tensor.data_ptr() for tensor in kept] == [y.data_ptr()]


def test_tangents_have_no_graph():
    (x,) = values(1)
    with forward_ad.dual_level():
        y, tangent = forward_ad.unpack_dual(elu(forward_ad.make_dual(x, torch.ones_like(x))))
        assert y.requires_grad
        assert tangent is not None
        assert not tangent.requires_grad


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32, torch.float64])
def test_values_near_zero_and_far_from_it_in_every_precision(kind):
    x = torch.tensor([-torch.inf, -100.0, -2.0, -1e-3, -0.0, 0.0, 1e-3, 2.0, 100.0, torch.inf, torch.nan], dtype=kind)
    torch.testing.assert_close(elu(x), F.elu(x), equal_nan=True, rtol=1e-6, atol=1e-7)
