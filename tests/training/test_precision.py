"""bfloat16 where it was asked for or is measured to be faster, and never in a Jacobian or a loss."""

import pytest
import tiny
import torch

from sao.core import objectives
from sao.methods import discriminator_passes, structural
from sao.training import device

CPU = torch.device("cpu")


@pytest.mark.parametrize(("half", "chosen"), [(0.5, True), (0.9, False), (400.0, False)])
def test_auto_goes_by_the_stopwatch(monkeypatch, half, chosen):
    seconds = {torch.float32: 1.0, torch.bfloat16: half}
    monkeypatch.setattr(device, "product_seconds", lambda dtype, where: seconds[dtype])
    assert device.choose_bfloat16("auto", CPU) is chosen
    assert device.choose_bfloat16("bfloat16", CPU)
    assert not device.choose_bfloat16("float32", CPU)


def test_the_stopwatch_runs():
    assert 0 < device.product_seconds(torch.float32, CPU) < 10


def step(method) -> dict[str, float]:
    return {name: float(value) for name, value in method.step(tiny.batch(), 0).items()}


SPECTRAL = {"method__spectral_normalisation": True}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"method__micro_batch": 10},
        {"method": "supervised"},
        {"method": "mae"},
        {"method": "ddpm"},
        {"method__smoothness_weight": 0},
        {**SPECTRAL, "method__smoothness_weight": 0},
        {"method": "biggan"},
    ],
)
def test_a_step_in_bfloat16_is_near_the_one_in_float32(options):
    exact = step(tiny.method(**options))
    method = tiny.method(**options)
    method.autocast_bfloat16 = True
    rough = step(method)
    assert rough != exact
    for name, value in exact.items():
        assert rough[name] == pytest.approx(value, rel=0.15, abs=0.02), name
    assert {value.dtype for value in method.state_dict().values()} <= {torch.float32, torch.int64}
    step(method)  # on what the first has left behind


def test_jacobian_and_losses_are_computed_in_float32(monkeypatch):
    seen = []

    def recorded(name, function):
        def call(*args, **kwargs):
            tensors = [argument for argument in args if isinstance(argument, torch.Tensor)]
            seen.append((name, torch.is_autocast_enabled("cpu"), {tensor.dtype for tensor in tensors}))
            return getattr(function, "unchecked", function)(*args, **kwargs)

        call.unchecked = call
        return call

    for module, name in (
        (discriminator_passes, "outputs_norms_directions"),
        (objectives, "jensen_shannon"),
        (objectives, "gaussian_logdet"),
        (objectives, "neighbour_similarity"),
        (objectives, "nearest_similarity"),
    ):
        monkeypatch.setattr(module, name, recorded(name, getattr(module, name)))
    method = tiny.method_of(structural.Structural, method__local_weight=1, method__local_cluster_weight=1)
    method.autocast_bfloat16 = True
    passes = set()
    for network in (method.generator, method.ema_discriminator.network):
        convolution = next(module for module in network.modules() if isinstance(module, torch.nn.Conv2d))
        convolution.register_forward_hook(lambda module, inputs, output: passes.add(output.dtype))
    step(method)
    assert passes == {torch.bfloat16}
    assert {name for name, _, _ in seen} >= {
        "outputs_norms_directions",
        "jensen_shannon",
        "gaussian_logdet",
        "nearest_similarity",
    }
    assert all(not autocast and dtypes == {torch.float32} for _, autocast, dtypes in seen), seen
