"""Mixed precision (autocast to bfloat16, TF32, where a device has them), and networks as torch compiles them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Self, TypeVar

import torch


@contextmanager
def autocast(bfloat16: bool, tf32: bool, device: torch.device) -> Iterator[None]:
    """Around a forward pass in bfloat16 (torch.autocast), in TF32, or in neither."""
    passes = torch.autocast(device.type, dtype=torch.bfloat16) if bfloat16 else nullcontext()
    with passes, _rounded_factors("high", True) if tf32 else nullcontext():
        yield


def exact_products() -> AbstractContextManager:
    """Inside, float32 products and convolutions use no TF32 on any device; torch's default uses it for convolutions."""
    return _rounded_factors("highest", False)


@contextmanager
def _rounded_factors(of_matrices: str, of_convolutions: bool) -> Iterator[None]:
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    try:
        torch.set_float32_matmul_precision(of_matrices)
        torch.backends.cudnn.allow_tf32 = of_convolutions
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


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
