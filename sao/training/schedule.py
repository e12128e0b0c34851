"""Learning rates as a function of the step alone: there is no state that a checkpoint would have to hold."""

import math
from typing import Literal

from torch.optim import Optimizer

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
