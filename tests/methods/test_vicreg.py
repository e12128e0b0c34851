"""VICReg's loss beside that of another library."""

import pytest
import tiny
import torch

from sao.methods.third_party import import_lightly
from sao.methods.vicreg import VICReg


@pytest.mark.parametrize("weights", [(25.0, 25.0, 1.0), (1.0, 0.0, 7.0), (0.0, 3.0, 0.0)])
def test_the_loss_is_that_of_lightly(weights):
    """Ours has no mask of booleans as an index: for that a GPU would be waited for."""
    import_lightly("vicreg")
    from lightly.loss import VICRegLoss

    names = ("invariance", "variance", "covariance")
    method = tiny.method(method="vicreg", **dict(zip((f"method__{name}" for name in names), weights, strict=True)))
    assert isinstance(method, VICReg)
    generator = torch.Generator().manual_seed(0)
    one, other = (torch.randn(16, 8, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(2))
    ours = method.losses([{"projection": one}, {"projection": other}], 0)["vicreg"]
    theirs = VICRegLoss(*weights)(one, other)
    torch.testing.assert_close(ours, theirs)
    for found, expected in zip(torch.autograd.grad(ours, (one, other)), torch.autograd.grad(theirs, (one, other)), strict=True):
        torch.testing.assert_close(found, expected)
