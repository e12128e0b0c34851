import math
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import ListBank
from torch import Tensor

from sao.core.memory_bank import MemoryBank, Queue


def rows_of(bank: MemoryBank) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    embeddings, keys = bank.contents()
    return [(tuple(e), tuple(k)) for e, k in zip(embeddings.tolist(), keys.tolist(), strict=True)]


def numbered(first: int, n: int) -> tuple[Tensor, Tensor]:
    """n rows that are recognised by their number, which is never zero: the value of an unfilled row."""
    numbers = torch.arange(first + 1, first + 1 + n, dtype=torch.float32)
    return torch.stack([numbers, -numbers], 1), torch.stack([2 * numbers, 3 * numbers, 4 * numbers], 1)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(capacity=st.integers(1, 9), sizes=st.lists(st.integers(1, 25), max_size=12), reload_at=st.integers(0, 12))
def test_bank_equals_a_plain_list_under_random_pushes(capacity, sizes, reload_at):
    bank, oracle, pushed = MemoryBank(capacity, 2, 3), ListBank(capacity), 0
    assert rows_of(bank) == []
    for index, n in enumerate(sizes):
        batch = numbered(pushed, n)
        pushed += n
        bank.push(*batch)
        oracle.push(*batch)
        if index == reload_at:  # a bank restored from its state goes on where the first one was
            state = {name: value.clone() for name, value in bank.state_dict().items()}
            bank = MemoryBank(capacity, 2, 3)
            bank.load_state_dict(state)
        assert len(bank) == len(oracle.rows) == min(pushed, capacity)
        assert sorted(rows_of(bank)) == sorted(oracle.rows)


def test_a_batch_that_crosses_the_end_loses_no_row():
    bank = MemoryBank(5, 2, 3)
    bank.push(*numbered(0, 4))
    bank.push(*numbered(4, 3))
    assert sorted(row[0][0] for row in rows_of(bank)) == [3, 4, 5, 6, 7]


def test_unfilled_rows_are_never_returned():
    bank = MemoryBank(100, 2, 3)
    assert [rows.shape for rows in bank.contents()] == [(0, 2), (0, 3)]
    bank.push(*numbered(0, 7))
    assert [rows.shape for rows in bank.contents()] == [(7, 2), (7, 3)]
    assert (bank.contents()[0] != 0).all()


def test_state_is_buffers_that_move_and_change_type_with_the_module():
    bank = MemoryBank(4, 2, 3).double()
    assert not list(bank.parameters())
    assert set(bank.state_dict()) == {"embeddings", "keys", "cursor", "filled"}
    embeddings = torch.ones(2, 2, requires_grad=True)
    bank.push(embeddings, torch.ones(2, 3))
    stored, _ = bank.contents()
    assert stored.dtype == torch.float64
    assert not stored.requires_grad
    assert bank.cursor.dtype == torch.int64
    assert bank.capacity == 4


def test_stored_rows_are_copies():
    bank, (embeddings, keys) = MemoryBank(4, 2, 3), numbered(0, 2)
    bank.push(embeddings, keys)
    embeddings.zero_()
    assert (bank.contents()[0] != 0).all()


@pytest.mark.parametrize("dataset_size", [9, 10])
def test_a_bank_that_is_not_smaller_than_the_data_set_warns(dataset_size):
    with pytest.warns(UserWarning, match="smaller"):
        MemoryBank(10, 2, 3, dataset_size=dataset_size)


def test_a_smaller_bank_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MemoryBank(10, 2, 3, dataset_size=11)
        MemoryBank(10, 2, 3)


@pytest.mark.parametrize(
    ("embeddings", "keys", "error", "name"),
    [
        (torch.ones(0, 2), torch.ones(0, 3), ValueError, "embeddings"),
        (torch.ones(2, 2), torch.ones(0, 3), ValueError, "keys"),
        (torch.ones(2, 3), torch.ones(2, 3), ValueError, "embeddings"),
        (torch.ones(2, 2), torch.ones(2, 2), ValueError, "keys"),
        (torch.ones(2), torch.ones(2, 3), ValueError, "embeddings"),
        (torch.ones(2, 2), torch.ones(3, 3), ValueError, "keys"),
        (torch.full((2, 2), math.nan), torch.ones(2, 3), FloatingPointError, "embeddings"),
        (torch.ones(2, 2), torch.full((2, 3), math.inf), FloatingPointError, "keys"),
    ],
)
def test_push_names_the_wrong_argument_and_changes_nothing(embeddings, keys, error, name):
    bank = MemoryBank(4, 2, 3)
    bank.push(*numbered(0, 3))
    before = rows_of(bank)
    with pytest.raises(error, match=rf"^{name} "):
        bank.push(embeddings, keys)
    assert rows_of(bank) == before


@pytest.mark.parametrize("name", ["capacity", "embedding_size", "key_size"])
def test_sizes_must_be_positive(name):
    with pytest.raises(ValueError, match=rf"^{name} "):
        MemoryBank(**({"capacity": 2, "embedding_size": 2, "key_size": 2} | {name: 0}))


@settings(derandomize=True, deadline=None, max_examples=100)
@given(capacity=st.integers(1, 20), batch=st.integers(1, 25), steps=st.integers(0, 12))
def test_a_queue_holds_the_last_rows(capacity, batch, steps):
    queue = Queue(-torch.arange(1.0, capacity + 1)[:, None])
    kept = queue.rows[:, 0].tolist()
    for step in range(steps):
        rows = torch.arange(step * batch, (step + 1) * batch) + 1.0
        queue.push(rows[:, None], step)
        kept = [*kept, *rows.tolist()][-capacity:]
    assert sorted(queue.rows[:, 0].tolist()) == sorted(kept)


def test_a_queue_is_saved_with_what_it_belongs_to_and_takes_no_gradient():
    queue = Queue(torch.zeros(4, 2))
    queue.push(torch.ones(3, 2, requires_grad=True), 5)
    assert not queue.rows.requires_grad
    other = Queue(torch.zeros(4, 2))
    other.load_state_dict(queue.state_dict())
    assert torch.equal(other.rows, queue.rows)
    assert float(queue.rows.sum()) == 6
