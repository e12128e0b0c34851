"""Ctrl-C that ends a long computation at once, not when a matrix has been decomposed."""

import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def interruptible(work: Callable[[], Result]) -> Result:
    """What `work` returns. It is done in a thread of its own, because Python hears of Ctrl-C only between two operations.

    After an interrupt nobody waits for that thread: it ends with the process, so it must not write anything.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()  # signals reach the main thread only
    outcome: list[Result] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, name="evaluation", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)
    if failure:
        raise failure[0]
    return outcome[0]
