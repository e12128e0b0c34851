"""An audit is the estimate itself: a row is what `jacobian_norm` gives for its number of steps, from the same directions."""

import pytest
import torch
from torch import nn

from sao.core.jacobian import jacobian_audit, jacobian_norm


def network() -> tuple[nn.Module, torch.Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(7, 12), nn.ELU(), nn.Linear(12, 6)).double()
        return net, torch.randn(10, 7, dtype=torch.float64)


@pytest.mark.parametrize("batch_size", [4, 256])
@pytest.mark.parametrize("seed", [0, 3])
def test_each_row_is_the_audit_of_that_number_of_steps_alone(batch_size, seed):
    net, x = network()
    audit = jacobian_audit(net, x, (8, 1, 2, 2), seed=seed, batch_size=batch_size)
    assert audit.steps == (1, 2, 8)
    assert audit.estimates.shape == (3, 10)
    for steps, row in zip(audit.steps, audit.estimates, strict=True):
        alone = jacobian_audit(net, x, [steps], seed=seed, batch_size=batch_size).estimates[0]
        assert torch.equal(row, alone)
        draws = torch.Generator().manual_seed(seed)
        expected = [jacobian_norm(net, part, steps, generator=draws).detach() for part in x.split(batch_size)]
        assert torch.equal(row, torch.cat(expected))
    rises = audit.estimates.diff(dim=0)
    assert bool((rises >= -1e-12).all())
    assert bool((rises > 0).any())


def test_directions_are_drawn_anew_for_each_batch_and_seed():
    net, x = network()
    twice = torch.cat([x[:4], x[:4]])
    first, second = jacobian_audit(net, twice, [1], batch_size=4).estimates[0].split(4)
    assert not torch.equal(first, second)
    assert not torch.equal(first, jacobian_audit(net, twice, [1], seed=1, batch_size=4).estimates[0, :4])


def test_the_exact_norms_are_those_of_each_sample_in_order():
    net, x = network()
    exact = jacobian_audit(net, x, [1], batch_size=3).exact
    assert exact is not None
    for row, norm in zip(x, exact, strict=True):
        jacobian = torch.autograd.functional.jacobian(net, row)
        torch.testing.assert_close(torch.linalg.svdvals(jacobian)[0], norm)
