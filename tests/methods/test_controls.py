"""The two ends of every comparison share the interface of the method between them."""

from dataclasses import FrozenInstanceError

import pytest
import tiny
import torch

from sao.core import distributed
from sao.errors import InputError
from sao.evaluation.extract import extract
from sao.methods import METHODS, Context, Method, OtherRun, generative
from sao.methods.base import clip_grad_norm, gradient_norm
from sao.methods.encoders import ResNetOptions
from sao.methods.supervised import Supervised

BOTH = {"discriminator", "generator"}
PLAYERS = {name: {"network"} for name in METHODS}
PLAYERS |= dict.fromkeys(("structural", "hinge", "biggan", "self_conditioned", "stylegan2"), BOTH)
PLAYERS |= {"bigbigan": BOTH | {"encoder"}, "supervised": {"classifier"}, "random": set()}
SIZES = {"self_conditioned": 8 * 4 * 4}  # of features, where they are not of the small backbone that all others share


def inputs(step: int = 0, size: int = 16) -> torch.Tensor:
    return tiny.batch(step, size).inputs


@pytest.mark.parametrize("name", METHODS)
def test_all_methods_share_one_interface(name):
    method = tiny.method_of(Method, method=name)
    scalars = method.step(tiny.batch(), 0)
    assert scalars
    assert set(method.headline) <= scalars.keys()
    assert all(value.ndim == 0 and not value.requires_grad and torch.isfinite(value) for value in scalars.values())
    features = method.features(inputs().requires_grad_())  # also where the inputs would make a graph
    assert features.shape == (16, SIZES.get(name, 8))
    assert not features.requires_grad
    assert len(method.embeddings(inputs())) == 16
    assert len(method.smooth_function(inputs())) == 16
    assert set(method.optimisers) == PLAYERS[name]
    maker = generative(method)
    assert (maker is not None) == METHODS[name].generates
    if maker is not None:
        assert maker.decode(torch.randn(2, *maker.latent_shape)).shape == (2, 1, 8, 8)


def untrained(name: str) -> Method:
    """The control with the encoder of another method."""
    encoder = {key.replace(".", "__"): value for key, value in tiny.METHODS[name].items() if key.startswith("encoder")}
    return tiny.method(method="random", **encoder)


@pytest.mark.parametrize("name", [*(name for name, options in METHODS.items() if options.can_use(ResNetOptions)), "mae"])
def test_all_methods_begin_with_the_same_backbone(name):
    """So that a comparison compares what was learnt."""
    expected = untrained(name).features(inputs())
    torch.testing.assert_close(tiny.method(method=name).features(inputs()), expected)
    assert not torch.equal(tiny.method(method=name, seed=1).features(inputs()), expected)


def test_random_stays_as_it_is():
    method = tiny.method(method="random")
    before = {name: value.clone() for name, value in method.state_dict().items()}
    for step in range(3):
        assert float(method.step(tiny.batch(step), step)["random/steps"]) == step + 1  # how far the run is
    assert all(torch.equal(value, method.state_dict()[name]) for name, value in before.items())


def test_supervised_learns_digits():
    method = tiny.method_of(
        Supervised, method="supervised", train__batch=64, method__optimiser__learning_rate=1e-2, method__ema_decay=0.9
    )
    losses = [float(method.step(tiny.batch(step, 64), step)["classifier/cross_entropy"]) for step in range(80)]
    assert sum(losses[-5:]) < 0.6 * sum(losses[:5])
    features = extract(method.features, tiny.dataset().test, torch.device("cpu"))
    guesses = method.classifier.head(torch.from_numpy(features)).argmax(1).numpy()
    assert (guesses == tiny.dataset().test.labels).mean() > 0.6  # chance is 0.1


def test_supervised_pairs_images_with_their_own_labels():
    method, batch = tiny.method(method="supervised"), tiny.batch(3)
    assert isinstance(method, Supervised)
    labels = torch.as_tensor(tiny.dataset().train.labels)[batch.rows]
    expected = torch.nn.functional.cross_entropy(method.classifier(batch.inputs)[1], labels)
    torch.testing.assert_close(method.step(batch, 3)["classifier/cross_entropy"], expected.detach())


def test_supervised_can_embed_without_labels():
    method = tiny.config(method="supervised").build_method((1, 8, 8), 100, classes=10)
    assert method.features(inputs()).shape == (16, 8)
    with pytest.raises(InputError, match="needs labels"):
        tiny.config(method="supervised").build_method((1, 8, 8), 100, classes=None)


SUMMED = {name: {"method": name} for name in METHODS if name != "random"} | {"one pass": {"method__one_pass": "true"}}


@pytest.mark.parametrize("options", SUMMED.values(), ids=SUMMED)
def test_processes_add_up_the_gradients_of_all_that_is_updated(options, monkeypatch):
    """Looked at before they would be sent: a single process, as here, sends nothing."""
    summed: list[torch.Tensor] = []
    monkeypatch.setattr(distributed, "sum_gradients", summed.extend)
    method = tiny.method(**options)
    method.step(tiny.batch(), 0)
    groups = [group for optimiser in method.optimisers.values() for group in optimiser.param_groups]
    assert {id(parameter) for parameter in summed} == {id(parameter) for group in groups for parameter in group["params"]}


@pytest.mark.parametrize("chosen", ["bfloat16", "tf32"])
def test_passes_are_made_in_the_precision_that_was_chosen(chosen):
    method = tiny.method(method="random")
    setattr(method, f"autocast_{chosen}", True)
    with method.autocast(inputs()):
        assert torch.is_autocast_enabled("cpu") == (chosen == "bfloat16")
        assert torch.get_float32_matmul_precision() == ("high" if chosen == "tf32" else "highest")


def test_what_a_method_is_told_of_its_run_and_of_others_stays_as_it_is():
    context = Context(shape=(1, 8, 8), samples=100, batch=10, steps=5, seed=0)
    with pytest.raises(FrozenInstanceError):
        context.batch = 20  # pyright: ignore[reportAttributeAccessIssue]
    other = OtherRun("runs/other", METHODS["random"](name="random"), None, 0)
    with pytest.raises(FrozenInstanceError):
        other.seed = 1  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(("gradient", "expected"), [([3.0, 4.0], [1.2, 1.6]), ([0.3, 0.4], [0.3, 0.4])])
def test_a_long_gradient_is_clipped_and_a_short_one_stays(gradient, expected):
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor(gradient)
    clip_grad_norm([parameter], gradient_norm([parameter]), limit=2.0)
    torch.testing.assert_close(parameter.grad, torch.tensor(expected))
