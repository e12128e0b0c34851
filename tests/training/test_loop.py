"""The loop: what is learnt depends on the configuration alone, and a run that breaks says where."""

import re
import signal
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from sklearn.datasets import make_blobs

from sao import StructuralEmbedding
from sao.cli.main import main
from sao.core import distributed, objectives
from sao.data.dataset import Dataset, Images
from sao.data.loader import Batches
from sao.errors import InputError
from sao.methods.structural import Structural
from sao.methods.supervised import Supervised
from sao.training import checkpoint, loop
from sao.training.loop import Diverged, Interrupted, new_method
from sao.training.run_folder import DataFacts, Run


def same(found, expected) -> bool:
    return all(torch.equal(value, found.state_dict()[name]) for name, value in expected.state_dict().items())


def relabelled(change) -> Dataset:
    data = tiny.dataset()
    return Dataset(
        data.name, replace(data.train, labels=change(data.train.labels)), replace(data.test, labels=change(data.test.labels))
    )


def test_validating_drawing_and_saving_do_not_change_what_is_learnt(tmp_path):
    quiet, plain = tiny.trained(tmp_path / "quiet", train__steps=4, log__checkpoint_every=1000)
    busy, validated = tiny.trained(
        tmp_path / "busy", train__steps=4, log__evaluate_every=2, log__sample_every=1, log__checkpoint_every=1
    )
    assert same(validated, plain)
    steps = [row for row in tiny.rows(busy.folder) if "discriminator/distance" in row]
    assert steps == tiny.rows(quiet.folder)
    assert [row["step"] for row in tiny.rows(busy.folder) if "eval/effective_rank" in row] == [2, 4]
    assert sorted(path.name for path in busy.samples.iterdir()) == [f"step-0000000{n}.png" for n in (1, 2, 3, 4)]
    assert [path.name for path in quiet.samples.iterdir()] == ["step-00000004.png"]


def test_labels_never_reach_the_method_of_the_paper(tmp_path):
    _, expected = tiny.trained(tmp_path / "true", train__steps=3)
    _, shuffled = tiny.trained(tmp_path / "wrong", relabelled(lambda labels: labels[::-1].copy()), train__steps=3)
    _, without = tiny.trained(tmp_path / "none", relabelled(lambda labels: None), train__steps=3)
    assert same(shuffled, expected)
    assert same(without, expected)


def test_the_seed_decides(tmp_path):
    _, first = tiny.trained(tmp_path / "a", method="supervised", seed=1)
    _, again = tiny.trained(tmp_path / "b", method="supervised", seed=1)
    _, other = tiny.trained(tmp_path / "c", method="supervised", seed=2)
    assert same(again, first)
    assert not same(other, first)


def test_a_row_has_losses_and_diagnostics(tmp_path):
    run, _ = tiny.trained(tmp_path / "run", train__steps=2)
    rows = run.rows()
    assert [row["step"] for row in rows] == [1, 2]
    names = ["distance", "similarity_real", "similarity_fake", "norm_hinge", "smoothness", "gradient_norm", "embedding_norm"]
    names += ["logdet_real", "logdet_fake", "jacobian_norm"]
    for name in (*(f"discriminator/{name}" for name in names), "generator/gradient_norm"):
        assert np.isfinite(rows[-1][name])
    assert rows[-1]["time/samples_per_second"] > 0


def test_rows_come_every_so_often_and_at_the_end(tmp_path):
    run, _ = tiny.trained(tmp_path / "run", method="random", log__every=3)
    assert [row["step"] for row in run.rows()] == [3, 6, 8]
    assert [path.name for path in checkpoint.steps_in(run.checkpoints)] == ["step-00000006", "step-00000008"]


def test_epochs_set_the_length(tmp_path):
    data = Dataset("few", tiny.dataset().train.select(np.arange(40)), tiny.dataset().test.select(np.arange(20)))
    run, _ = tiny.trained(tmp_path / "run", data, method="random", train__epochs=3)
    assert run.rows()[-1]["step"] == 3 * (40 // 16)


def test_can_run_outside_the_main_thread(tmp_path):
    """Signals belong to the main thread; training in another one, as in a notebook's server, goes without them."""
    found = []
    thread = threading.Thread(target=lambda: found.append(tiny.trained(tmp_path / "run", method="random")))
    thread.start()
    thread.join()
    assert len(found[0][0].rows()) == 8


# --- what is not finite --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_term_that_is_not_finite_stops_the_run_and_keeps_the_checkpoint(value, tmp_path, monkeypatch, capsys):
    calls = 0
    similarity = objectives.neighbour_similarity.unchecked

    def breaking(*args, **kwargs):
        nonlocal calls
        calls += 1
        return similarity(*args, **kwargs) * (value if calls > 13 else 1)  # three times a step: the real term of step 5

    monkeypatch.setattr(objectives.neighbour_similarity, "unchecked", breaking)
    out = tmp_path / "run"
    assert main(["train", *tiny.words(), "--out", str(out)]) == 3
    said = capsys.readouterr().err
    assert re.match(
        r"sao: step 5: discriminator/similarity_(real|fake) is NaN or inf; the last good checkpoint, of step 3,", said
    )
    assert said.count("\n") == 1
    assert f"sao resume {out}" in said
    assert said.removeprefix("sao: ").strip() in (out / "log.txt").read_text()
    assert [path.name for path in checkpoint.steps_in(out / "checkpoints")] == ["step-00000003"]
    if value == float("inf"):
        return
    monkeypatch.undo()
    assert main(["resume", str(out)]) == 0
    whole, _ = tiny.trained(tmp_path / "whole")
    assert tiny.rows(out) == tiny.rows(whole.folder)


@pytest.mark.parametrize("player", ["discriminator", "generator"])
def test_an_absurd_learning_rate_is_a_message_not_a_traceback(player, tmp_path):
    with pytest.raises(Diverged, match=r"^step [12]: \S.*NaN or inf.*no checkpoint was made yet") as stop:
        tiny.trained(tmp_path / "run", None, **{f"method__{player}_optimiser__learning_rate": 1e38})
    assert "lower learning rate" in str(stop.value)


@pytest.mark.parametrize(
    ("due", "looked_at", "kept"),
    [
        ({"log__checkpoint_every": 100}, 10, "no checkpoint"),
        ({"log__checkpoint_every": 3}, 6, "of step 3"),
        ({"log__checkpoint_every": 100, "log__evaluate_every": 7}, 7, "no checkpoint"),
    ],
)
def test_nobody_looks_before_something_is_kept_and_the_step_that_broke_is_named(due, looked_at, kept, tmp_path, monkeypatch):
    step, made = Supervised.step, []

    def breaking(self, batch, number):
        made.append(number + 1)
        return step(self, replace(batch, inputs=batch.inputs * torch.nan) if number == 4 else batch, number)

    monkeypatch.setattr(Supervised, "step", breaking)
    options = {"train__steps": 20, "log__every": 10, **due}
    with pytest.raises(Diverged, match=rf"^step 5: classifier/cross_entropy is NaN or inf; .*{kept}"):
        tiny.trained(tmp_path / "run", method="supervised", **options)
    assert made[-1] == looked_at


def test_weights_that_are_not_finite_are_never_saved(tmp_path, monkeypatch):
    """An update can overflow although its losses and gradients were finite."""
    step = Supervised.step

    def overflowing(self, inputs, number):
        scalars = step(self, inputs, number)
        if number == 5:
            self.classifier.head.bias.data[0] = torch.inf
        return scalars

    monkeypatch.setattr(Supervised, "step", overflowing)
    with pytest.raises(Diverged, match=r"step 6: classifier.head.bias became NaN or inf by the update; .* of step 3"):
        tiny.trained(tmp_path / "run", method="supervised")
    assert [path.name for path in checkpoint.steps_in(tmp_path / "run/checkpoints")] == ["step-00000003"]


def test_a_factorisation_that_fails_is_divergence_too(tmp_path, monkeypatch):
    monkeypatch.setattr(objectives, "_logdet", lambda covariance: torch.linalg.cholesky(-covariance).sum())
    with pytest.raises(Diverged, match=r"^step 1: jensen_shannon: "):
        tiny.trained(tmp_path / "run")


# --- what is built -------------------------------------------------------------------------------------------------------


def test_refuses_images_too_small_or_not_square():
    for height, width in ((4, 4), (8, 16), (300, 300)):
        images = Images(np.zeros((20, height, width, 1), np.uint8))
        with pytest.raises(InputError, match=f"{height}x{width}"):
            new_method(tiny.config(), Dataset("flat", images, images), torch.device("cpu"))


@pytest.mark.parametrize(("kind", "name"), [(Structural, "structural"), (Supervised, "supervised")])
def test_labels_are_given_to_the_supervised_method_alone(kind, name, tmp_path, monkeypatch):
    given = []
    tiny.before_step(monkeypatch, kind, lambda method, batch, number: given.append(batch.labels))
    tiny.trained(tmp_path / "run", method=name, train__steps=2)
    assert len(given) == 2
    assert all((labels is not None) == (name == "supervised") for labels in given)


# --- the folder of a run -------------------------------------------------------------------------------------------------


def test_rows_after_a_checkpoint_and_rows_cut_short_are_forgotten(tmp_path):
    run = Run.create(tmp_path / "run", tiny.config(), DataFacts.of(tiny.dataset()))
    run.cut_metrics(3)  # nothing was logged yet
    assert not run.metrics.exists()
    run.metrics.write_text('{"step": 1}\n{"step": 3}\n{"step": 3, "eval/x": 1}\n{"step": 4}\n{"step": 5, "lo')
    run.cut_metrics(3)
    assert run.rows() == [{"step": 1}, {"step": 3}, {"step": 3, "eval/x": 1}]


def test_a_start_that_was_killed_can_be_made_again(tmp_path):
    folder, facts = tmp_path / "run", DataFacts.of(tiny.dataset())
    folder.mkdir()
    (folder / ".new-writing").mkdir()
    (folder / ".new-writing" / "config.yaml").write_text("meth")
    run = Run.create(folder, tiny.config(), facts)
    assert run.config == tiny.config()
    (folder / "data.json").unlink()
    run.prepare(facts)
    assert run.facts == facts
    with pytest.raises(InputError, match="data has changed"):
        run.prepare(replace(facts, samples=3))


ROWS = np.asarray(make_blobs(60, 4, centers=3, random_state=1)[0])


def breaks_a_term(method: Structural) -> None:
    method.health.found_inf({"discriminator/distance": torch.tensor(torch.nan)})


def breaks_a_weight(method: Structural) -> None:
    with torch.no_grad():
        next(method.parameters()).fill_(torch.inf)


@pytest.mark.parametrize(
    ("breaks", "said"),
    [
        (breaks_a_term, r"^step 3: discriminator/distance is NaN or inf; set options"),
        (breaks_a_weight, r"^step 3: .* became NaN or inf by the update; set options"),
    ],
)
@pytest.mark.parametrize("steps", [1000, 3])
def test_a_broken_training_is_refused_whether_it_is_interrupted_or_complete(breaks, said, steps, monkeypatch):
    """No row is logged before its end: nothing else looks at the numbers."""
    step = Structural.step

    def breaking(self, batch, number):
        scalars = step(self, batch, number)
        if number == 2:
            breaks(self)
            if steps > 3:
                signal.raise_signal(signal.SIGINT)  # as a person types it
        return scalars

    monkeypatch.setattr(Structural, "step", breaking)
    with pytest.raises(Diverged, match=said):
        StructuralEmbedding(3, steps=steps, options={"log.every": 1000}, random_state=0).fit(ROWS)


QUIET = {"method": "random", "train__steps": 9, "log__every": 100, "log__checkpoint_every": 4, "train__check_every": 3}


class Others:
    """Stands for `sao.core.distributed` in the loop: two processes, of which the other answers as it is told."""

    def __init__(self, *answers: bool, stop_at: int | None = None, size: int = 2) -> None:
        self.answers, self.stop_at, self.size = list(answers), stop_at, size
        self.asked: list[tuple[int, ...]] = []
        self.stops = 0

    def world_size(self) -> int:
        return self.size

    def is_main(self) -> bool:
        return True

    def same(self, *numbers: int) -> bool:
        self.asked.append(numbers)
        return self.answers.pop(0) if self.answers else True

    def any_of(self, flag: bool) -> bool:
        self.stops += 1
        return flag or self.stops == self.stop_at

    checksum = staticmethod(distributed.checksum)


def train(monkeypatch: pytest.MonkeyPatch, folder: Any, others: Others, **options: Any) -> None:
    monkeypatch.setattr(loop, "distributed", others)
    tiny.trained(folder, None, **(QUIET | options))


def test_a_run_begins_with_the_same_data_and_the_same_state_on_all(tmp_path, monkeypatch):
    others = Others()
    train(monkeypatch, tmp_path / "run", others)
    data, state = others.asked[:2]
    samples = tiny.dataset().train
    first = Batches(samples, torch.device("cpu")).inputs(torch.arange(64))
    assert data == (len(samples), distributed.checksum([first]))
    assert state[:2] == (0, 9)
    assert state[2] == others.asked[-1][0]  # a method that learns nothing keeps its weights


@pytest.mark.parametrize(("answers", "said"), [((False,), "different data"), ((True, False), "not start from the same state")])
def test_processes_that_begin_differently_are_refused(answers, said, tmp_path, monkeypatch):
    with pytest.raises(InputError, match=said):
        train(monkeypatch, tmp_path / "run", Others(*answers))


def test_weights_are_compared_every_so_often_and_before_they_are_saved(tmp_path, monkeypatch):
    """Steps 3, 6 and 9 are those of train.check_every, 4, 8 and 9 those of a checkpoint."""
    others = Others()
    train(monkeypatch, tmp_path / "run", others)
    assert len(others.asked) == 2 + len({3, 4, 6, 8, 9})


@pytest.mark.parametrize(("answers", "step", "saved"), [((True,) * 2, 3, 0), ((True,) * 4, 6, 4), ((True,) * 5, 8, 4)])
def test_weights_that_differ_stop_the_run_and_the_last_checkpoint_is_named(answers, step, saved, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    with pytest.raises(Diverged, match=rf"^step {step}: the processes have different weights; .* of step {saved}, .*{folder}"):
        train(monkeypatch, folder, Others(*answers, False))


def test_one_process_asks_nobody(tmp_path, monkeypatch):
    others = Others(False, False, False, size=1)
    train(monkeypatch, tmp_path / "run", others)
    assert others.asked == []
    assert others.stops == 0


def test_processes_stop_together_at_a_step_that_is_logged(tmp_path, monkeypatch):
    others = Others(stop_at=2)
    with pytest.raises(Interrupted, match="stopped after step 6 of 9"):
        train(monkeypatch, tmp_path / "run", others, log__every=3)
    assert others.stops == 2
