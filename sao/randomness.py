"""No hidden random state: every draw is a function of (seed, purpose, step)."""

import hashlib

import torch
from torch import Tensor


def generator(seed: int, purpose: str, step: int = 0, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator that always starts at the same place for the same three arguments."""
    return torch.Generator(device).manual_seed(derived_seed(seed, purpose, step))


def derived_seed(seed: int, purpose: str, step: int = 0) -> int:
    """A 63-bit seed; unrelated for any two different argument triples."""
    digest = hashlib.blake2b(f"{seed}/{purpose}/{step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def batch_rows(seed: int, step: int, batch: int, samples: int) -> Tensor:
    """Rows of the data set that make up the batch of a step: each epoch is a permutation of its own, cut into batches.

    The last rows of an epoch that do not fill a batch are left out; the next epoch orders them differently.
    """
    if not 1 <= batch <= samples:
        raise ValueError(f"batch must be between 1 and the number of samples ({samples}), got {batch}")
    if step < 0:
        raise ValueError(f"step must not be negative, got {step}")
    epoch, position = divmod(step, samples // batch)
    order = torch.randperm(samples, generator=generator(seed, "epoch", epoch))
    return order[position * batch : (position + 1) * batch]
