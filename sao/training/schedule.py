"""Learning rates as a function of the step alone: there is no state that a checkpoint would have to hold."""

import math
from typing import Literal

from torch.optim import Optimizer

from sao.config import Config
from sao.errors import InputError

Schedule = Literal["constant", "cosine"]


def learning_rate_factor(schedule: Schedule, step: int, total: int, warmup: int) -> float:
    """What the learning rates are multiplied by: a straight rise over the warm-up, then level, or half a cosine down to 0."""
    if step < warmup:
        return (step + 1) / warmup
    if schedule == "constant":
        return 1.0
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))


class LearningRates:
    """Of all the optimisers of a method, as they were when it was built or restored."""

    def __init__(self, optimisers: dict[str, Optimizer], schedule: Schedule, total: int, warmup: int) -> None:
        self.highest = [(group, group["lr"]) for one in optimisers.values() for group in one.param_groups]
        self.schedule: Schedule = schedule
        self.total, self.warmup = total, warmup

    def set(self, step: int) -> None:
        factor = learning_rate_factor(self.schedule, step, self.total, self.warmup)
        for group, highest in self.highest:
            group["lr"] = factor * highest


def described_changes(before: Config, after: Config, samples: int, done: int) -> list[str]:
    """A line for each option that is another now, and one for the consequence of another length."""
    old, new = (config.by_name() for config in (before, after))
    lines = [
        f"{key} is {new.get(key)} from here on; it was {old.get(key)}" for key in old | new if old.get(key) != new.get(key)
    ]
    total, former = after.steps_for(samples), before.steps_for(samples)
    if total == former and before.train.schedule == after.train.schedule:
        return lines
    if total < done:
        raise InputError(f"the run has made {done} steps already and cannot end at {total}: give more, or start another run")
    factors = [
        learning_rate_factor(config.train.schedule, done, config.steps_for(samples), config.warmup_steps_for(samples))
        for config in (before, after)
    ]
    if after.train.schedule == before.train.schedule == "constant":
        lines.append(f"the learning rate does not depend on the length: the run will be one of {total} steps")
    else:
        lines.append(
            f"the {after.train.schedule} schedule now ends at step {total}: after step {done} the learning rate goes on at "
            f"{factors[1]:.0%} of its highest value instead of {factors[0]:.0%}, so the run will not be the one that {total} "
            "steps from the start would have given"
        )
    return lines
