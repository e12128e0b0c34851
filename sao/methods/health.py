"""Whether everything was finite so far, as tensors on the method's device: steps write them, and only who logs reads them."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

MOST_TERMS = 2**16  # that a method can have


class NonFiniteError(FloatingPointError):
    """A term of a loss, or a gradient, is NaN or inf; no optimiser made a step with it."""

    def __init__(self, term: str, step: int | None = None) -> None:
        super().__init__(f"{term} is NaN or inf")
        self.term, self.step = term, step


class Health(nn.Module):
    """Keeps the first term that was not finite. From then on no optimiser makes a step.

    A run must end there: buffers may be NaN.
    """

    broken: Tensor
    first: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("broken", torch.zeros((), dtype=torch.bool), persistent=False)
        self.register_buffer("first", torch.zeros((), dtype=torch.int64), persistent=False)  # step · MOST_TERMS + term
        self.step = 0
        self._terms: list[str] = []
        self._places: dict[tuple[str, ...], int] = {}  # where in the list the terms of one look begin

    @torch.no_grad()
    def look(self, scalars: Mapping[str, Tensor]) -> Tensor:
        """1 where an update must be left out, else 0: an optimiser's `found_inf`."""
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
