"""What is not finite changes nothing, without anyone waiting for the device to find out."""

import pytest
import tiny
import torch

from sao.data.loader import Batches
from sao.methods import METHODS, Batch, Method, NonFiniteError
from sao.methods.genrep import GenRep
from sao.methods.health import Health
from sao.methods.structural import Structural
from sao.training.step import make_step


def state_of(method: Method) -> dict[str, torch.Tensor]:
    """Weights, buffers and moments; moments that nothing has changed yet are not there."""
    moments = {
        f"{name}/{index}/{quantity}": value.clone()
        for name, optimiser in method.optimisers.items()
        for index, quantities in optimiser.state_dict()["state"].items()
        for quantity, value in quantities.items()
        if value.any()
    }
    return {name: value.clone() for name, value in method.state_dict().items()} | moments


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert [name for name, value in expected.items() if not torch.equal(found[name], value)] == []


def with_inputs(batch: Batch, inputs: torch.Tensor) -> Batch:
    return Batch(inputs, batch.rows, batch.labels)


CASES = {name: {"method": name} for name in METHODS if name != "random"}  # which does not learn
CASES |= {kind: {"method": "simclr", "method__optimiser__kind": kind} for kind in ("lars", "sgd")}  # those are of AdamW


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("name", CASES)
def test_nothing_changes_by_a_step_that_is_not_finite(name, first, value):
    """Nor by any step after it: until someone looks, the state stays as it was."""
    method = tiny.method(**CASES[name])
    if isinstance(method, GenRep):  # it looks at no data, but at what its generator makes
        method.view = lambda index, inputs, step: inputs
    batches = Batches(tiny.dataset().train, torch.device("cpu"))
    for step in range(first):
        make_step(method, batches, 0, 16, step)
    method.refresh(batches, first)
    method.check_finite()
    before, batch = state_of(method), tiny.batch(first)
    broken = batch.inputs.clone()
    broken[3] = value
    method.learn(with_inputs(batch, broken), first)
    assert_same(state_of(method), before)
    method.learn(tiny.batch(first + 1), first + 1)
    assert_same(state_of(method), before)
    with pytest.raises(NonFiniteError, match="is NaN or inf") as stop:
        method.check_finite()
    assert stop.value.step == first
    assert stop.value.term.count("/") == 1


@pytest.mark.parametrize("device", ["cpu", "other"])
def test_buffers_that_changed_in_a_step_get_their_values_back(device, monkeypatch):
    """Also where nobody looks at the flag, as on an accelerator: there each is replaced by itself or by what it was."""
    health = Health()
    network = torch.nn.BatchNorm1d(2)
    expected = {name: value.clone() for name, value in network.state_dict().items()}
    if device == "other":
        monkeypatch.setattr("sao.methods.health.LOOKING_IS_FREE", ())
    with health.guarding(network, 0):
        network(torch.full((4, 2), torch.nan))
        health.look({"loss": torch.tensor(torch.nan)})
    assert_same(network.state_dict(), expected)
    whole = Health()
    with whole.guarding(network, 0):
        network(torch.arange(8.0).reshape(4, 2))
        whole.look({"loss": torch.tensor(1.0)})
    assert not torch.equal(network.state_dict()["running_mean"], expected["running_mean"])


def test_the_first_term_that_is_not_finite_is_named():
    health = Health()
    assert health.look({"a": torch.tensor(1.0), "b": torch.tensor(-1e30)}) == 0
    health.check()
    health.step = 7
    assert health.look({"a": torch.tensor(1.0), "b": torch.tensor(torch.inf), "c": torch.tensor(torch.nan)}) == 1
    health.step = 8
    assert health.look({"a": torch.tensor(torch.nan)}) == 1
    with pytest.raises(NonFiniteError) as stop:
        health.check()
    assert (stop.value.term, stop.value.step) == ("b", 7)


def test_an_update_after_a_broken_one_is_left_out():
    """D's own update was finite and stays; what follows it in the step does not happen."""
    method = tiny.method(method="structural")
    assert isinstance(method, Structural)
    method.generator_losses = lambda real, fake: {"distance": fake.embeddings.sum() * torch.nan}
    before = state_of(method)
    method.learn(tiny.batch(), 0)
    changed = {name for name, value in state_of(method).items() if name not in before or not torch.equal(value, before[name])}
    assert changed
    assert {name.split(".")[0].split("/")[0] for name in changed} == {"discriminator"}
    with pytest.raises(NonFiniteError, match="generator/distance"):
        method.check_finite()
