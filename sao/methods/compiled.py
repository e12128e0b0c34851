"""Networks as torch compiles them: the first call is slow, later ones have fewer kernels to start."""

from collections.abc import Callable
from typing import Any, Self, TypeVar

import torch

BACKEND = "inductor"
Function = TypeVar("Function", bound=Callable[..., Any])


class Compiled:
    """What to call in the place of a network, or of a bound method: it is compiled once, when it is first called.

    A compiled function has no forward mode and no second backward pass, so passes with a Jacobian norm or a gradient penalty
    are not compiled.
    """

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
