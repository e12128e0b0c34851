"""What networks that play against each other need of a method: draws of latents, and an opponent that is frozen."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from sao.core import distributed
from sao.core import random as randomness
from sao.errors import InputError


@contextmanager
def frozen(*networks: nn.Module) -> Iterator[None]:
    """Gradients pass through the networks, but their parameters take none."""
    for network in networks:
        network.requires_grad_(False)
    try:
        yield
    finally:
        for network in networks:
            network.requires_grad_(True)


def normal_rows(shape: tuple[int, ...], batch: int, seed: int, purpose: str, step: int, like: Tensor) -> Tensor:
    """This process's rows (n, *shape) of the standard normal draws of a global batch."""
    rows = distributed.local_slice(batch)
    return randomness.normal(seed, purpose, step, rows, shape, like.device).to(like.dtype)


def images_only(shape: tuple[int, ...], name: str) -> None:
    if len(shape) == 1:
        raise InputError(f"method {name} is for images, and this data is vectors: choose another --method")
