"""How the processes of one run begin, wait for each other and end: torchrun starts them, and an error is said once.

For what rank 0 does alone the others wait at a key-value store: the timeout of a collective would end a slow run.
"""

import json
import os
import socket
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store, rendezvous  # pyright: ignore[reportPrivateImportUsage]

from sao.core import distributed
from sao.errors import InputError

# Exit codes beside 2, an error of input: a run that diverged; another process, or the folder of a run, that went away
DIVERGED, LOST = 3, 4
JOIN_SECONDS = 600  # for machines that start at different times
Result = TypeVar("Result")


class Stopped(RuntimeError):
    """Another process has failed and says why."""


@contextmanager
def joined(device: str = "auto", timeout_seconds: float = 60) -> Iterator[None]:
    """Join the group that torchrun describes, if it does; the process that meets an error first prints it, and all exit."""
    global _group
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    _group = _meet()
    try:
        _group.everyone(lambda: _take_accelerator(device))
        _group.everyone(lambda: _connect(device, timeout_seconds))
        yield
        dist.destroy_process_group()
    except Stopped:
        _group.await_report()
        raise SystemExit(2) from None
    except (InputError, distributed.Lost) as error:
        say_once(str(error))
        raise SystemExit(LOST if isinstance(error, distributed.Lost) else 2) from None
    except Exception:  # a fault of the program: its traceback is what the others must not talk over
        _group.may_report()
        raise
    finally:
        _group.leave()
        _group = None


def say_once(why: str) -> None:
    """Say why the run ends, unless another process has said so: what it met first is the cause of what the others meet."""
    if _group is None or _group.may_report():
        print(f"sao: {why}", file=sys.stderr, flush=True)
        if _group is not None:
            _group.report_written()
    else:
        _group.await_report()


def main_only(action: Callable[[], Result]) -> Result:
    """What `action` returns on rank 0 (anything that JSON holds), on every process; where it fails, all of them stop."""
    if _group is None:
        return action()
    _group.turn += 1
    if _group.rank == 0:
        return _group.reported(action)
    return _group.results([0])[0]


def node_first(action: Callable[[], Result]) -> Result:
    """On each machine the first process acts, then the others, which find what it cached; where one fails, all stop."""
    return action() if _group is None else _group.node_first(action)


def launch_id() -> str | None:
    """What names this launch of torchrun, the same after it restarts its workers; None outside torchrun."""
    name = os.environ.get("TORCHELASTIC_RUN_ID")
    return f"{socket.gethostname()} {os.getppid()}" if name == "none" else name  # without an id: the process of torchrun


class _Group:
    """The processes of a run as one of them sees them, and the store through which they tell each other how they fared."""

    def __init__(self, store: Store, rank: int, size: int, local_rank: int) -> None:
        self.store, self.rank, self.size, self.local_rank, self.turn = store, rank, size, local_rank, 0

    def everyone(self, action: Callable[[], Result]) -> Result:
        """All act, and nobody goes on before all have."""
        self.turn += 1
        kept: list[Result] = []
        self.reported(lambda: kept.append(action()))
        self.results(range(self.size))
        return kept[0]

    def node_first(self, action: Callable[[], Result]) -> Result:
        def wait_and_act() -> Result:
            if self.local_rank > 0:
                self.results([self.rank - self.local_rank])  # torchrun numbers the processes of a machine one after another
            return action()

        return self.everyone(wait_and_act)

    def reported(self, action: Callable[[], Result]) -> Result:
        try:
            result = action()
        except BaseException:
            self._write(f"turn {self.turn} {self.rank}", "failed")
            raise
        self._write(f"turn {self.turn} {self.rank}", json.dumps([result]))
        return result

    def results(self, ranks: Iterable[int]) -> list[Any]:
        """What processes reported in this turn."""
        texts = [self._read(f"turn {self.turn} {rank}") for rank in ranks]
        if "failed" in texts:
            raise Stopped
        return [json.loads(text)[0] for text in texts]

    def may_report(self) -> bool:
        """Whether this process says why the run ends: the first that asks."""
        me = str(self.rank)
        try:
            return self.store.compare_set("reporter", "", me) == me.encode()
        except RuntimeError:  # the store was in the process that died
            return True

    def report_written(self) -> None:
        with suppress(distributed.Lost):
            self._write("report written", "yes")

    def await_report(self) -> None:
        """Let the one that reports finish: torchrun ends everyone once one has left."""
        with suppress(distributed.Lost):
            self._read("report written", patience=5)

    def leave(self, patience: float = 5) -> None:
        """Rank 0 goes last: without torchrun it holds the store, and the others may still have something to read."""
        with suppress(distributed.Lost):
            self._write(f"left {self.rank}", "yes")
            deadline = time.monotonic() + patience
            for rank in range(1, self.size) if self.rank == 0 else ():
                self._read(f"left {rank}", max(0.0, deadline - time.monotonic()))

    def _write(self, key: str, text: str) -> None:
        try:
            self.store.set(key, text)
        except RuntimeError:
            raise distributed.Lost("the process that holds this run together has ended") from None

    def _read(self, key: str, patience: float = float("inf")) -> str:
        """Wait by asking: a blocking wait of the store cannot be interrupted by a signal."""
        pause, deadline = 0.001, time.monotonic() + patience
        try:
            while not self.store.check([key]):
                if time.monotonic() > deadline:
                    return ""
                time.sleep(pause)
                pause = min(0.2, 1.5 * pause)
            return self.store.get(key).decode()
        except RuntimeError:
            raise distributed.Lost("the process that holds this run together has ended") from None


_group: _Group | None = None


def _meet() -> _Group:
    try:
        store, rank, size = next(rendezvous("env://", timeout=timedelta(seconds=JOIN_SECONDS)))
        # Started by other means than torchrun, all count as processes of one machine.
        local_rank = int(os.environ.get("LOCAL_RANK", rank))
        return _Group(PrefixStore(_generation(store, rank, size), store), rank, size, local_rank)
    except (ValueError, RuntimeError, TimeoutError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"the processes could not meet ({reason}): start them with torchrun") from None


def _take_accelerator(device: str) -> None:
    """Each process of a machine takes a GPU of its own."""
    if not _accelerated(device):
        return
    if ":" in device:
        raise InputError(f"train.device is {device} for several processes: write cuda, each takes one of its own")
    local, here = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if local >= here:
        raise InputError(f"there are more processes than GPUs on a machine ({here}): lower --nproc-per-node")
    torch.cuda.set_device(local)


def _connect(device: str, timeout_seconds: float) -> None:
    assert _group is not None
    # Flags and checksums travel between CPUs also where gradients travel between GPUs.
    backend = "cpu:gloo,cuda:nccl" if _accelerated(device) else "gloo"
    store, timeout = PrefixStore("collectives", _group.store), timedelta(seconds=timeout_seconds)
    try:
        dist.init_process_group(backend, store=store, rank=_group.rank, world_size=_group.size, timeout=timeout)
    except (ValueError, RuntimeError) as error:
        raise InputError(f"the processes cannot reach each other: {str(error).splitlines()[0]}") from None


def _accelerated(device: str) -> bool:
    return device != "cpu" and torch.cuda.is_available()


def _generation(store: Store, rank: int, size: int) -> str:
    """A name for this group that no earlier one had: torchrun keeps the store, with what dead processes wrote, over a restart.

    Machines count restarts on their own. So rank 0 draws a number, gives it to whoever asks, and waits until all have come.
    """
    deadline = time.monotonic() + JOIN_SECONDS
    if rank > 0:
        question = uuid.uuid4().hex
        store.set(f"question {rank}", question)
        store.wait([f"answer {question}"], timedelta(seconds=JOIN_SECONDS))
        name = store.get(f"answer {question}").decode()
        store.set(f"{name} {rank} is here", "yes")
        return name
    name = f"group {store.add('groups', 1)}"
    missing = list(range(1, size))
    while missing:
        if time.monotonic() > deadline:
            raise TimeoutError(f"rank {missing[0]} did not come within {JOIN_SECONDS} s")
        for other in [other for other in missing if store.check([f"question {other}"])]:
            store.set(f"answer {store.get(f'question {other}').decode()}", name)
        missing = [other for other in missing if not store.check([f"{name} {other} is here"])]
        time.sleep(0.01)
    return name
