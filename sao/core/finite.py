"""Arguments that are NaN or inf are refused where a person calls; a step calls `function.unchecked` and does not wait."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn

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


MOST_TERMS = 2**16  # that a method can have


class NonFiniteError(FloatingPointError):
    """A term of a loss, or a gradient, is NaN or inf; no optimiser made a step with it."""

    def __init__(self, term: str, step: int | None = None) -> None:
        super().__init__(f"{term} is NaN or inf")
        self.term, self.step = term, step


class Health(nn.Module):
    """Keeps the first term that was not finite; from then on no optimiser steps, and the run must end: buffers may be NaN."""

    broken: Tensor
    first: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("broken", torch.zeros((), dtype=torch.bool), persistent=False)
        self.register_buffer("first", torch.zeros((), dtype=torch.int64), persistent=False)  # step · MOST_TERMS + term
        self.step = 0
        self._terms: list[str] = []
        self._places: dict[tuple[str, ...], int] = {}  # where in the list the terms of one update begin

    @torch.no_grad()
    def found_inf(self, scalars: Mapping[str, Tensor]) -> Tensor:
        """1 where an update must be left out, else 0, as an optimiser takes it."""
        finite = torch.stack([value.detach().isfinite().all() for value in scalars.values()])
        place = self.step * MOST_TERMS + self._place(tuple(scalars))
        self.first.copy_(torch.where(self.broken, self.first, finite.int().argmin() + place))
        self.broken.logical_or_(finite.all().logical_not_())
        return self.broken.float()

    def check(self) -> None:
        """Raise if a term was not finite; this waits for the device."""
        if bool(self.broken):
            step, term = divmod(int(self.first), MOST_TERMS)
            raise NonFiniteError(self._terms[term], step)

    def _place(self, terms: tuple[str, ...]) -> int:
        if terms not in self._places:
            self._places[terms] = len(self._terms)
            self._terms += terms
        return self._places[terms]
