"""bfloat16 where it was asked for or is measured to be faster, and never in a Jacobian or a loss."""

import pytest
import tiny
import torch

from sao.core import objectives
from sao.methods import discriminator_passes, structural
from sao.training import device


def test_the_stopwatch_runs():
    assert 0 < device.product_seconds(torch.float32, torch.device("cpu")) < 10


def step(method) -> dict[str, float]:
    return {name: float(value) for name, value in method.step(tiny.batch(), 0).items()}


SPECTRAL = {"method__spectral_normalisation": True, "method__smoothness_weight": 0}
OTHERS = [{"method": name} for name in ("supervised", "mae", "ddpm", "biggan")]


@pytest.mark.parametrize("options", [{}, {"method__micro_batch": 10}, {"method__smoothness_weight": 0}, SPECTRAL, *OTHERS])
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

    of_objectives = ("jensen_shannon", "gaussian_logdet", "neighbour_similarity", "nearest_similarity")
    for module, names in ((discriminator_passes, ("outputs_norms_directions",)), (objectives, of_objectives)):
        for name in names:
            monkeypatch.setattr(module, name, recorded(name, getattr(module, name)))
    method = tiny.method_of(structural.Structural, method__local_weight=1, method__local_cluster_weight=1)
    method.autocast_bfloat16 = True
    passes = set()
    for network in (method.generator, method.ema_discriminator.network):
        convolution = next(module for module in network.modules() if isinstance(module, torch.nn.Conv2d))
        convolution.register_forward_hook(lambda module, inputs, output: passes.add(output.dtype))
    step(method)
    assert passes == {torch.bfloat16}
    assert {name for name, _, _ in seen} >= {"outputs_norms_directions", *of_objectives} - {"neighbour_similarity"}
    assert all(not autocast and dtypes == {torch.float32} for _, autocast, dtypes in seen), seen
