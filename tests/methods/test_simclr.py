"""SimCLR: its views, and that it learns and goes on as every other method; its step is compared in test_baseline_steps."""

import sys

import pytest
import tiny
import torch
from test_controls import inputs

from sao.errors import InputError
from sao.methods.optimisers import LARS, MOMENTUM, TRUST
from sao.methods.simclr import SimCLR

PLAIN = {
    f"method__view__{name}": value
    for name, value in {"crop": "null", "jitter": "null", "grey": 0, "blur": 0, "flip": "false"}.items()
}
AUGMENTED = {**PLAIN, "method__view__flip": "true", "method__view__crop": 0.5, "method__view__jitter": "[0.4, 0.4, 0.4, 0.1]"}


def simclr(**options) -> SimCLR:
    method = tiny.method(method="simclr", **options)
    assert isinstance(method, SimCLR)
    return method


def test_views_differ_with_augmentation_alone():
    for options, same in ((PLAIN, True), (AUGMENTED, False)):
        method = simclr(**options)
        one, other = (view(inputs(), 0, f"view {index}", 0, method.batch) for index, view in enumerate(method.views))
        assert torch.equal(one, other) == same
        assert torch.equal(one, inputs()) == same


@pytest.mark.parametrize(
    "options",
    [
        {"method__optimiser__learning_rate": 1e-2},
        {"method__optimiser__kind": "lars", "method__optimiser__learning_rate": 0.1},
    ],
)
def test_the_loss_falls_on_digits(options):
    options = {**PLAIN, "method__view__crop": 0.5, "encoder__widths": "[16, 32]", **options}
    method = simclr(train__batch=64, **options)
    losses = [float(method.step(tiny.batch(step, 64), step)["network/nt_xent"]) for step in range(60)]
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])


def test_embeddings_are_unit_projections():
    method = simclr()
    embeddings = method.embeddings(inputs())
    assert embeddings.shape == (16, 8)
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(16))


def test_lars_clips_a_gradient_to_a_fraction_of_its_weight_and_leaves_vectors_alone():
    weight, bias = torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.ones(2))
    optimiser = LARS([weight, bias], lr=0.5, weight_decay=0.01)
    weight.grad, bias.grad = torch.full((2, 2), 8.0), torch.full((2,), 8.0)
    optimiser.step()
    decayed = 8.0 + 0.01
    share = TRUST * 2 / (16 + 0.01 * 2) / 0.5
    torch.testing.assert_close(weight.data, torch.full((2, 2), 1 - 0.5 * share * decayed))
    torch.testing.assert_close(bias.data, torch.full((2,), 1 - 0.5 * 8.0))
    moved = weight.detach().clone()
    weight.grad, bias.grad = torch.full((2, 2), 1e-3), None  # short enough: plain SGD, on top of the momentum
    optimiser.step()
    step = 1e-3 + 0.01 * moved + MOMENTUM * share * decayed
    torch.testing.assert_close(weight.data, moved - 0.5 * step)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"method": "simclr", "method__micro_batch": 4}, "micro_batch"),
        ({"method": "supervised", "method__micro_batch": 4}, "micro_batch"),
        ({"method": "structural", "method__generator_optimiser__kind": "lars"}, "kind"),
        ({"method": "supervised", "method__optimiser__kind": "lars"}, "kind"),
        ({"method": "hinge", "method__bank": 64}, "structural has it"),
        ({"method": "simclr", "method__generator__width": 4}, "generator"),
        ({"method": "simclr", "encoder": "biggan"}, "cannot use encoder biggan"),
    ],
)
def test_an_option_that_would_have_no_effect_is_refused(options, said):
    with pytest.raises(InputError, match=said):
        tiny.method(**options)


def test_without_lightly_the_way_to_install_it_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightly", None)
    with pytest.raises(InputError, match=r"sao\[baselines\]"):
        simclr()
