"""BYOL, NNCLR, SwAV and DINO: that they learn, do not collapse, and go on; steps are in test_view_steps."""

import math

import pytest
import tiny
import torch
from test_controls import inputs
from test_simclr import PLAIN

from sao.errors import InputError
from sao.methods import METHODS
from sao.methods.swav import sinkhorn
from sao.methods.two_view import TwoViews, rising_to_1, spread
from sao.training.schedule import LearningRates

TWO_VIEWS = ("byol", "nnclr", "swav", "dino")
CROPS = {**PLAIN, "method__view__crop": 0.5, "method__second_view": "null"}


def new_method(name: str, **options) -> TwoViews:
    return tiny.method_of(TwoViews, method=name, **options)


# The published sizes of projector and predictor for features of 512 numbers.
HEADS = {
    "byol": ([(4096, 512), (256, 4096)], [(4096, 256), (256, 4096)]),
    "nnclr": ([(2048, 512), (2048, 2048), (256, 2048)], [(4096, 256), (256, 4096)]),
    "swav": ([(2048, 512), (128, 2048)], [(3000, 128)]),
    "dino": ([(2048, 512), (2048, 2048), (256, 2048)], [(4096, 256)]),
}


@pytest.mark.parametrize("name", HEADS)
def test_heads_have_the_published_sizes(name):
    with torch.device("meta"):
        method = tiny.load_preset("cifar10", {"method": name}).build_method((3, 32, 32), 50_000, None)
    assert isinstance(method, TwoViews)
    for part, sizes in zip((method.network.head, method.predictor), HEADS[name], strict=True):
        assert [tuple(weight.shape) for weight in part.parameters() if weight.ndim == 2] == sizes


def test_the_decay_rises_along_a_cosine():
    assert rising_to_1(0.99, 0, 100) == pytest.approx(0.99)
    assert rising_to_1(0.99, 50, 100) == pytest.approx(0.995)
    assert rising_to_1(0.99, 100, 100) == pytest.approx(1)


ALWAYS = ("byol", "dino")  # which could collapse


@pytest.mark.parametrize("name", [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.slow) for name in TWO_VIEWS])
def test_it_learns_on_digits_and_does_not_collapse(name):
    short = {
        "byol": {"method__momentum": 0.9},
        "nnclr": {"method__queue": 256},
        "swav": {"method__frozen_epochs": 0, "method__queue": 0},
        "dino": {
            "method__momentum": 0.99,
            "method__frozen_epochs": 3,
            "method__outputs": 256,
            "method__teacher_temperature": 0.04,
        },
    }[name]
    sizes = {"encoder__widths": "[16, 32]", "method__hidden_size": 64, "method__projection_size": 32}
    length = {"train__batch": 64, "train__steps": 100, "method__optimiser__learning_rate": 1e-3}
    method = new_method(name, **CROPS, **sizes, **short, **length)
    rates, rows = LearningRates(method.optimisers, "constant", 100, 50), []
    for step in range(100):
        rates.set(step)
        rows.append(method.step(tiny.batch(step, 64), step))
    losses = torch.stack([row[f"network/{name}"] for row in rows]).unfold(0, 5, 5).mean(1)
    assert float(losses[-1]) < 0.93 * float(losses.max())  # DINO's rises at first, while its centre settles
    assert min(float(row["network/spread"]) for row in rows) > 0.1  # collapsed: 0.01


@pytest.mark.parametrize("name", TWO_VIEWS)
def test_a_device_without_memory_can_make_views_projections_and_losses(name):
    """So nothing is read back; smaller views included."""
    small = {"method__small_views__size": 8} if name == "swav" else {}
    method = new_method(name, **small, method__view__crop=0.5).to("meta")
    images = inputs().to("meta")
    for step in (0, 100, 100_000):
        views = method._gathered(images, step)
        (loss,) = method.losses(views, step).values()
        loss.backward()
        method.update_bank(views, step)
        assert loss.device.type == "meta"


@pytest.mark.parametrize("name", ["swav", "dino"])
def test_what_is_frozen_does_not_move(name):
    method = new_method(name, method__frozen_epochs=2 / 89)
    for step in range(4):
        before = next(method.predictor.parameters()).clone()
        method.step(tiny.batch(step), step)
        assert torch.equal(next(method.predictor.parameters()), before) == (step < 2)


def test_features_come_from_the_network_that_learns():
    """Not from its teacher, which is behind."""
    for name in ("byol", "dino"):
        method = new_method(name)
        before = method.features(inputs())
        with torch.no_grad():
            for parameter in method.get_submodule("teacher").parameters():
                parameter.zero_()
        assert torch.equal(method.features(inputs()), before)
        assert not method.has_ema


def test_same_views_are_one_view():
    method = new_method("nnclr", method__same_views="true")
    assert len(method.views) == 1
    assert tiny.config(method="nnclr", method__same_views="true").method.model_dump()["second_view"] is None
    with pytest.raises(InputError, match="same_views makes one view: leave second_view out"):
        new_method("nnclr", method__same_views="true", method__second_view__flip="true")


def test_small_views_are_smaller_and_as_many_as_asked_for():
    method = new_method("swav", method__small_views__count=3, method__small_views__size=8)
    assert len(method.views) == 5
    images = torch.rand(4, 1, 16, 16) * 2 - 1
    made = [view(images, 0, f"view {index}", 0, 4) for index, view in enumerate(method.views)]
    assert [image.shape[2:] for image in made] == [(16, 16)] * 2 + [(8, 8)] * 3
    assert not torch.equal(made[2], made[3])
    with pytest.raises(InputError, match=r"crop 0\.6 is larger than largest 0\.5"):
        new_method("swav", method__small_views__crop=0.6)


def test_assignments_are_even_and_do_not_overflow():
    scores = 0.3 * torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    shares = sinkhorn(scores, 0.05, 50)
    torch.testing.assert_close(shares.sum(1), torch.ones(64))
    torch.testing.assert_close(shares.sum(0), torch.full((8,), 8.0), atol=0.3, rtol=0)
    sharp = sinkhorn(scores, 1e-4, 3)
    assert bool(sharp.isfinite().all())


def test_a_uniform_teacher_gives_the_loss_of_a_collapse():
    """ln K, which is what to look for."""
    method = new_method("dino")
    equal = {"output": torch.zeros(16, 12), "target": torch.zeros(16, 12)}
    (loss,) = method.losses([equal, equal], 0).values()
    assert float(loss) == pytest.approx(math.log(12))


def test_every_method_says_whether_it_collapses():
    for name in [name for name in METHODS if name in (*TWO_VIEWS, "simclr", "vicreg")]:
        assert 0 < float(new_method(name).step(tiny.batch(), 0)["network/spread"]) < 1.1


def test_a_batchnorm_at_the_end_of_a_projector_hides_no_collapse():
    """NNCLR's makes projections differ however alike the features are that they are made of."""
    method = new_method("nnclr")
    method.network.encoder.register_forward_hook(lambda module, inputs, features: 1 + 1e-3 * features)
    (view, *_) = method._gathered(tiny.batch().inputs, 0)
    assert float(spread(view["projection"])) > 0.5
    assert float(method.step(tiny.batch(), 0)["network/spread"]) < 0.01
