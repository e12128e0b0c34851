"""SimCLR: its views, and that it learns and goes on as every other method; its step is compared in test_baseline_steps."""

from functools import partial

import pytest
import tiny
import torch
from test_controls import inputs

from sao.methods.optimisers import LARS, MOMENTUM, TRUST
from sao.methods.simclr import SimCLR
from sao.methods.third_party import import_lightly
from sao.methods.vicreg import VICReg

PLAIN = {
    f"method__view__{name}": value
    for name, value in {"crop": "null", "jitter": "null", "grey": 0, "blur": 0, "flip": "false"}.items()
}
AUGMENTED = {**PLAIN, "method__view__flip": "true", "method__view__crop": 0.5, "method__view__jitter": "[0.4, 0.4, 0.4, 0.1]"}


simclr = partial(tiny.method_of, SimCLR, method="simclr")


def test_views_differ_with_augmentation_alone():
    for options, same in ((PLAIN, True), (AUGMENTED, False)):
        method = simclr(**options)
        one, other = (view(inputs(), 0, f"view {index}", 0, method.batch) for index, view in enumerate(method.views))
        assert torch.equal(one, other) == same
        assert torch.equal(one, inputs()) == same


@pytest.mark.parametrize(
    "options",
    [{"method__optimiser__learning_rate": 1e-2}, {"method__optimiser__kind": "lars", "method__optimiser__learning_rate": 0.1}],
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


@pytest.mark.parametrize("weights", [(25.0, 25.0, 1.0), (1.0, 0.0, 7.0), (0.0, 3.0, 0.0)])
def test_the_loss_is_that_of_lightly(weights):
    """Ours has no mask of booleans as an index: for that a GPU would be waited for."""
    import_lightly("vicreg")
    from lightly.loss import VICRegLoss

    names = ("invariance", "variance", "covariance")
    method = tiny.method_of(VICReg, method="vicreg", **dict(zip((f"method__{name}" for name in names), weights, strict=True)))
    generator = torch.Generator().manual_seed(0)
    one, other = (torch.randn(16, 8, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(2))
    ours = method.losses([{"projection": one}, {"projection": other}], 0)["vicreg"]
    theirs = VICRegLoss(*weights)(one, other)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(torch.autograd.grad(ours, (one, other)), torch.autograd.grad(theirs, (one, other)))
