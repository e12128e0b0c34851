"""Arguments that are NaN or inf are refused where a person calls; a training step calls `function.unchecked` instead.

To look at values waits for the device. Unchecked, NaN or inf goes in and comes out, and the step's own check sees it.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar, cast

import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")


class Checked(Protocol[P, R]):
    unchecked: Callable[P, R]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...


def refuse_nonfinite(function: Callable[P, R]) -> Checked[P, R]:
    """The function, which refuses tensors that are not finite, and functions where they return such tensors."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        bound = signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            if isinstance(value, Tensor):
                check_finite(f"{name} holds", value)
            elif callable(value):
                bound.arguments[name] = _finite_results(name, value)
        return function(*bound.args, **bound.kwargs)

    found: Any = checked
    found.unchecked = function
    return cast(Checked[P, R], found)


def _finite_results(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, which raises where its result is not finite."""

    def checked(*args: Any) -> Any:
        result = function(*args)
        if isinstance(result, Tensor):
            check_finite(f"{name} returned", result)
        return result

    return checked


def check_finite(what: str, tensor: Tensor) -> None:
    tensor = tensor.detach()
    # A sum is finite only if every term is, and costs a fifth; where it overflows, the terms are looked at one by one.
    if not torch.isfinite(tensor.sum()) and not torch.isfinite(tensor).all():
        raise FloatingPointError(f"{what} NaN or inf")
