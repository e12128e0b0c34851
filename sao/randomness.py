"""No hidden random state: every draw is a function of (seed, purpose, step)."""

import functools
import hashlib

import torch
from torch import Tensor

LARGEST_ORDER = 2**20  # samples whose order is made as a whole, once an epoch, and kept: 8 MB
ROUNDS = 6


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
    positions = torch.arange(position * batch, (position + 1) * batch)
    if samples <= LARGEST_ORDER:
        return _order(seed, epoch, samples)[positions]
    return permuted(positions, samples, derived_seed(seed, "epoch", epoch))


@functools.lru_cache(maxsize=2)
def _order(seed: int, epoch: int, samples: int) -> Tensor:
    return torch.randperm(samples, generator=generator(seed, "epoch", epoch))


def permuted(positions: Tensor, samples: int, seed: int) -> Tensor:
    """Where a random permutation of so many samples, named by the seed, sends these positions; the others are not computed.

    A Feistel network permutes the numbers of 2k bits, whatever its round function is; a result that is not among the samples
    is sent through it again until one is, which leaves a permutation of the samples.
    """
    bits = max(1, ((samples - 1).bit_length() + 1) // 2)
    keys = torch.randint(2**31, (ROUNDS,), generator=torch.Generator().manual_seed(seed)).tolist()
    result = _feistel(positions, bits, keys)
    while bool((outside := result >= samples).any()):
        result[outside] = _feistel(result[outside], bits, keys)
    return result


def _feistel(values: Tensor, bits: int, keys: list[int]) -> Tensor:
    mask = (1 << bits) - 1
    left, right = values >> bits, values & mask
    for key in keys:
        left, right = right, left ^ (_mixed(right ^ key) & mask)
    return left << bits | right


def _mixed(values: Tensor) -> Tensor:
    """A hash of 32-bit numbers in int64: multiplications by less than 2**31 do not overflow."""
    for _ in range(2):
        values = ((values ^ (values >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    return values ^ (values >> 16)
