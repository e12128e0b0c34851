"""The two ends of every comparison share the interface of the method between them."""

import pytest
import tiny
import torch

from sao.data.batches import Batches
from sao.engine.features import extract
from sao.methods import Method, NonFiniteError, Supervised, build_method
from sao.methods.method import check_finite
from sao.randomness import batch_rows

METHODS = ["structural", "simclr", "supervised", "random"]


def inputs(step: int = 0, batch: int = 16) -> torch.Tensor:
    train = tiny.dataset().train
    return Batches(train, torch.device("cpu")).rows(batch_rows(0, step, batch, len(train)))


@pytest.mark.parametrize("name", METHODS)
def test_all_methods_share_one_interface(name):
    method = tiny.method(method=name)
    assert isinstance(method, Method)
    scalars = method.step(inputs(), 0)
    assert scalars
    assert all(value.ndim == 0 and not value.requires_grad and torch.isfinite(value) for value in scalars.values())
    features = method.features(inputs())
    assert features.shape == (16, 8)
    assert not features.requires_grad
    assert len(method.embeddings(inputs())) == 16
    assert len(method.smooth_function(inputs())) == 16
    assert (method.sample(torch.randn(2, 8)) is None) == (name != "structural")
    players = {"structural": {"discriminator", "generator"}, "simclr": {"contrast"}, "supervised": {"classifier"}}
    assert set(method.optimisers) == players.get(name, set())


@pytest.mark.parametrize("name", METHODS)
def test_all_methods_begin_with_the_same_backbone(name):
    """So that a comparison compares what was learnt."""
    torch.testing.assert_close(tiny.method(method=name).features(inputs()), tiny.method(method="random").features(inputs()))
    assert not torch.equal(tiny.method(method=name, seed=1).features(inputs()), tiny.method(method="random").features(inputs()))


def test_random_stays_as_it_is():
    method = tiny.method(method="random")
    before = {name: value.clone() for name, value in method.state_dict().items()}
    for step in range(3):
        method.step(inputs(step), step)
    assert all(torch.equal(value, method.state_dict()[name]) for name, value in before.items())


def test_supervised_learns_digits():
    method = tiny.method(method="supervised", train__batch=64, train__discriminator__learning_rate=1e-2, train__ema=0.9)
    assert isinstance(method, Supervised)
    losses = [float(method.step(inputs(step, 64), step)["classifier/cross_entropy"]) for step in range(80)]
    assert sum(losses[-5:]) < 0.6 * sum(losses[:5])
    features = extract(method.features, tiny.dataset().test, torch.device("cpu"))
    guesses = method.classifier(torch.from_numpy(features)).argmax(1).numpy()
    assert (guesses == tiny.dataset().test.labels).mean() > 0.6  # chance is 0.1


def test_supervised_pairs_images_with_their_own_labels():
    """The step is told the images alone, and must find the labels of exactly these rows."""
    method = tiny.method(method="supervised")
    assert isinstance(method, Supervised)
    labels = torch.as_tensor(tiny.dataset().train.labels)[batch_rows(0, 3, 16, 1437)]
    logits = method.classifier(method.backbone.features(inputs(3)))  # pyright: ignore[reportCallIssue]
    expected = torch.nn.functional.cross_entropy(logits, labels)
    torch.testing.assert_close(method.step(inputs(3), 3)["classifier/cross_entropy"], expected.detach())


def test_supervised_can_embed_without_labels():
    method = build_method(tiny.config(method="supervised"), (1, 8, 8), 100, classes=10)
    assert method.features(inputs()).shape == (16, 8)
    with pytest.raises(AssertionError, match="without labels"):
        method.step(inputs(), 0)


def test_the_first_term_that_is_not_finite_is_named():
    check_finite({"a": torch.tensor(1.0), "b": torch.tensor(-1e30)})
    with pytest.raises(NonFiniteError) as stop:
        check_finite({"a": torch.tensor(1.0), "b": torch.tensor(torch.inf), "c": torch.tensor(torch.nan)})
    assert stop.value.term == "b"


def test_nothing_is_updated_with_what_is_not_finite():
    method = tiny.method(method="supervised")
    before = {name: value.clone() for name, value in method.state_dict().items()}
    with pytest.raises(NonFiniteError, match="classifier/cross_entropy"):
        method.step(inputs() * torch.nan, 0)
    assert all(torch.equal(value, method.state_dict()[name]) for name, value in before.items())
