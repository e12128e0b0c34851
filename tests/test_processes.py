"""Turns of processes on several machines, with threads in their place: what matters is who waits for whom."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from torch.distributed import HashStore  # pyright: ignore[reportPrivateImportUsage]

from sao.errors import InputError
from sao.runtime import launch as processes


def in_threads(action: Callable[[int], int], count: int, a_machine: int) -> list:
    """What each process's `node_first` returned of the action of its rank, or the error that it met."""
    store = HashStore()

    def go(rank: int) -> int | Exception:
        group = processes._Group(store, rank, count, rank % a_machine)
        try:
            return group.node_first(lambda: action(rank))
        except (InputError, processes.Stopped) as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(go, range(count)))


def test_the_first_of_each_machine_acts_first_there_and_waits_for_no_other_machine():
    acted: list[int] = []
    other_machine_done = threading.Event()

    def act(rank: int) -> int:
        if rank == 0:
            assert other_machine_done.wait(20)  # the slow first of one machine keeps nobody waiting on the other
        acted.append(rank)
        if rank == 3:
            other_machine_done.set()
        return rank

    assert in_threads(act, 4, a_machine=2) == [0, 1, 2, 3]
    assert acted == [2, 3, 0, 1]


def test_where_the_first_of_a_machine_fails_the_others_there_do_not_begin_and_all_stop():
    begun: list[int] = []

    def act(rank: int) -> int:
        begun.append(rank)
        if rank == 2:
            raise InputError("no such folder here")
        return rank

    results = in_threads(act, 4, a_machine=2)
    assert sorted(begun) == [0, 1, 2]
    assert isinstance(results[2], InputError)
    assert all(isinstance(results[rank], processes.Stopped) for rank in (0, 1, 3))


@pytest.mark.parametrize("a_machine", [1, 3])
def test_one_process_a_machine_and_one_machine(a_machine):
    assert in_threads(lambda rank: rank, 3, a_machine) == [0, 1, 2]
