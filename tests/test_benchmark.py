"""The literal arrangement of the step is a fair baseline only if it computes the same thing."""

import pytest
import torch

from sao.benchmark import measure
from sao.config import Config, load_preset

SMALL = {
    "train.batch": "12",
    "discriminator.widths": "[16, 32]",
    "discriminator.embedding_size": "8",
    "generator.width": "4",
    "objective.bank": "64",
}


def small(**changes: str) -> Config:
    return load_preset("digits", SMALL | {name.replace("__", "."): value for name, value in changes.items()})


@pytest.fixture
def double_precision():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("distance", ["jensen_shannon", "bhattacharyya"])
def test_literal_step_gives_the_same_losses_and_gradients(distance):
    config = small(objective__distance=distance)
    ours, literal = (measure.build(config, (1, 8, 8), 1000, arrangement) for arrangement in ("ours", "literal"))
    inputs = torch.rand(12, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 2 - 1
    mine, expected = ours.step(inputs, 0), literal.step(inputs, 0)
    assert mine.keys() == expected.keys()
    for name in mine:
        torch.testing.assert_close(mine[name], expected[name], rtol=1e-9, atol=1e-9, msg=lambda m, name=name: f"{name}: {m}")
    for network in ("generator", "discriminator"):
        for (name, a), b in zip(getattr(ours, network).named_parameters(), getattr(literal, network).parameters(), strict=True):
            if network == "generator":  # the literal pass for G goes on to add to D's gradients, which is what it is for
                assert a.grad is not None
                torch.testing.assert_close(a.grad, b.grad, rtol=1e-8, atol=1e-9, msg=lambda m, name=name: f"{name}: {m}")
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


def test_phases_and_arithmetic_are_measured():
    config = small()
    method = measure.build(config, (1, 8, 8), 1000)
    inputs = torch.rand(12, 1, 8, 8) * 2 - 1
    spent = measure.phases(lambda: method.step(inputs, 0))
    assert set(spent) == {*measure.PHASES, "other"}
    assert all(spent[name] > 0 for name in measure.PHASES)
    forward = measure.flops(lambda: method.discriminator(inputs))
    assert 15 * forward < measure.flops(lambda: method.step(inputs, 1)) < 60 * forward


def test_flops_of_a_matrix_product():
    assert measure.flops(lambda: torch.ones(3, 5) @ torch.ones(5, 7)) == 2 * 3 * 5 * 7
