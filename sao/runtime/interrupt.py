"""Ctrl-C that ends a long computation at once, not when a matrix has been decomposed."""

import atexit
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class Work(threading.Thread, Generic[Result]):
    """A thread of one piece of work, which begins at once and ends with it; `how` as for a thread."""

    def __init__(self, work: Callable[[], Result], **how: Any) -> None:
        super().__init__(**how)
        self._work, self._outcome = work, Future[Result]()
        self.start()

    def run(self) -> None:
        try:
            self._outcome.set_result(self._work())
        except BaseException as error:  # raised again where the result is asked for
            self._outcome.set_exception(error)

    def result(self) -> Result:
        self.join()
        return self._outcome.result()


def interruptible(work: Callable[[], Result]) -> Result:
    """What `work` returns, done in a thread of its own, because Python hears of Ctrl-C only between two operations."""
    if threading.current_thread() is not threading.main_thread():
        return work()  # signals reach the main thread only
    thread = Work(work, daemon=True)
    try:
        while thread.is_alive():
            thread.join(0.1)
    except KeyboardInterrupt:
        _abandon(thread)
        raise
    return thread.result()


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
