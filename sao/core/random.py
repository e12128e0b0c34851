"""No hidden random state: every draw is a function of (seed, purpose, step), and one for a batch also of its row."""

import functools
import hashlib
import math

import torch
from torch import Tensor

LARGEST_ORDER = 2**20  # samples whose order is made as a whole, once an epoch, and kept: 8 MB
ROUNDS = 6
# Of the generator splitmix64, as signed numbers: how far apart its states are, and the two multipliers of its mixing.
_APART = 0x9E3779B97F4A7C15 - 2**64
_MULTIPLIERS = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)


def generator(seed: int, purpose: str, step: int = 0, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator that always starts at the same place for the same three arguments."""
    return torch.Generator(device).manual_seed(derived_seed(seed, purpose, step))


def derived_seed(seed: int, purpose: str, step: int = 0) -> int:
    """A 63-bit seed; unrelated for any two different argument triples."""
    digest = hashlib.blake2b(f"{seed}/{purpose}/{step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def batch_rows(seed: int, step: int, batch: int, samples: int) -> Tensor:
    """Rows of the data set in the batch of a step: an epoch is a permutation, cut into batches that are all full."""
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

    A Feistel network permutes the numbers of 2k bits; what falls outside the samples is sent through it again.
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


# --- draws for a batch ---------------------------------------------------------------------------------------------------


def uniform(seed: int, purpose: str, step: int, rows: slice, shape: tuple[int, ...], device: torch.device | str) -> Tensor:
    """Float32 numbers (n, *shape) in [0, 1) for rows of a global batch, the same for any device and number of processes."""
    words = _words(derived_seed(seed, purpose, step), _places(rows, device), math.prod(shape))
    return words.bitwise_right_shift_(7).float().mul_(2.0**-24).reshape(-1, *shape)  # 24 bits: as many as a float32 holds


def normal(seed: int, purpose: str, step: int, rows: slice, shape: tuple[int, ...], device: torch.device | str) -> Tensor:
    """The same for the standard normal distribution, up to the rounding of a device's logarithm, sine and cosine."""
    return normal_named(seed, purpose, step, _places(rows, device), shape)


def normal_named(seed: int, purpose: str, step: int, names: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Standard normal numbers (n, *shape) for rows that whole numbers (n,) tell apart, wherever in a batch they stand."""
    count = math.prod(shape)
    half = -(-count // 2)
    values = _words(derived_seed(seed, purpose, step), names, 2 * half).float()
    radius, angle = values[:, :half], values[:, half:]
    radius.add_(1).mul_(2.0**-31).log_().mul_(-2).sqrt_()
    angle.mul_(2 * math.pi * 2.0**-31)
    sine = angle.sin().mul_(radius)  # Box and Muller: two numbers from each pair
    angle.cos_().mul_(radius)
    radius.copy_(sine)
    return values[:, :count].reshape(-1, *shape)


def names_of(rows: Tensor) -> Tensor:
    """A whole number (n,) for each row (n, …) of numbers, made of every bit of it as float32."""
    bits = rows.flatten(1).float().contiguous().view(torch.int32).long()
    places = torch.arange(1, bits.shape[1] + 1, device=rows.device).mul_(_APART)
    return _mixed(_mixed(bits).add_(places)).sum(1)


def _places(rows: slice, device: torch.device | str) -> Tensor:
    return torch.arange(rows.start, rows.stop, device=device)


def _words(key: int, names: Tensor, count: int) -> Tensor:
    """Whole numbers (n, count) below 2^31, as int32: a stream of the generator for each row, two words from each state."""
    states = _mixed(names.mul(_APART).add_(key))
    places = torch.arange(1, -(-count // 2) + 1, device=names.device).mul_(_APART)
    return _mixed(states[:, None] + places).view(torch.int32)[:, :count].bitwise_and(2**31 - 1)


def _mixed(states: Tensor) -> Tensor:
    """splitmix64's function of a state, in place. Products wrap round; a shift keeps the sign, which is cut off again."""
    for shift, multiplier in zip((30, 27), _MULTIPLIERS, strict=True):
        states.bitwise_xor_(_shifted(states, shift)).mul_(multiplier)
    return states.bitwise_xor_(_shifted(states, 31))


def _shifted(states: Tensor, bits: int) -> Tensor:
    return states.bitwise_right_shift(bits).bitwise_and_(2 ** (64 - bits) - 1)
