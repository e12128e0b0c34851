"""Whether everything was finite so far, as tensors on the method's device: steps write them, and only who logs reads them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sao.memory import MemoryBank, Queue
from sao.networks import MovingAverage, Partner

MOST_TERMS = 2**16  # that a method can have
LOOKING_IS_FREE = ("cpu",)  # devices where a look at one number costs less than copies of many


class NonFiniteError(FloatingPointError):
    """A term of a loss, or a gradient, is NaN or inf; nothing was updated with it."""

    def __init__(self, term: str, step: int | None = None) -> None:
        super().__init__(f"{term} is NaN or inf")
        self.term, self.step = term, step


class Health(nn.Module):
    """Remembers the first term that was not finite. From then on nothing that is learnt changes any more."""

    broken: Tensor
    first: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("broken", torch.zeros((), dtype=torch.bool), persistent=False)
        self.register_buffer("first", torch.zeros((), dtype=torch.int64), persistent=False)  # step · MOST_TERMS + term
        self.step = 0
        self._terms: list[str] = []
        self._places: dict[tuple[str, ...], int] = {}  # where in the list the terms of one look begin
        self._guarded: _Guarded | None = None

    @torch.no_grad()
    def look(self, scalars: Mapping[str, Tensor]) -> Tensor:
        """1 where an update must be left out, else 0, as fused optimisers ask for it."""
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

    @contextmanager
    def guarding(self, method: nn.Module, step: int) -> Iterator[None]:
        """Around a step: where it is not finite, averages and banks stand still, and other buffers get their old values back.

        Buffers change in the middle of a step (running moments, spectral vectors), before anyone knows how it ends. They are
        small. What is large (weights, averages, partners, banks, queues) is not copied: it does not change in the first place.
        """
        self.step = step
        if self._guarded is None:
            self._guarded = _Guarded.of(method)
        for module in self._guarded.skipping:
            module.skip = self.broken
        buffers = [(holder, name, holder[name].clone()) for holder, name in self._guarded.buffers]
        yield
        if self.broken.device.type in LOOKING_IS_FREE and not self.broken:
            return
        with torch.no_grad():
            for holder, name, before in buffers:
                holder[name].copy_(torch.where(self.broken, before, holder[name]))


@dataclass(frozen=True)
class _Guarded:
    """What a step may change beside weights. It is looked for once: a walk through all networks took a hundredth of a step."""

    skipping: list[MovingAverage | Partner | MemoryBank | Queue]
    buffers: list[tuple[dict[str, Any], str]]  # where each is held, because it may be another tensor after the step

    @classmethod
    def of(cls, method: nn.Module) -> "_Guarded":
        skipping = [module for module in method.modules() if isinstance(module, MovingAverage | Partner | MemoryBank | Queue)]
        holders = [module for module in method.modules() if not isinstance(module, Health | MemoryBank | Queue)]
        buffers = [
            (module._buffers, name)
            for module in holders
            for name, value in module._buffers.items()
            if value is not None and name not in module._non_persistent_buffers_set
        ]
        return cls(skipping, buffers)
