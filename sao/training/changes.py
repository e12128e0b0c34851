"""What it means for a run to go on with other options: which ones, and what the length does to the learning rates."""

from sao.config import Config
from sao.errors import InputError
from sao.training.schedule import learning_rate_factor


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
