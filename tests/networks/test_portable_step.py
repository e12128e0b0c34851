"""A whole training step with the operators written for the CPU and with torch's own."""

from dataclasses import replace
from typing import Any

import pytest
import tiny
import torch
from torch import Tensor

from sao.methods import METHODS, Method
from sao.networks.cpu import portable

CASES: dict[str, dict[str, Any]] = {
    **{name: {"method": name} for name in METHODS if name != "random"},  # which does not learn
    "micro-batches": {"method__micro_batch": 5},
    "spectral normalisation": {"method__spectral_normalisation": "true"},
}


def two_steps(options: dict[str, Any]) -> tuple[Method, dict[str, Tensor]]:
    method = tiny.method(**options).double()
    for step in range(2):
        batch = tiny.batch(step)
        scalars = method.step(replace(batch, inputs=batch.inputs.double()), step)
    gradients = {name: p.grad for name, p in method.named_parameters() if p.grad is not None}
    assert gradients
    return method, scalars | gradients


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_both_kinds_of_operators_learn_the_same(options):
    ours, found = two_steps(options)
    with portable():
        theirs, expected = two_steps(options)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-6, atol=1e-8, msg=lambda text, name=name: f"{name}: {text}")
    for (name, value), other in zip(theirs.state_dict().items(), ours.state_dict().values(), strict=True):
        torch.testing.assert_close(other, value, rtol=1e-6, atol=1e-8, msg=lambda text, name=name: f"{name}: {text}")
