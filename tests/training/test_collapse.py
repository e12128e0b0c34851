"""A run whose network answers alike to everything says so."""

import math
from collections.abc import Iterable

import pytest
import tiny

from sao.training.validation import ALIKE, LONGER, NONE_LEFT, PATIENCE, Collapse


def said(rows: Iterable[dict[str, float]], what: str = "", uniform: dict[str, float] | None = None) -> list[int]:
    """Indices of the rows after which something is said that has this in it."""
    collapse = Collapse(uniform)
    return [index for index, row in enumerate(rows) if (news := collapse.seen(index, row)) is not None and what in news]


def test_a_collapse_is_said_once_and_a_moment_is_none():
    def after(spreads: list[float]) -> list[int]:
        return said({"network/spread": spread} for spread in spreads)

    low, high = ALIKE / 2, 0.5
    assert after([high] * 9) == []
    assert after([low] * (PATIENCE - 1) + [high] + [low] * (PATIENCE - 1)) == []
    assert after([high] + [low] * 30) == [PATIENCE]
    assert after([low] * PATIENCE + [high] + [low] * PATIENCE) == [PATIENCE - 1, 2 * PATIENCE]


def test_a_loss_that_stays_where_all_outputs_are_alike_is_said_once():
    def after(losses: list[float]) -> list[int]:
        rows = ({"network/spread": 0.6, "network/swav": loss} for loss in losses)
        return said(rows, "stayed at 2.000", {"network/swav": 2.0})

    assert after([2.001] * 70) == [LONGER - 1]
    assert after([1.98] * 70) == []
    assert after([2.0] * (LONGER - 1) + [1.5] + [2.0] * (LONGER - 1)) == []


def test_a_distance_that_is_gone_is_said_once_whatever_single_rows_say():
    def after(distances: list[float]) -> list[int]:
        rows = ({"discriminator/distance": -distance, "discriminator/embedding_norm": 1.0} for distance in distances)
        return said(rows, "does not tell")

    gone, there = NONE_LEFT / 2, 2.0
    assert after([there] * 40) == []
    assert after([gone, there] * 20) == []
    assert after([gone] * (PATIENCE - 1)) == []
    assert after([gone, gone, there] * 20) == [PATIENCE - 1]
    assert after([gone] * PATIENCE + [there] * PATIENCE + [gone] * PATIENCE) == [PATIENCE - 1, 2 * PATIENCE + PATIENCE // 2]


@pytest.mark.parametrize(("length", "advice"), [(12.0, "--method.norm_side ceiling"), (0.3, "--method.lipschitz")])
def test_what_to_do_about_it_depends_on_the_lengths(length, advice):
    rows = [{"discriminator/distance": -0.01, "discriminator/embedding_norm": length}] * 30
    assert said(rows) == said(rows, advice) == [PATIENCE - 1]


def test_a_structural_run_says_that_its_discriminator_has_collapsed(tmp_path, capsys):
    """Steps so long that the embeddings run away."""
    line = "the discriminator does not tell real samples from generated ones"
    for rate, collapsed in ((1e-3, False), (1.0, True)):
        changes = {"method__discriminator_optimiser__learning_rate": rate, "method__norm_weight": 0}
        run, _ = tiny.trained(tmp_path / str(rate), train__steps=20, log__every=1, **changes)
        assert (line in capsys.readouterr().out) is collapsed
        assert (line in (run.folder / "log.txt").read_text()) is collapsed


@pytest.mark.parametrize(("name", "option"), [("swav", "prototypes"), ("dino", "outputs")])
def test_where_a_loss_means_that_outputs_are_alike(name, option):
    """Equal scores of every output give just that loss."""
    method = tiny.method(method=name)
    count = int(tiny.METHODS[name][f"method.{option}"])
    assert method.uniform_losses is not None
    ((loss, value),) = method.uniform_losses.items()
    for weight in method.predictor.parameters():  # pyright: ignore[reportAttributeAccessIssue]
        weight.data.zero_()
    assert value == pytest.approx(math.log(count))
    assert float(method.step(tiny.batch(), 0)[loss]) == pytest.approx(value, rel=1e-5)


def test_rows_without_it_are_passed_over():
    assert Collapse().seen(0, {"discriminator/spread": 0.0}) is None


@pytest.mark.parametrize(("name", "collapsed"), [("dino", True), ("byol", False)])  # the first begins as one that has
def test_a_run_says_that_its_network_has_collapsed(name, collapsed, tmp_path, capsys):
    run, _ = tiny.trained(tmp_path / "run", method=name, train__steps=12, log__every=1)
    line = "the network answers nearly the same to every image"
    assert (line in capsys.readouterr().out) is collapsed
    assert (line in (run.folder / "log.txt").read_text()) is collapsed
