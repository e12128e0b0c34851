"""One step on two devices; the CPU stands for both of them here."""

import pytest
import tiny
import torch

from sao.cli.doctor import agreement_of
from sao.training import device_check
from sao.training.device_check import Comparison, EachOperator, compare, differences

CPU = torch.device("cpu")


def test_a_device_agrees_with_itself():
    found = compare(tiny.config(), tiny.dataset(), CPU)
    assert found.agrees
    assert max([*found.losses.values(), *found.gradients.values()]) < 1e-5
    assert {"discriminator/distance", "generator/distance"} <= found.losses.keys()
    assert any(name.startswith("generator") for name in found.gradients)
    assert {"convolution", "convolution_backward", "native_group_norm", "linalg_cholesky_ex"} <= found.operators.keys()
    assert found.wrong_operators == {}


def test_an_operator_that_differs_is_named(monkeypatch):
    """One that gives something else each time it is called, as a device would that computes something else."""
    calls = [0]

    @torch.library.custom_op("sao_tests::drifting", mutates_args=())
    def drifting(values: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        return values * calls[0]

    with EachOperator() as operators:
        drifting(torch.ones(3))
        torch.ones(3).sin_()
    assert operators.differences["drifting"] == pytest.approx(0.5)
    assert operators.differences["sin_"] == 0
    found = Comparison({"loss": 0.5}, {"weight": 0.0}, operators.differences)
    assert not found.agrees
    for comparison, text, remedy in (
        (found, "losses within 5e-01", "operators that differ: drifting by 5e-01; try --train.device cpu"),
        (Comparison({"loss": 1e-6}, {"weight": 1e-5}, {"sin": 1e-7}), "gradients within 1e-05", ""),
    ):
        monkeypatch.setattr(device_check, "compare", lambda *arguments, comparison=comparison: comparison)
        finding = agreement_of("cpu")
        assert text in finding.text
        assert finding.remedy == remedy


def test_differences_are_relative_and_a_nan_is_infinite():
    broken = {"weight": torch.tensor([3.0, 4.0]), "bias": torch.tensor([torch.nan])}
    apart = differences(broken, {"weight": torch.tensor([3.0, 4.5]), "bias": torch.tensor([torch.nan])})
    assert apart == {"weight": pytest.approx(0.125), "bias": float("inf")}
    one, other = ({"weight": torch.ones(4), "nothing": torch.full((4,), value)} for value in (1e-9, 3e-9))
    assert differences(one, other) == {"weight": 0, "nothing": pytest.approx(2e-7)}
