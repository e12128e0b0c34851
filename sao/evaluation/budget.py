"""The time that an evaluation may take. Nothing is forecast: a computation that takes too long is stopped, and left out.

One may take at most half of the time that is left, so that one slow metric leaves time for those after it.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_ENDS: ContextVar[float] = ContextVar("_ENDS", default=math.inf)  # of the computation under way in this thread


class OutOfTime(Exception):
    """A computation is longer than its share of the budget."""


def check_time() -> None:
    """For loops that may be long: ends the computation if its time is over."""
    if time.monotonic() > _ENDS.get():
        raise OutOfTime


class Budget:
    """It begins to run when it is made; None is no limit."""

    def __init__(self, minutes: float | None = None) -> None:
        self.minutes = minutes
        self.ends = math.inf if minutes is None else time.monotonic() + 60 * minutes

    @contextmanager
    def computation(self) -> Iterator[None]:
        now = time.monotonic()
        if now > self.ends:
            raise OutOfTime
        before = _ENDS.set(math.inf if self.minutes is None else now + (self.ends - now) / 2)
        try:
            yield
        finally:
            _ENDS.reset(before)

    @property
    def left(self) -> float:
        """Seconds."""
        return self.ends - time.monotonic()

    @property
    def reason(self) -> str:
        """Why something was left out."""
        return f"left out: it does not fit into the {self.minutes:g} minutes of this evaluation"
