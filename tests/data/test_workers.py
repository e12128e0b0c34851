"""Chunks over processes: in order, and a process that dies costs one item."""

import os
import signal
import subprocess
import sys
import time

import pytest

from sao.data.files.workers import map_in_order

CRASHING = """
import os, sys
sys.path.insert(0, {folder!r})
from {module} import double
from sao.data.files.workers import map_in_order
chunks = [[i, i + 1] for i in range(0, 40, 2)]
print([x for chunk in map_in_order(double, chunks, 2, lambda item: ("lost", item)) for x in chunk])
"""

STALLED = """
import sys
sys.path.insert(0, {folder!r})
from {module} import stall
from sao.{place} import {name}
list({name}(stall, {work}))
"""


def stall(work):
    os.write(1, b"%d\n" % os.getpid())
    time.sleep(600)


def double(chunk):
    if 13 in chunk:
        os._exit(1)  # as a segmentation fault would
    return [2 * item for item in chunk]


@pytest.mark.parametrize("workers", [1, 3])
def test_results_come_in_order(workers):
    chunks = [[i] * (i % 3 + 1) for i in range(30)]
    result = list(map_in_order(sorted, iter(chunks), workers, lambda item: item))
    assert result == chunks


def test_a_crash_costs_only_the_item_that_caused_it():
    folder, file = os.path.split(__file__)
    script = CRASHING.format(folder=folder, module=file.removesuffix(".py"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    expected = [2 * i if i != 13 else ("lost", 13) for i in range(40)]
    assert done.stdout.strip() == str(expected)


def test_an_error_in_the_function_reaches_the_caller():
    with pytest.raises(TypeError):
        list(map_in_order(sorted, [[1, "a"]], 2, lambda item: item))


@pytest.mark.parametrize(
    ("place", "name", "work"),
    [
        ("data.files.workers", "map_in_order", "[[1], [2]], 2, None"),
        pytest.param("reproduce.pool", "run_each", "[1, 2], 2", marks=pytest.mark.slow),
    ],
)
def test_no_worker_outlives_a_parent_that_was_killed(place, name, work):
    folder, file = os.path.split(__file__)
    script = STALLED.format(folder=folder, module=file.removesuffix(".py"), place=place, name=name, work=work)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        workers = [int(parent.stdout.readline()) for _ in range(2)]
        parent.kill()
        try:
            parent.communicate(timeout=30)  # their end of the pipe closes with them
        except subprocess.TimeoutExpired:
            for worker in workers:
                os.kill(worker, signal.SIGKILL)
            pytest.fail("the workers are still there")
