"""Three whole steps of each baseline against a slow reference that is written from its definition."""

from dataclasses import replace

import product
import pytest
import torch
from product import BaselineOptions
from test_structural_step import assert_alike

from sao.networks.cpu import portable

PLAIN = BaselineOptions()
LARS = replace(PLAIN, kind="lars")
VIEWS = {
    "as it is": PLAIN,
    "without an EMA": replace(PLAIN, ema=None),
    "not augmented": replace(PLAIN, augmented=False),
    "vectors": replace(PLAIN, shape=(7,)),
    "lars": replace(LARS, optimiser=replace(PLAIN.optimiser, learning_rate=0.1)),
    "lars, gradients short enough": replace(LARS, optimiser=replace(PLAIN.optimiser, learning_rate=1e-3)),
}


@pytest.mark.parametrize("build", [product.simclr, product.vicreg])
@pytest.mark.parametrize("options", VIEWS.values(), ids=VIEWS)
def test_three_steps_of_two_views_are_those_of_the_reference(build, options):
    method, expected = build(options)
    for number, inputs in enumerate(product.batches(options, 3)):
        found = product.baseline_step(method, inputs, number)
        one, other = found.views
        assert torch.equal(one, other) == (not options.augmented or len(options.shape) == 1)
        with portable():
            logged = expected.step(one, other)
        assert_same_step(number, method, found, logged, expected, expected.network)


def test_a_gradient_is_clipped_at_one_rate_and_not_at_the_other():
    """Otherwise the two cases of LARS would be one."""
    for name, clipped in (("lars", True), ("lars, gradients short enough", False)):
        options = VIEWS[name]
        method, expected = product.simclr(options)
        before = {name: value.clone() for name, value in expected.network.named_parameters() if value.ndim > 1}
        expected.step(*product.baseline_step(method, product.batches(options, 1)[0], 0).views)
        rate, decay = options.optimiser.learning_rate, options.optimiser.weight_decay
        longest = [
            0.02 * weight.norm() / (expected.gradients[name].norm() + decay * weight.norm()) / rate
            for name, weight in before.items()
        ]
        assert all(limit < 1 for limit in longest) if clipped else all(limit > 1 for limit in longest)


@pytest.mark.parametrize("options", [PLAIN, replace(PLAIN, augmented=False), replace(PLAIN, shape=(7,))])
def test_three_steps_with_labels_are_those_of_the_reference(options):
    labels = torch.tensor([2, 0, 1, 1, 0, 2])
    method, expected = product.supervised(options, labels)
    for number, inputs in enumerate(product.batches(options, 3)):
        found = product.baseline_step(method, inputs, number, labels.roll(number))
        (images,) = found.views
        with portable():
            logged = expected.step(images, labels.roll(number))
        assert_same_step(number, method, found, logged, expected, expected.classifier)


def assert_same_step(number, method, found, logged, expected, network) -> None:
    assert_alike(found.scalars, logged, f"step {number}, logged")
    assert_alike(found.gradients, expected.gradients, f"step {number}, gradient")
    ema = {} if expected.ema is None else expected.ema.network.state_dict()
    after = {**network.state_dict(), **{f"ema {name}": value for name, value in ema.items()}}
    assert_alike(product.baseline_state(method), after, f"step {number}, after it", rtol=1e-8)


def test_the_temperature_is_that_of_the_reference():
    options = replace(PLAIN, temperature=0.07)
    method, expected = product.simclr(options)
    found = product.baseline_step(method, product.batches(options, 1)[0], 0)
    assert_alike(found.scalars, expected.step(*found.views), "logged")


def test_the_second_view_can_be_made_in_another_way():
    (inputs,) = product.batches(PLAIN, 1)
    for own, plain in (({}, False), ({"second_view": {}}, True)):
        method, _ = product.simclr(PLAIN, **own)
        one, other = product.baseline_step(method, inputs, 0).views
        assert not torch.equal(one, inputs)
        assert torch.equal(other, inputs) == plain
