"""The cost of a step: tried where affordable, else a line through two trials."""

import time

import pytest
import tiny
import torch

from sao.training import cost
from sao.training.cost import Trial, step_cost

GB = 2**30


@pytest.fixture
def trials(monkeypatch):
    """Trials of a machine that takes 1 s and 1 GB, and for each sample 0.1 s and 0.01 GB more."""
    tried = []

    def trial(config, dataset, batch):
        tried.append(batch)
        return Trial(batch, 1 + 0.1 * batch, GB + batch * GB // 100, torch.nn.Identity())  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(cost, "_trial", trial)
    monkeypatch.setattr(cost, "SMALL_BATCH_NUMBERS", 8 * 64)  # eight digits
    monkeypatch.setattr(cost, "usable_memory", lambda: 100 * GB)
    return tried


def test_a_small_batch_is_simply_tried(trials):
    found = step_cost(tiny.config(train__batch=16), tiny.dataset())
    assert trials == [16]
    assert (found.seconds, found.trial.batch) == (pytest.approx(2.6), 16)


def test_a_larger_one_is_tried_too_where_smaller_ones_say_that_it_can(trials):
    found = step_cost(tiny.config(train__batch=80), tiny.dataset())
    assert trials == [8, 16, 80]
    assert (found.seconds, found.trial.batch) == (pytest.approx(9), 80)


@pytest.mark.parametrize(("batch", "here"), [(1000, 100 * GB), (80, GB)])
def test_what_would_take_too_long_or_too_much_is_a_line_through_two_trials(trials, batch, here, monkeypatch):
    monkeypatch.setattr(cost, "usable_memory", lambda: here)
    found = step_cost(tiny.config(train__batch=batch), tiny.dataset())
    assert trials == [8, 16]
    assert found.trial.batch == 16
    assert found.seconds == pytest.approx(1 + 0.1 * batch)
    assert found.memory == pytest.approx(GB + batch * GB / 100, rel=1e-3)


def test_steps_that_do_more_than_others_count_with_their_share(monkeypatch):
    now = [0.0]

    def make_step(method, batches, seed, batch, step):
        now[0] += 2.0 if step % 2 else 0.5
        return {"loss": torch.zeros(())}

    monkeypatch.setattr("sao.training.loop.make_step", make_step)
    monkeypatch.setattr(cost.time, "perf_counter", lambda: now[0])
    assert cost._trial(tiny.config(method__smooth_every=2), tiny.dataset(), 16).seconds == 1.25


def test_the_first_step_is_not_timed(monkeypatch):
    made = []

    def make_step(method, batches, seed, batch, step):
        made.append(step)
        time.sleep(0.3 if step == 0 else 0.01)
        return {"loss": torch.zeros(())}

    monkeypatch.setattr("sao.training.loop.make_step", make_step)
    monkeypatch.setattr(cost, "TIMED_SECONDS", 0.05)
    found = step_cost(tiny.config(train__batch=16), tiny.dataset())
    assert found.seconds == pytest.approx(0.01, abs=0.02)
    assert 3 <= len(made) <= 9
