"""Mixed precision: torch's autocast to bfloat16, and TF32, where a device has them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Self, TypeVar

import torch


@contextmanager
def autocast(bfloat16: bool, tf32: bool, device: torch.device) -> Iterator[None]:
    """Around a forward pass in bfloat16 (torch.autocast), in TF32, or in neither."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    with torch.autocast(device.type, dtype=torch.bfloat16) if bfloat16 else nullcontext():
        _round_factors("high" if tf32 else before[0], tf32 or before[1])
        try:
            yield
        finally:
            _round_factors(*before)


@contextmanager
def exact_products() -> Iterator[None]:
    """Inside, float32 products and convolutions use no TF32 on any device; torch's default uses it for convolutions."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    _round_factors("highest", False)
    try:
        yield
    finally:
        _round_factors(*before)


def _round_factors(of_matrices: str, of_convolutions: bool) -> None:
    torch.set_float32_matmul_precision(of_matrices)
    torch.backends.cudnn.allow_tf32 = of_convolutions


def full_precision(device: torch.device) -> AbstractContextManager:
    """Switches autocast off inside, so that tensors keep their precision."""
    if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


BACKEND = "inductor"
Function = TypeVar("Function", bound=Callable[..., Any])


class Compiled:
    """What to call in the place of a network: it is compiled once, and then has no forward mode and no second backward pass."""

    def __init__(self) -> None:
        self._known: dict[Callable[..., Any], Callable[..., Any]] = {}

    def __call__(self, function: Function) -> Function:
        if function not in self._known:
            self._known[function] = torch.compile(function, backend=BACKEND)
        return self._known[function]  # pyright: ignore[reportReturnType]

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy of a method has networks of its own."""
        return type(self)()


def identity(function: Function) -> Function:
    return function
