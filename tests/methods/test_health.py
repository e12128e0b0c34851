"""No optimiser uses what is not finite, without anyone waiting for the device to find out."""

import pytest
import tiny
import torch

from sao.core.finite import Health
from sao.data.loader import Batches
from sao.methods import METHODS, Batch, Method, NonFiniteError
from sao.methods.genrep import GenRep
from sao.methods.structural import Structural
from sao.training.step import make_step


def optimised(method: Method) -> list[torch.Tensor]:
    """The weights that optimisers move, and their moments; moments that nothing has changed yet are not there."""
    optimisers = method.optimisers.values()
    weights = [weight.detach().clone() for one in optimisers for group in one.param_groups for weight in group["params"]]
    states = [state for one in optimisers for state in one.state_dict()["state"].values()]
    return weights + [value.clone() for state in states for value in state.values() if value.any()]


def same(found: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    return len(found) == len(expected) and all(map(torch.equal, found, expected))


def with_inputs(batch: Batch, inputs: torch.Tensor) -> Batch:
    return Batch(inputs, batch.rows, batch.labels)


CASES = {name: {"method": name} for name in METHODS if name != "random"}  # which does not learn
CASES |= {kind: {"method": "simclr", "method__optimiser__kind": kind} for kind in ("lars", "sgd")}  # those are of AdamW


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("name", CASES)
def test_weights_and_moments_stay_as_before_a_step_that_is_not_finite(name, value):
    """Also in the steps after it, until someone looks and the run ends."""
    method = tiny.method(**CASES[name])
    if isinstance(method, GenRep):  # it looks at no data, but at what its generator makes
        method.view = lambda index, inputs, step: inputs
    batches = Batches(tiny.dataset().train, torch.device("cpu"))
    make_step(method, batches, 0, 16, 0)
    method.refresh(batches, 1)
    method.check_finite()
    before, batch = optimised(method), tiny.batch(1)
    broken = batch.inputs.clone()
    broken[3] = value
    method.training_step(with_inputs(batch, broken), 1)
    assert same(optimised(method), before)
    method.training_step(tiny.batch(2), 2)
    assert same(optimised(method), before)
    with pytest.raises(NonFiniteError, match="is NaN or inf") as stop:
        method.check_finite()
    assert stop.value.step == 1
    assert stop.value.term.count("/") == 1


def test_the_first_term_that_is_not_finite_is_named():
    health = Health()
    assert health.found_inf({"a": torch.tensor(1.0), "b": torch.tensor(-1e30)}) == 0
    health.check()
    health.step = 7
    assert health.found_inf({"a": torch.tensor(1.0), "b": torch.tensor(torch.inf), "c": torch.tensor(torch.nan)}) == 1
    health.step = 8
    assert health.found_inf({"a": torch.tensor(torch.nan)}) == 1
    with pytest.raises(NonFiniteError) as stop:
        health.check()
    assert (stop.value.term, stop.value.step) == ("b", 7)


def test_an_update_after_a_broken_one_is_left_out():
    """D's own update was finite and stays; what follows it in the step does not happen."""
    method = tiny.method_of(Structural, method="structural")
    method.generator_losses = lambda real, fake, step: {"distance": fake.embeddings.sum() * torch.nan}
    before = {name: value.clone() for name, value in method.named_parameters()}
    method.training_step(tiny.batch(), 0)
    changed = {name.split(".")[0] for name, value in method.named_parameters() if not torch.equal(value, before[name])}
    assert changed == {"discriminator", "ema_discriminator"}
    with pytest.raises(NonFiniteError, match="generator/distance"):
        method.check_finite()
