"""Run a function over chunks of items in several processes, in order, a few chunks ahead, surviving a crashed process."""

import multiprocessing
import os
import signal
import sys
import threading
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

CHUNKS_AHEAD = 3  # per process: enough to keep all busy, few enough to bound the memory of what waits


def map_in_order(
    function: Callable[[list], list], chunks: Iterable[list], workers: int, when_crashed: Callable[[Any], Any]
) -> Iterator[list]:
    """function(chunk) for each chunk, in the chunks' order.

    With one worker everything happens in this process. A process that dies (a decoder's segmentation fault, the kernel's
    out-of-memory killer) costs only the item that killed it, whose result becomes `when_crashed(item)`.
    """
    if workers <= 1:
        yield from map(function, chunks)
        return
    pool = _pool(workers)
    waiting: deque[tuple[list, Future]] = deque()
    remaining = iter(chunks)
    try:
        while True:
            while len(waiting) < CHUNKS_AHEAD * workers and (chunk := next(remaining, None)) is not None:
                waiting.append((chunk, _submit(pool, function, chunk)))
            if not waiting:
                return
            chunk, future = waiting.popleft()
            try:
                result = future.result()
            except BrokenProcessPool:
                pool.shutdown(wait=True, cancel_futures=True)
                result = _one_by_one(function, chunk, when_crashed)
                pool = _pool(workers)
                waiting = deque((other, _submit(pool, function, other)) for other, _ in waiting)
            yield result
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _one_by_one(function: Callable[[list], list], chunk: list, when_crashed: Callable[[Any], Any]) -> list:
    """A chunk that was lost with its process, one item at a time, so that only the guilty one is given up."""
    results = []
    pool = _pool(1)
    try:
        for item in chunk:
            try:
                results += _submit(pool, function, [item]).result()
            except BrokenProcessPool:
                results.append(when_crashed(item))
                pool.shutdown(wait=True)
                pool = _pool(1)
    finally:
        pool.shutdown(wait=True)
    return results


def _pool(workers: int) -> ProcessPoolExecutor:
    # Spawned, not forked: the caller may hold torch's threads or a GPU, neither of which survives a fork.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker)


def _submit(pool: ProcessPoolExecutor, function: Callable[[list], list], chunk: list) -> Future:
    with _main_module_hidden():
        try:
            return pool.submit(function, chunk)
        except BrokenProcessPool as error:
            broken: Future = Future()
            broken.set_exception(error)
            return broken


@contextmanager
def _main_module_hidden() -> Iterator[None]:
    """Spawned processes import the caller's script again unless there is none to be seen.

    The workers need nothing of it, it may take seconds (torch), and a three-line script without the
    `if __name__ == "__main__"` guard would start itself over in every worker.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it then ends the pool
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker holds both ends of its queue, so it would wait forever after its parent was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
