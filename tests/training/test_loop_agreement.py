"""What the loop asks other processes, and when: the answers are given here, so that no process need be started."""

from typing import Any

import pytest
import tiny
import torch

from sao.core import distributed
from sao.data.loader import Batches
from sao.errors import InputError
from sao.training import loop
from sao.training.loop import Diverged, Interrupted

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
