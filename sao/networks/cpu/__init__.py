"""Operators written for the CPU, and the one switch in front of them.

Torch's own operators are the definition of every network; these are faster on a CPU and equal to them in value, gradient,
forward mode and double backward pass. On any other device torch's own run, always.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

_portable = False


def use_cpu_operators(tensor: Tensor) -> bool:
    return not _portable and tensor.device.type == "cpu"


@contextmanager
def portable(wanted: bool = True) -> Iterator[None]:
    """Inside, torch's own operators run on the CPU too, and networks that are made or moved get weights in its layout."""
    global _portable
    before, _portable = _portable, wanted
    try:
        yield
    finally:
        _portable = before
