"""One batch ahead: the same values, read while something else is done, and an end without a thread left behind."""

import itertools
import mmap
import os
import signal
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch
from opening import images
from torch.utils._python_dispatch import TorchDispatchMode

from sao.cli.main import main
from sao.core.random import batch_rows
from sao.data import dataset, loader
from sao.data.dataset import Dataset, Images, SelectedRows, Vectors
from sao.data.files.open import Opened
from sao.data.loader import Batches, Prefetcher
from sao.errors import InputError
from sao.evaluation.extract import extract
from sao.methods.supervised import Supervised
from sao.training.loop import Interrupted

CPU = torch.device("cpu")
FIRST, SECOND = torch.tensor([3, 1, 40]), torch.tensor([7, 7, 0])


@pytest.fixture
def pixels() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (50, 8, 8, 3), dtype=np.uint8)


@pytest.fixture
def mapped(pixels, tmp_path) -> np.ndarray:
    """The same in a file that is read row by row."""
    np.save(tmp_path / "pixels.npy", pixels)
    return np.load(tmp_path / "pixels.npy", mmap_mode="r")


@pytest.fixture
def reads(monkeypatch) -> list[tuple[str, list[int]]]:
    """The thread and the rows of each reading."""
    made = []

    def noted(array, chosen, into):
        made.append((threading.current_thread().name, chosen.tolist()))
        dataset.read_rows(array, chosen, into)

    monkeypatch.setattr(loader, "read_rows", noted)
    return made


def prefetching(pixels: np.ndarray, device: torch.device = CPU) -> Prefetcher:
    reader = Prefetcher(pixels, device)
    reader.prefetch(FIRST)
    return reader


def no_thread_is_left() -> bool:
    return not [thread for thread in threading.enumerate() if thread.name == "prefetch"]


def mapped_digits(folder) -> Dataset:
    """The digits as a file that is mapped: read row by row."""
    train = images(tiny.dataset().train)
    np.save(folder / "digits.npy", train.pixels)
    return Dataset("mapped", Images(np.load(folder / "digits.npy", mmap_mode="r"), train.labels), tiny.dataset().test)


def test_prefetched_rows_are_read_once_by_a_thread(pixels, reads):
    assert torch.equal(prefetching(pixels).take(FIRST), torch.from_numpy(pixels)[FIRST])
    assert reads == [("prefetch", [3, 1, 40])]
    assert no_thread_is_left()


def test_rows_that_are_held_are_not_prefetched_and_those_too_many_to_hold_are(pixels, reads):
    rows = torch.tensor([7, 3, 3, 49, 0])
    for resident_bytes, held in ((None, True), (1000, False)):
        batches = Batches(Images(pixels), CPU, resident_bytes)
        batches.prefetch(rows)
        assert torch.equal(batches.inputs(rows), Images(pixels).inputs(rows.numpy()))
        assert (batches.resident, len(reads)) == (held, 0 if held else 1)


def test_other_rows_may_be_asked_for_in_between(pixels, reads):
    reader = prefetching(pixels)
    assert torch.equal(reader.take(SECOND), torch.from_numpy(pixels)[SECOND])
    assert torch.equal(reader.take(FIRST), torch.from_numpy(pixels)[FIRST])
    assert sorted(reads) == [("MainThread", [7, 7, 0]), ("prefetch", [3, 1, 40])]


def test_it_is_read_while_something_else_is_done(pixels, monkeypatch):
    began, may_end = threading.Event(), threading.Event()

    def slow(array, chosen, into):
        began.set()
        assert may_end.wait(30)
        dataset.read_rows(array, chosen, into)

    monkeypatch.setattr(loader, "read_rows", slow)
    reader = prefetching(pixels)
    assert began.wait(30)  # and this thread is free
    may_end.set()
    assert torch.equal(reader.take(FIRST), torch.from_numpy(pixels)[FIRST])


@pytest.mark.parametrize("method", ["supervised", "self_conditioned"])  # the second also asks for other rows before some steps
def test_a_run_reads_every_batch_ahead_and_learns_the_same(method, tmp_path, reads):
    run, held = tiny.trained(tmp_path / "held", method=method)
    other, read = tiny.trained(tmp_path / "read", mapped_digits(tmp_path), method=method)
    assert tiny.rows(other.folder) == tiny.rows(run.folder)
    assert all(torch.equal(value, read.state_dict()[name]) for name, value in held.state_dict().items())
    batches = [chosen for _, chosen in reads if len(chosen) == 16]
    ahead = [chosen for thread, chosen in reads if thread == "prefetch"]
    assert len(ahead) == 8  # of the steps after the first, and one that nobody asks for
    assert batches[-8:] == ahead or method == "self_conditioned"
    assert no_thread_is_left()


class Mapping(bytearray):
    """A mapped file's memory, with what the system was asked for."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.asked: list[tuple[int, int, int]] = []

    def madvise(self, option: int, start: int, length: int) -> None:
        self.asked.append((option, start, length))


def test_the_rows_of_a_mapped_file_are_all_asked_for_before_the_first_is_touched():
    """Whole pages of these rows and nothing else: a system reads megabytes around a page that is touched unasked."""
    mapping = Mapping(100 * 5000)
    array = np.ndarray.__new__(np.memmap, (100, 5000), np.uint8, buffer=mapping)
    array._mmap = mapping  # pyright: ignore[reportAttributeAccessIssue]
    array[:] = np.arange(100, dtype=np.uint8)[:, None]
    into = np.empty((2, 5000), np.uint8)
    dataset.read_rows(array[10:], np.array([7, 0]), into)
    assert into[:, 0].tolist() == [17, 10]
    expected = [(first - first % mmap.PAGESIZE, first + 5000) for first in (50_000, 85_000)]
    assert mapping.asked == [(mmap.MADV_WILLNEED, first, end - first) for first, end in expected]


# --- errors and endings --------------------------------------------------------------------------------------------------


def test_an_error_of_the_thread_is_raised_where_the_rows_are_asked_for(pixels, monkeypatch):
    monkeypatch.setattr(loader, "read_rows", lambda *_: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    reader = prefetching(pixels)
    with pytest.raises(InputError, match="the training data cannot be read any more: Input/output error"):
        reader.take(FIRST)
    assert no_thread_is_left()


def test_a_disk_that_fails_in_the_middle_is_one_line(tmp_path, monkeypatch, capsys):
    calls, opened = itertools.count(1), Opened(mapped_digits(tmp_path), [], [])

    def failing(array, chosen, into):
        if next(calls) == 5:
            raise OSError(5, "Input/output error")
        dataset.read_rows(array, chosen, into)

    monkeypatch.setattr(loader, "read_rows", failing)
    monkeypatch.setattr("sao.training.trainer.open_config_data", lambda config: opened)
    out = tmp_path / "run"
    assert main(["train", *tiny.words(method="supervised"), "--out", str(out)]) == 2
    assert capsys.readouterr().err == "sao: the training data cannot be read any more: Input/output error\n"
    assert no_thread_is_left()
    monkeypatch.setattr(loader, "read_rows", dataset.read_rows)
    assert main(["resume", str(out)]) == 0


def test_ctrl_c_leaves_no_thread(tmp_path, monkeypatch):
    step, calls = Supervised.step, []

    def interrupted(self, batch, number):
        calls.append(number)
        if number == 2:
            signal.raise_signal(signal.SIGINT)
        return step(self, batch, number)

    monkeypatch.setattr(Supervised, "step", interrupted)
    with pytest.raises(Interrupted):
        tiny.trained(tmp_path / "run", mapped_digits(tmp_path), method="supervised")
    assert calls == [0, 1, 2]
    assert no_thread_is_left()


def test_ctrl_c_is_heard_while_a_step_waits_for_data(pixels, monkeypatch):
    reading, may_end = threading.Event(), threading.Event()

    def wait(*_: object) -> None:
        reading.set()
        may_end.wait(30)
        reading.clear()

    monkeypatch.setattr(loader, "read_rows", wait)
    reader = prefetching(pixels)
    # To the process, as a keyboard sends it: one that a thread raises reaches that thread and wakes nobody.
    timer = threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            reader.take(FIRST)
        assert reading.is_set(), "it ended because the data came"
    finally:
        may_end.set()
        timer.join()


# --- what an accelerator is sent -----------------------------------------------------------------------------------------


class Sent(TorchDispatchMode):
    """The copies from the CPU to another device."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[tuple[torch.dtype, int]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor) and found.device.type != "cpu":
            sources = [value for value in args if isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.ndim]
            self.copies += [(value.dtype, value.numel()) for value in sources]
        return found


def test_bytes_travel_and_become_numbers_on_the_device(pixels):
    meta = torch.device("meta")
    batches = Batches(Images(pixels), meta, resident_bytes=0)
    with Sent() as sent:
        found = batches.inputs(FIRST)
    assert (found.device.type, found.dtype, found.shape) == ("meta", torch.float32, (3, 3, 8, 8))
    assert sent.copies == [(torch.uint8, 3 * 8 * 8 * 3)]


def test_an_evaluation_sends_bytes_too(pixels, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: torch.zeros(self.shape))  # nothing can be read from this device
    with Sent() as sent:
        extract(lambda inputs: inputs.flatten(1), Images(pixels), torch.device("meta"), chunk=30)
    assert sent.copies == [(torch.uint8, 30 * 192), (torch.uint8, 20 * 192)]


class Stream:
    """As much of an accelerator's stream as is used, with what was asked of it."""

    def __init__(self, name: str, said: list[str]) -> None:
        self.name, self.said = name, said

    def __enter__(self) -> None:
        self.said.append(f"on {self.name}")

    def __exit__(self, *_: object) -> None:
        self.said.append("back")

    def wait_stream(self, other: "Stream") -> None:
        self.said.append(f"{self.name} waits for {other.name}")


def test_an_accelerator_is_sent_pinned_memory_on_a_stream_of_its_own(pixels, monkeypatch):
    """With a stand-in, because there is none: the order of the calls is what can be held.

    Calls for a processor pass through unrecorded: a thread that another test left reading may make them at any time.
    """
    said: list[str] = []
    empty, to = torch.empty, torch.Tensor.to
    side, main_stream = Stream("side", said), Stream("computing", said)
    module = SimpleNamespace(
        Stream=lambda device: side, stream=lambda stream: stream, current_stream=lambda device: main_stream
    )

    def pinned(*args, pin_memory=False, **kwargs):
        if pin_memory:
            said.append("pinned")
        return empty(*args, **kwargs)

    def moved(self, device, *more, non_blocking=False, **named):
        if device != torch.device("cuda"):
            return to(self, device, *more, non_blocking=non_blocking, **named)
        said.append(f"sent, waiting {not non_blocking}")
        return self

    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    monkeypatch.setattr(torch, "empty", pinned)
    monkeypatch.setattr(torch.Tensor, "to", moved)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: said.append(f"kept for {stream.name}"))
    assert torch.equal(prefetching(pixels, torch.device("cuda")).take(FIRST), torch.from_numpy(pixels)[FIRST])
    assert said == [
        "pinned", "on side", "sent, waiting False", "back", "computing waits for side", "kept for computing",
    ]  # fmt: skip


# --- rows as inputs, held on the device or read from disk -------------------------------------------------------------


def test_memory_mapped_rows_equal_rows_in_memory(pixels, mapped):
    read, held = Batches(Images(mapped), CPU), Batches(Images(pixels), CPU)
    assert (read.resident, held.resident) == (False, True)
    for step in range(4):
        rows = batch_rows(0, step, 16, 50)
        found = read.inputs(rows)
        assert torch.equal(found, held.inputs(rows))
        assert (found.shape, found.dtype) == ((16, 3, 8, 8), torch.float32)
        assert torch.equal(found, Images(pixels).inputs(rows.numpy()))
        assert found.is_contiguous()


def test_an_accelerator_keeps_what_fits_also_of_a_map_or_an_index(mapped):
    for values in (mapped, SelectedRows(mapped, np.arange(0, 50, 3))):
        batches = Batches(Images(values), torch.device("meta"))
        assert isinstance(batches._values, torch.Tensor)
        assert (batches._values.shape, batches._values.dtype) == (values.shape, torch.uint8)
        assert batches.inputs(torch.tensor([3, 1])).shape == (2, 3, 8, 8)
        assert not Batches(Images(values), torch.device("meta"), resident_bytes=1000).resident


def test_rows_of_an_index_are_those_of_the_copy(pixels):
    chosen = np.random.default_rng(1).permutation(50)[:30]
    index, copy = Batches(Images(SelectedRows(pixels, chosen)), CPU), Batches(Images(pixels[chosen]), CPU)
    assert not index.resident
    rows = torch.tensor([29, 0, 7, 7])
    assert torch.equal(index.inputs(rows), copy.inputs(rows))


def test_vectors_are_given_as_they_are(tmp_path):
    values = np.random.default_rng(0).normal(size=(30, 5)).astype(np.float32)
    rows = torch.tensor([4, 1, 29])
    np.save(tmp_path / "rows.npy", values)
    for samples in (Vectors(values), Vectors(np.load(tmp_path / "rows.npy", mmap_mode="r"))):
        assert np.array_equal(Batches(samples, CPU).inputs(rows).numpy(), values[[4, 1, 29]])


def test_changing_a_batch_does_not_change_the_data(pixels):
    for values in (pixels, pixels.astype(np.float32).reshape(50, -1)):
        samples = Images(values) if values.dtype == np.uint8 else Vectors(values)
        batches, rows = Batches(samples, CPU), torch.arange(5)
        before = batches.inputs(rows).clone()
        batches.inputs(rows).zero_()
        assert torch.equal(batches.inputs(rows), before)


def test_labels_are_those_of_the_rows(pixels):
    labels = (np.arange(50) % 7).astype(np.uint8)
    found = Batches(Images(pixels, labels), CPU).labels(torch.tensor([8, 3, 49]))
    assert found.tolist() == [1, 3, 0]
    assert found.dtype == torch.int64
