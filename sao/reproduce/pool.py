"""Folders of a study's runs, and several runs at a time: a process for each, which ends with the one that started it."""

import multiprocessing
import os
import pickle
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Generic, TypeVar

from sao.config import Config
from sao.errors import InputError
from sao.training.run_folder import Run

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class _Worker(Generic[Item]):
    item: Item
    slot: int
    process: SpawnProcess
    answer: Connection


def run_each(work: Callable[[Item], Result], items: Iterable[Item], processes: int = 1) -> Iterator[tuple[Item, Result]]:
    """Each item with its result, as they are done; whatever ends the loop asks the processes to stop and save their runs."""
    waiting = list(items)
    if processes == 1 or len(waiting) < 2:
        yield from ((item, work(item)) for item in waiting)
        return
    running: dict[int, _Worker[Item]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                slot = min(set(range(processes)) - running.keys())
                running[slot] = _start(work, waiting.pop(0), slot)
            ready = wait([worker.answer for worker in running.values()])
            for worker in [worker for worker in running.values() if worker.answer in ready]:
                result = _result(worker)
                del running[worker.slot]
                yield worker.item, result
    finally:
        for worker in running.values():
            worker.process.terminate()
        for worker in running.values():
            worker.process.join()


def _start(work: Callable[[Item], Any], item: Item, slot: int) -> _Worker[Item]:
    context = multiprocessing.get_context("spawn")
    answer, sender = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(sender, work, item, slot))
    process.start()
    sender.close()  # now the worker's end alone: should it be killed, the pipe ends
    return _Worker(item, slot, process, answer)


def _result(worker: _Worker) -> Any:
    try:
        result = worker.answer.recv()
    except EOFError:
        worker.process.join()
        raise InputError(
            f"a process of the study was killed (exit code {worker.process.exitcode}), perhaps for want of memory: "
            "the same command with fewer --jobs goes on"
        ) from None
    worker.process.join()
    if isinstance(result, Exception):
        raise result
    return result


# --- in the process of a worker ------------------------------------------------------------------------------------------


def _answer(sender: Connection, work: Callable[[Any], Any], item: Any, slot: int) -> None:
    os.setpgrp()  # Ctrl-C is for the process that started this one, which passes it on once
    _end_with_parent()
    # Progress lines of several runs at once would only hide each other; each run's log.txt and metrics.jsonl have them.
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    _take_accelerator(slot)
    try:
        result = work(item)
    except Exception as error:
        result = _picklable(error)
    sender.send(result)


def _picklable(error: Exception) -> Exception:
    """With the stack of this process as a note; as a plain error where it cannot be made again from its pickle."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(traceback.format_exc())
    return error


def _end_with_parent() -> None:
    """A run whose study was killed must not go on beside the one that the study goes on with."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait_for_parent() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=wait_for_parent, daemon=True).start()


def _take_accelerator(slot: int) -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_device(slot % torch.cuda.device_count())


def check_folder(folder: Path, config: Config) -> None:
    """Refuse to take a run that learnt something else for this one."""
    if (folder / "config.yaml").exists() and not Run(folder).config.learns_as(config):
        raise InputError(f"{folder} was trained with other options: choose another --out, or remove it")


def check_out(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror}; choose another --out") from None
