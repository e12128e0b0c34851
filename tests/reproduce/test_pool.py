"""Several runs at a time. This module imports little: every process imports it anew."""

import os
import time
from pathlib import Path

import pytest

from sao.reproduce import pool


def work(file: Path) -> str:
    """One is done at once, one waits until it is told to end, one fails once the other waits."""
    waiting = file.with_name("waits")
    if file == waiting:
        file.write_text(str(os.getpid()))
    while file == waiting or (file.name == "fails" and not waiting.exists()):
        time.sleep(0.05)
    if file.name == "fails":
        raise ValueError("three")
    return file.name


def test_work_is_shared_and_an_error_of_one_process_is_an_error_here_that_ends_the_others(tmp_path):
    shared = pool.run_each(work, [tmp_path / name for name in ("ends", "waits", "fails")], processes=2)
    assert next(shared) == (tmp_path / "ends", "ends")
    with pytest.raises(ValueError, match="three") as raised:
        list(shared)
    assert "in work" in raised.value.__notes__[0], "the stack of the other process"
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "waits").read_text()), 0)


class TwoPartError(Exception):
    def __init__(self, one: int, other: str) -> None:
        super().__init__(f"{one} and {other}")


def test_an_error_that_cannot_be_pickled_is_still_told():
    error = pool._picklable(TwoPartError(1, "more"))
    assert isinstance(error, RuntimeError)
    assert str(error) == "TwoPartError: 1 and more"
