"""What a step of a run will cost: its own batch is tried where that is affordable, else two smaller ones and a line."""

import statistics
import time
import warnings
from dataclasses import dataclass

import torch

from sao.config import Config, build
from sao.data.dataset import Dataset
from sao.methods import Method
from sao.runtime.machine import peak_memory, reset_peak_memory, usable_memory
from sao.training.device import choose_device, set_threads
from sao.training.loop import Steps, check_batch, new_method

AFFORDABLE_SECONDS = 10.0  # of one step
AFFORDABLE_MEMORY = 0.6  # of what may be used
TIMED_SECONDS, FEWEST_TIMED, MOST_TIMED = 2.0, 2, 8  # steps are timed for so long, and so many of them
SMALL_BATCH_NUMBERS = 32 * 3 * 32 * 32  # the first trial: 32 colour images of 32x32, or as many others as have so many numbers


@dataclass(frozen=True)
class Trial:
    """Steps that were really made, with the method that made them."""

    batch: int
    seconds: float  # of one step
    memory: int  # bytes that the process held at most; on an accelerator, its bytes
    method: Method


@dataclass(frozen=True)
class StepCost:
    """Of one step of the run's own batch, and the largest trial that it was learnt from."""

    seconds: float
    memory: int
    trial: Trial


def step_cost(config: Config, dataset: Dataset, affordable: float | None = None) -> StepCost:
    """With its own batch where a step of it takes no more than `affordable` seconds, ten unless given."""
    check_batch(config, len(dataset.train))
    set_threads(config.train.threads)
    wanted = config.train.batch
    small = max(4, SMALL_BATCH_NUMBERS // dataset.train.inputs(slice(0, 1)).numel())
    if wanted <= 2 * small:
        return _of_its_own_batch(config, dataset)
    first, second = (_trial(config, dataset, batch) for batch in (small, 2 * small))
    more = (wanted - second.batch) / (second.batch - first.batch)
    seconds = second.seconds + more * max(0.0, second.seconds - first.seconds)
    memory = second.memory + round(more * max(0, second.memory - first.memory))
    if seconds > (AFFORDABLE_SECONDS if affordable is None else affordable) or memory > AFFORDABLE_MEMORY * memory_of(
        choose_device(config.train.device)
    ):
        return StepCost(seconds, memory, second)
    del first, second  # their networks would be counted too
    return _of_its_own_batch(config, dataset)


def memory_of(device: torch.device) -> int:
    """Bytes that a run may fill."""
    return torch.cuda.mem_get_info(device)[1] if device.type == "cuda" else usable_memory()


def _of_its_own_batch(config: Config, dataset: Dataset) -> StepCost:
    trial = _trial(config, dataset, config.train.batch)
    return StepCost(trial.seconds, trial.memory, trial)


def _trial(config: Config, dataset: Dataset, batch: int) -> Trial:
    """Steps with a method that is thrown away. The first is not timed: it also pays for warming up."""
    device = choose_device(config.train.device)
    config = build(config.model_dump(mode="json"), {"train.batch": str(batch)})
    reset_peak_memory()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it has to say is said when the run's own method is built
        method = new_method(config, dataset, device)
    times = []
    with Steps(config, dataset, method) as steps:
        for step in range(MOST_TIMED + 1):
            started = time.perf_counter()
            scalars = steps.make(step, check=False)
            float(next(iter(scalars.values())))  # waits for the device
            times.append(time.perf_counter() - started)
            whole = (len(times) - 1) % method.cycle == 0  # steps that do more than others count with their share
            if len(times) > FEWEST_TIMED and sum(times[1:]) > TIMED_SECONDS and whole:
                break
    memory = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else peak_memory()
    cycles = [times[start : start + method.cycle] for start in range(1, len(times), method.cycle)]
    seconds = statistics.median(sum(cycle) / len(cycle) for cycle in cycles)
    return Trial(batch, seconds, memory, method)
