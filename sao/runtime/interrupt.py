"""Ctrl-C that ends a long computation at once, not when a matrix has been decomposed."""

import atexit
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def interruptible(work: Callable[[], Result]) -> Result:
    """What `work` returns, done in a thread of its own, because Python hears of Ctrl-C only between two operations."""
    if threading.current_thread() is not threading.main_thread():
        return work()  # signals reach the main thread only
    outcome: list[Result] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.1)
    except KeyboardInterrupt:
        _abandon(thread)
        raise
    if failure:
        raise failure[0]
    return outcome[0]


def _abandon(thread: threading.Thread) -> None:
    atexit.register(_end_without, thread)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(KeyboardInterrupt))
    thread.join(0.3)


def _end_without(thread: threading.Thread) -> None:
    """End the process if the thread is still there (some milliseconds longer than Python thinks): Python would crash."""
    deadline = time.monotonic() + 0.5
    while thread.is_alive() or os.path.exists(f"/proc/self/task/{thread.native_id}"):
        if thread.is_alive() or time.monotonic() > deadline:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(130)
        time.sleep(0.01)
