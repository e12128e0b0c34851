"""What a step of a run will cost: its own batch is tried where that is affordable, else two smaller ones and a line."""

import statistics
import time
import warnings
from dataclasses import dataclass, replace

import torch

from sao.config import Config, build
from sao.data.dataset import Dataset, Samples
from sao.engine.evaluate import VALIDATED
from sao.engine.evaluation_cost import predicted_memory, predicted_seconds
from sao.machine import held_memory, peak_memory, reset_peak_memory, usable_memory
from sao.methods import Method
from sao.training import checkpoint
from sao.training.device import choose_device, set_threads
from sao.training.loop import Steps, check_batch, new_method

WITH_CLUSTERS = (*(VALIDATED.metrics or ()), "cluster_agreement")  # what validation takes, agreement of clusters included
AFFORDABLE_SECONDS = 10.0  # of one step
AFFORDABLE_MEMORY = 0.6  # of what may be used
TIMED_SECONDS, FEWEST_TIMED, MOST_TIMED = 2.0, 2, 8  # steps are timed for so long, and so many of them
LOADED_BY_STEPS = 100 * 2**20  # what torch loads for the first step and keeps: the modules of its optimisers, of its products
SMALL_BATCH_NUMBERS = 32 * 3 * 32 * 32  # the first trial: 32 colour images of 32x32, or as many others as have so many numbers


@dataclass(frozen=True)
class Trial:
    """Steps that were really made, with the learner that made them."""

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
    before: int  # bytes that the process held when nothing was tried yet


def step_cost(config: Config, dataset: Dataset) -> StepCost:
    check_batch(config, len(dataset.train))
    set_threads(config.train.threads)
    wanted, before = config.train.batch, held_memory()
    small = max(4, SMALL_BATCH_NUMBERS // dataset.train.inputs(slice(0, 1)).numel())
    if wanted <= 2 * small:
        return _of_its_own_batch(config, dataset, before)
    first, second = (_trial(config, dataset, batch) for batch in (small, 2 * small))
    more = (wanted - second.batch) / (second.batch - first.batch)
    seconds = second.seconds + more * max(0.0, second.seconds - first.seconds)
    memory = second.memory + round(more * max(0, second.memory - first.memory))
    if seconds > AFFORDABLE_SECONDS or memory > AFFORDABLE_MEMORY * memory_of(choose_device(config.train.device)):
        return StepCost(seconds, memory, second, before)
    del first, second  # their networks would be counted too
    return _of_its_own_batch(config, dataset, before)


def evaluation_seconds(config: Config, method: Method, samples: Samples, train: int, test: int, classes: int | None) -> float:
    """Of all evaluations of a run on parts of so many samples: those while it trains, and the one after the last step.

    `samples` are some of the right shape, to time the network with.
    """
    seconds = predicted_seconds(method, samples, train, test, classes)
    every = config.log.evaluate_every
    validations = 0 if every is None else config.steps_for(train) // every
    if validations:
        plan = replace(VALIDATED, metrics=WITH_CLUSTERS, unlabelled=WITH_CLUSTERS[-2:])
        seconds += validations * predicted_seconds(method, samples, train, test, classes, plan, references=False)
    return seconds


def run_memory(cost: StepCost, samples: Samples, train: int, test: int, classes: int | None) -> int:
    """Bytes that a whole run holds at most: in its steps, or in the evaluation after them, which uses their memory again.

    The second counts where the learner and all features are in the host's memory.
    """
    method = cost.trial.method
    if next(method.parameters()).device.type != "cpu":
        return cost.memory
    learners = checkpoint.size_on_disk(method) + sum(value.nbytes for value in method.state_dict().values())  # and untrained
    evaluating = predicted_memory(method, samples, train, test, classes)
    return max(cost.memory, cost.before + LOADED_BY_STEPS + learners + evaluating)


def memory_of(device: torch.device) -> int:
    """Bytes that a run may fill."""
    return torch.cuda.mem_get_info(device)[1] if device.type == "cuda" else usable_memory()


def _of_its_own_batch(config: Config, dataset: Dataset, before: int) -> StepCost:
    trial = _trial(config, dataset, config.train.batch)
    return StepCost(trial.seconds, trial.memory, trial, before)


def _trial(config: Config, dataset: Dataset, batch: int) -> Trial:
    """Steps with a learner that is thrown away. The first is not timed: it also pays for warming up."""
    device = choose_device(config.train.device)
    config = build(config.model_dump(mode="json"), {"train.batch": str(batch)})
    reset_peak_memory()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it has to say is said when the run's own learner is built
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
