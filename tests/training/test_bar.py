"""A bar on a terminal, plain lines elsewhere, and nothing of a bar in a file."""

import io
import os
import sys

import numpy as np
import pytest

from sao.training.bar import MARKS, Bar, TimeLeft
from sao.training.log import EVALUATION, Progress, Stages


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    """Of all that is timed."""
    monkeypatch.setattr("time.monotonic", found := Clock())
    return found


def test_a_bar_is_drawn_on_a_terminal_and_goes_away():
    screen = Terminal()
    progress = Bar("reading", "items", screen)
    for done in (1, 50, 100):
        progress(done, 100, "so far")
        progress.last = 0
    text = screen.getvalue()
    assert "reading" in text
    assert "/100" in text
    assert text.endswith("\r")  # the line is free again


def test_a_bar_of_nobody_knows_how_many():
    screen, file = Terminal(), io.StringIO()
    progress, lines = Bar("reading", "items", screen), Bar("reading", "items", file)
    for done, total in ((1, 0), (50, 0), (50, 50)):
        progress(done, total)
        lines.last = -100
        lines(done, total)
    assert "items" in screen.getvalue()
    assert screen.getvalue().endswith("\r")
    assert file.getvalue() == "reading: 1 items\nreading: 50 items\nreading: 50 of 50 items\n"


def test_elsewhere_it_is_a_line_now_and_then(clock):
    file = io.StringIO()
    progress = Bar("reading", "items", file)
    for done in range(1, 41):
        clock.now += 1.0
        progress(done, 40)
    assert file.getvalue() == "reading: 15 of 40 items\nreading: 30 of 40 items\n"


# --- the time left --------------------------------------------------------------------------------------------------------


def predicted(
    total: int, cycle: int, penalty: float, slow: int, evaluate_every: int | None, evaluation: float
) -> tuple[list[float], list[float]]:
    """The time left after each step as it is said, and as it then is: steps of a second, dearer ones, and evaluations."""
    clock, draws = Clock(), np.random.default_rng(0)
    left = TimeLeft(0, total, cycle, {EVALUATION: evaluate_every}, clock)
    said, times = [], []
    for done in range(1, total + 1):
        step = (20.0 if done <= slow else 1.0) * (penalty if done % cycle == 0 else 1.0)
        clock.now += step * draws.uniform(0.9, 1.1)
        left.step(done)
        said.append(left.seconds)
        times.append(clock.now)
        if evaluate_every and done % evaluate_every == 0:
            with left.between(EVALUATION):
                clock.now += evaluation
    return said, [clock.now - time for time in times]


@pytest.mark.parametrize(
    ("total", "cycle", "penalty", "slow", "evaluate_every", "evaluation"),
    [
        (1000, 1, 1.0, 0, None, 0.0),
        (1000, 4, 5.0, 3, None, 0.0),  # a penalty in every fourth step
        (200, 4, 5.0, 1, None, 0.0),
        (1000, 1, 1.0, 20, None, 0.0),  # slow at first: compiled, or cold
        (1000, 2, 2.0, 2, 100, 60.0),  # evaluations take a third of the time
        (20 * MARKS, 4, 3.0, 3, 4096, 900.0),  # more steps than times are kept
    ],
)
def test_the_time_left_is_within_a_fifth_after_a_tenth_of_the_steps(total, cycle, penalty, slow, evaluate_every, evaluation):
    said, true = predicted(total, cycle, penalty, slow, evaluate_every, evaluation)
    looked_at = slice(total // 10 + 1, total * 95 // 100)  # of the last few steps a second is a large part
    np.testing.assert_allclose(said[looked_at], true[looked_at], rtol=0.2)


def test_a_mean_over_all_steps_would_not_keep_that_promise():
    """What is tested above is hard: the plain mean is off by more than the whole time that is left."""
    _, true = predicted(1000, 1, 1.0, 20, None, 0.0)
    spent = true[0] - true[100] + 20
    assert spent / 101 * 899 > 2 * true[100]


def test_evaluations_that_nobody_timed_yet_are_counted(clock, capsys):
    progress = Progress(0, 1000, 64, True, evaluate_every=250)
    clock.now += 100
    progress.left.step(100)
    progress.update(100, "distance -1.022")
    assert capsys.readouterr().out == "step 100/1000  15m 00s left  distance -1.022  + 4 evaluations  64 samples/s\n"


@pytest.mark.parametrize("steps", [8, 1_000_000])
def test_a_line_fits_eighty_columns(monkeypatch, clock, steps):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    for screen in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stdout", screen)
        progress = Progress(0, steps, 64, True, evaluate_every=max(1, steps // 8))
        for done in (1, 2, 3):
            clock.now += 1000.0
            progress.left.step(done)
            progress.update(done, "adversarial_hinge -1.022")
        text = screen.getvalue()
        lines = [line for part in text.splitlines() for line in part.split("\r")]
        assert all(len(line) <= 80 for line in lines)
        assert any("left" in line and "adversarial_hinge -1.022" in line for line in lines)
        assert any(f"/{steps}" in line for line in lines)
        assert not screen.isatty() or "█" in text or "|" in text


def test_stages_fit_the_terminal_they_are_drawn_on(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    stages = Stages("evaluating", of=3)
    stages("untrained: svm, C = 0.001, all training samples of both splits")
    (line,) = screen.getvalue().split("\x1b[2K")[1:]
    assert len(line) == 59
    assert line.startswith("evaluating: ")
    assert line.endswith(" (0m 00s so far)")


def test_a_bar_is_drawn_on_a_terminal_that_says_it_has_no_rows(monkeypatch):
    """As in a container without a window: what is drawn goes to a real pseudo-terminal."""
    master, slave = os.openpty()
    os.set_blocking(master, False)
    with os.fdopen(slave, "w") as screen:
        monkeypatch.setattr(sys, "stdout", screen)
        bar_ = Bar("training", "step", screen, own_time=True)
        bar_(3, 60, "1m 00s left")
        screen.flush()
        assert "1m 00s left" in os.read(master, 10_000).decode()
        bar_.end()
    os.close(master)
