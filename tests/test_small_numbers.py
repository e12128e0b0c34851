"""Small numbers of the machine, of draws and of files, at their boundaries."""

import pytest
import tiny
import torch
from tiny import fake

from sao.benchmark import measure
from sao.core import distributed
from sao.core.memory_bank import MemoryBank, Queue
from sao.core.random import batch_rows
from sao.errors import InputError
from sao.runtime import processor
from sao.runtime.csv_files import original, tsv_text, write_csv
from sao.training import checkpoint


@pytest.mark.parametrize(("before", "after", "share"), [
    ((100, 200), (175, 300), 0.25), ((0, 0), (0, 50), 1.0), ((5, 9), (5, 9), 1.0), (None, (1, 2), 1.0), ((0, 0), (50, 50), 0.0),
])  # fmt: skip
def test_how_busy_the_cores_are(monkeypatch, before, after, share):
    times = iter([before, after])
    monkeypatch.setattr(processor, "_core_times", lambda: next(times))
    monkeypatch.setattr(processor.time, "sleep", lambda seconds: None)
    assert processor._share_busy() == share


@pytest.mark.parametrize(("busy", "spins"), [(0.2499, "30000"), (0.25, "0")])
def test_threads_spin_where_less_than_a_quarter_is_busy(monkeypatch, busy, spins):
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "x")  # so that both are as they were after the test
        monkeypatch.delenv(name)
    monkeypatch.setattr(processor, "_share_busy", lambda: busy)
    processor.choose_how_threads_wait()
    found = {name: processor.os.environ[name] for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    assert found == {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": spins}


def test_a_spread_is_median_fastest_and_slowest():
    found = measure.Spread.of([3.0, 1.0, 2.0, 9.0])
    assert (found.median, found.fastest, found.slowest) == (2.5, 1.0, 9.0)
    assert found.shared(2) == measure.Spread(1.25, 0.5, 4.5)


def test_functions_are_timed_in_turns_after_one_that_does_not_count(monkeypatch):
    now, order = [0.0], []
    monkeypatch.setattr(measure.time, "perf_counter", lambda: now[0])

    def function(name: str, seconds: float):
        def run(turn: int) -> None:
            order.append((name, turn))
            now[0] += seconds if turn else 100.0

        return run

    found = measure.in_turns([function("a", 1.0), function("b", 2.0)], 3)
    assert order == [(name, turn) for turn in range(4) for name in "ab"]
    assert [one.slowest for one in found] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("processes", "batch", "sizes"), [(1, 10, [10]), (3, 10, [3, 3, 4]), (4, 3, [0, 1, 1, 1]), (2, 8, [4, 4])]
)
def test_rows_of_a_batch_are_shared_among_processes(monkeypatch, processes, batch, sizes):
    monkeypatch.setattr(distributed, "world_size", lambda: processes)
    found = distributed._slices(batch)
    assert [part.stop - part.start for part in found] == sizes
    assert [part.start for part in found[1:]] == [part.stop for part in found[:-1]]
    assert distributed.largest_local_batch(batch) == max(sizes)


@pytest.mark.parametrize(("samples", "batch"), [(10, 3), (9, 3), (3, 3), (5, 1)])
def test_an_epoch_has_every_row_at_most_once_and_only_full_batches(samples, batch):
    steps = samples // batch
    first = torch.cat([batch_rows(0, step, batch, samples) for step in range(steps)])
    assert len(set(first.tolist())) == steps * batch
    assert samples == 3 or batch_rows(0, steps, batch, samples).tolist() != first[:batch].tolist()
    said = rf"^batch must be between 1 and the number of samples \({samples}\), got {samples + 1}$"
    with pytest.raises(ValueError, match=said):
        batch_rows(0, 0, samples + 1, samples)
    with pytest.raises(ValueError, match="step must not be negative, got -1"):
        batch_rows(0, -1, batch, samples)


def test_a_bank_keeps_the_last_rows_and_warns_where_it_is_as_large_as_the_data():
    bank = MemoryBank(3, 1, 1)
    for start, count, expected in ((0, 2, {0, 1}), (2, 2, {1, 2, 3}), (4, 5, {6, 7, 8})):
        rows = torch.arange(float(start), start + count)[:, None]
        bank.push(rows, 10 * rows)
        embeddings, keys = bank.contents()
        assert set(embeddings.flatten().tolist()) == expected
        assert torch.equal(keys, 10 * embeddings)
        assert len(bank) == len(expected) == int(bank.filled)
    MemoryBank(3, 1, 1, 4)
    with pytest.warns(UserWarning, match=r"^a memory bank of 3 rows is not smaller than the data set \(3\)"):
        MemoryBank(3, 1, 1, 3)
    with pytest.raises(ValueError, match="key_size must be at least 1, got 0"):
        MemoryBank(3, 1, 0)


@pytest.mark.parametrize(("size", "batch"), [(4, 2), (5, 3), (3, 5), (3, 3)])
def test_a_queue_holds_the_last_rows(size, batch):
    queue, pushed = Queue(torch.full((size, 1), -1.0)), []
    for step in range(6):
        rows = torch.arange(float(step * batch), (step + 1) * batch)[:, None]
        pushed += rows.flatten().tolist()
        queue.push(rows, step)
        found = queue.rows.flatten().tolist()
        kept = [value for value in found if value >= 0]
        assert sorted(kept) == pushed[-size:]
    assert len(queue.rows) == size


def test_a_checkpoint_holds_two_moments_of_each_trained_parameter():
    network = torch.nn.Linear(3, 2)
    frozen = torch.nn.Parameter(torch.zeros(7))
    network.register_buffer("count", torch.zeros(5, dtype=torch.int64))
    optimiser = fake(param_groups=[{"params": [*network.parameters()]}])
    method = fake(state_dict=lambda: {**network.state_dict(), "frozen": frozen}, optimisers={"a": optimiser, "b": optimiser})
    assert checkpoint.size_on_disk(method) == 4 * (6 + 2 + 7) + 8 * 5 + 2 * 4 * (6 + 2)


def test_a_checkpoint_that_is_not_there_or_not_usable(tmp_path):
    folder = tmp_path / "run" / "checkpoints"
    with pytest.raises(InputError, match=r"has no checkpoint yet: wait until .* go on with `sao resume "):
        checkpoint.latest(folder, lambda line: None, lambda path: 1)
    for step in (3, 12, 100):
        (folder / f"step-{step:08d}").mkdir(parents=True)
    tried: list[str] = []

    def use(path):
        tried.append(path.name)
        raise InputError(f"{path.name} is bad")

    said: list[str] = []
    each = r"there is no usable checkpoint in .* \(step-00000100 is bad; step-00000012 is bad; step-"
    with pytest.raises(InputError, match=each):
        checkpoint.latest(folder, said.append, use)
    assert tried == ["step-00000100", "step-00000012", "step-00000003"]
    assert said[0] == "step-00000100 is bad; trying the one before"
    assert checkpoint.latest(folder, said.append, lambda path: path.name) == "step-00000100"


@pytest.mark.parametrize(("text", "cell"), [
    ("=1+1", "'=1+1"), ("-3.5e-2", "-3.5e-2"), ("+7", "+7"), ("-a", "'-a"), ("@x", "'@x"), ("'=x", "''=x"), ("a=1", "a=1"),
    ("\tx", "'\tx"),
])  # fmt: skip
def test_formulas_get_an_apostrophe_and_numbers_none(tmp_path, text, cell):
    write_csv(tmp_path / "t.csv", ["name"], [[text]])
    assert tiny.table(tmp_path / "t.csv") == [{"name": cell}]
    assert original(cell) == text
    assert tsv_text([["a", 3], ["b", 0.5]]) == "\ufeffa\t3\nb\t0.5\n"
