"""A step gives each process its own rows of the batch, as one process would see them at their places."""

from typing import Any

import pytest
import tiny
import torch

from sao.core import distributed
from sao.data.loader import Batches
from sao.methods import Batch
from sao.training.step import make_step


class Recorder:
    """What a step is given."""

    needs_labels = True

    def refresh(self, data: Any, step: int) -> None: ...

    def training_step(self, batch: Batch, step: int) -> Batch:
        return batch


@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("data", [tiny.dataset, tiny.framed])
def test_processes_are_given_the_rows_the_labels_and_the_crops_of_one(data, processes, monkeypatch):
    batches = Batches(data().train, torch.device("cpu"))

    def given(rank: int, size: int) -> Any:
        monkeypatch.setattr(distributed, "world_size", lambda: size)
        monkeypatch.setattr(distributed, "rank", lambda: rank)
        return make_step(Recorder(), batches, 3, 16, 5)  # pyright: ignore[reportArgumentType]

    whole, parts = given(0, 1), [given(rank, processes) for rank in range(processes)]
    assert len(whole.rows) == 16
    for name in ("rows", "labels", "inputs"):
        torch.testing.assert_close(torch.cat([getattr(part, name) for part in parts]), getattr(whole, name))
