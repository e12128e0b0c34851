"""Measurements of one machine in one run. Times on a shared machine are noisy, so what is compared is measured in turns."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from sao.benchmark.literal import literal
from sao.config import Config
from sao.config import build as build_config
from sao.config.outside import use_file
from sao.core.memory_bank import MemoryBank
from sao.errors import CODE, InputError
from sao.methods import Batch, Method
from sao.runtime import machine
from sao.training.device import set_threads

PHASES = ("data", "generator", "momentum keys", "discriminator forward", "jacobian", "discriminator backward")
PHASES += ("generator pass", "optimiser")


@dataclass(frozen=True)
class Spread:
    """Seconds: the median of the repeats, the fastest and the slowest."""

    median: float
    fastest: float
    slowest: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Spread":
        return cls(statistics.median(seconds), min(seconds), max(seconds))

    def shared(self, parts: int) -> "Spread":
        """Of one of so many equal parts."""
        return Spread(self.median / parts, self.fastest / parts, self.slowest / parts)


CLASSES = 10  # for a method that learns from labels


def build(config: Config, shape: tuple[int, ...], samples: int, arrangement: str = "ours") -> Method:
    chosen = literal(config) if arrangement == "literal" else config
    method = chosen.build_method(shape, samples, CLASSES)
    if config.train.compile and arrangement == "ours":
        method.compile_networks()
    for bank in method.modules():
        if isinstance(bank, MemoryBank):  # a full bank costs what it costs in the middle of a run
            generator = torch.Generator().manual_seed(0)
            rows = [torch.randn(buffer.shape, generator=generator) for buffer in (bank.embeddings, bank.keys)]
            bank.push(F.normalize(rows[0]), F.normalize(rows[1]))
    return method


def random_batch(config: Config, shape: tuple[int, ...]) -> Batch:
    size = config.train.batch
    return Batch(torch.rand(size, *shape) * 2 - 1, torch.arange(size), torch.arange(size) % CLASSES)


@dataclass(frozen=True)
class Cycle:
    """As many steps as it takes until the work repeats: a penalty that is not in every step counts with its share."""

    method: Method
    batch: Batch

    def __call__(self, turn: int) -> None:
        for step in range(turn * self.method.cycle, (turn + 1) * self.method.cycle):
            self.method.training_step(self.batch, step)


def step_times(cycles: Sequence[Cycle], steps: int) -> list[Spread]:
    """Seconds of a step of each, in turns; each makes so many steps, or a few more to end a cycle."""
    longest = max(cycle.method.cycle for cycle in cycles)
    found = in_turns(cycles, -(-steps // longest))
    return [spread.shared(cycle.method.cycle) for spread, cycle in zip(found, cycles, strict=True)]


def in_turns(functions: Sequence[Callable[[int], object]], repeats: int) -> list[Spread]:
    """Time each function `repeats` times, round after round, after one round that does not count."""
    seconds: list[list[float]] = [[] for _ in functions]
    for turn in range(repeats + 1):
        for function, measured in zip(functions, seconds, strict=True):
            started = time.perf_counter()
            function(turn)
            if turn > 0:
                measured.append(time.perf_counter() - started)
    return [Spread.of(measured) for measured in seconds]


def flops(function: Callable[[], object]) -> int:
    """Floating-point operations of matrix products and convolutions, as torch counts them."""
    with _FlopCount() as counter:
        function()
    return counter.total


def phases(function: Callable[[], object]) -> dict[str, float]:
    """Seconds of one call by phase; what belongs to none is "other"."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        started = time.perf_counter()
        function()
        total = time.perf_counter() - started
    spent = dict.fromkeys(PHASES, 0.0)
    for event in profiler.events() or []:
        if event.name.startswith("phase/"):
            spent[event.name.removeprefix("phase/")] += event.cpu_time_total / 1e6
            within = event.cpu_parent
            while within is not None and not within.name.startswith("phase/"):
                within = within.cpu_parent
            if within is not None:  # a phase inside another counts once
                spent[within.name.removeprefix("phase/")] -= event.cpu_time_total / 1e6
    return spent | {"other": max(0.0, total - sum(spent.values()))}


def ceiling(method: Method, inputs: Tensor, seconds: float = 2.0) -> dict[str, float]:
    """FLOP/s of a large matrix product and of 3x3 convolutions at the encoder's shapes, forward, best of both layouts."""
    rates = {"gemm 2048": _gemm_rate(seconds / 2)}
    shapes: list[tuple[int, ...]] = []

    def note_shape(module: torch.nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> None:
        shapes.append((arguments[0].shape[1], output.shape[1], *output.shape[2:]))

    convolutions = [m for m in method.modules() if isinstance(m, torch.nn.Conv2d) and m.kernel_size == (3, 3)]
    hooks = [module.register_forward_hook(note_shape) for module in convolutions]
    method.features(inputs)
    for hook in hooks:
        hook.remove()
    for i, o, h, w in dict.fromkeys(shapes):
        for layout, name in ((torch.contiguous_format, "nchw"), (torch.channels_last, "nhwc")):
            rates[f"conv3x3 {i}>{o} {h}x{w} {name}"] = _convolution_rate((i, o, h, w), 2 * len(inputs), layout, seconds / 8)
    return rates


def peak_memory(config: Config, shape: tuple[int, ...], samples: int, arrangement: str) -> float:
    """Peak resident gigabytes of a process of its own that makes two steps."""
    request = {"config": config.model_dump(mode="json"), "shape": shape, "samples": samples, "arrangement": arrangement}
    request |= {"code": CODE}  # files that the person named
    command = [sys.executable, "-m", "sao.benchmark.measure"]
    done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it was killed"])[-1]
        raise InputError(f"the process that measures memory ended with code {done.returncode}: {last}; try a smaller --batch")
    return float(done.stdout.splitlines()[-1])


def _answer_peak_memory() -> None:
    """In that process: the request is read from standard input, the answer written to output."""
    request = json.load(sys.stdin)
    for path in request["code"]:
        use_file(path)
    config, shape = build_config(request["config"]), tuple(request["shape"])
    set_threads(config.train.threads)
    method = build(config, shape, request["samples"], request["arrangement"])
    batch = random_batch(config, shape)
    for step in range(2):
        method.training_step(batch, step)
    print(machine.peak_memory() / 1.024e9)  # as results have it: the system's kilobytes, of 1024 bytes, by the million


class _FlopCount(TorchDispatchMode):
    """torch's FLOP formulas without the module hooks of its own counter, which refuse torch.autograd.grad."""

    total = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self.total += formula(*args, **(kwargs or {}), out_val=result)
        return result


def _gemm_rate(seconds: float) -> float:
    a = torch.randn(2048, 2048)
    return 2 * 2048**3 / _fastest(lambda: a @ a, seconds)


def _convolution_rate(shape: tuple[int, ...], n: int, layout: torch.memory_format, seconds: float) -> float:
    i, o, h, w = shape
    x = torch.randn(n, i, h, w).contiguous(memory_format=layout)
    weight = torch.randn(o, i, 3, 3).contiguous(memory_format=layout)
    with torch.no_grad():
        return 2 * n * i * o * 9 * h * w / _fastest(lambda: F.conv2d(x, weight, padding=1), seconds)


def _fastest(function: Callable[[], object], seconds: float) -> float:
    function()
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        started = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - started)
    return best


if __name__ == "__main__":
    _answer_peak_memory()
