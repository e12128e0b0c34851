"""How far something is that can be counted: a bar on a terminal, plain lines now and then elsewhere."""

import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

from tqdm import tqdm

EVERY_SECONDS = 15.0  # between plain lines
MARKS = 2048  # times that are kept
OWN_FORMAT = "{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt}  "  # for whoever knows better than tqdm how long it takes


class TimeLeft:
    """How long the steps that are left will take, with what happens between them now and then.

    Steps are timed by whole cycles, because some do more than others, and by the later half of those that were: the first
    ones pay for warming up. What happens between steps, `every` so many of them, is timed by itself.
    """

    def __init__(self, first: int, total: int, cycle: int, every: Mapping[str, int | None], clock: Callable[[], float]) -> None:
        self.first, self.total, self.cycle, self.every, self.clock = first, total, cycle, every, clock
        self._last, self._done, self._seconds = clock(), first, 0.0
        self._marks = [0.0]  # seconds of steps alone after each cycle
        self._paused: dict[str, list[float]] = {}

    def step(self, done: int) -> None:
        """So many steps are done."""
        now = self.clock()
        self._seconds, self._last, self._done = self._seconds + now - self._last, now, done
        if (done - self.first) % self.cycle == 0:
            self._marks.append(self._seconds)
        if len(self._marks) > MARKS:
            self._marks, self.cycle = self._marks[::2], 2 * self.cycle

    @contextmanager
    def between(self, what: str) -> Iterator[None]:
        """Around what is no part of a step."""
        started = self.clock()
        try:
            yield
        finally:
            now = self.clock()
            self._paused.setdefault(what, []).append(now - started)
            self._last += now - started

    @property
    def seconds_a_step(self) -> float:
        cycles = len(self._marks) - 1
        if cycles < 2:
            return self._seconds / max(1, self._done - self.first)
        skipped = max(1, cycles // 2)
        return (self._marks[-1] - self._marks[skipped]) / ((cycles - skipped) * self.cycle)

    @property
    def seconds(self) -> float:
        """That are left, as far as anybody can know."""
        known = sum(self._to_come(what) * sum(took) / len(took) for what, took in self._paused.items())
        return (self.total - self._done) * self.seconds_a_step + known

    def unknown(self, what: str) -> int:
        """How often something will happen that never happened yet, so that nobody knows how long it takes."""
        return 0 if what in self._paused else self._to_come(what)

    def _to_come(self, what: str) -> int:
        every = self.every.get(what)
        return 0 if every is None else self.total // every - self.first // every - len(self._paused.get(what, ()))


class Bar:
    """Called with what is done and what there is, 0 while nobody knows.

    The bar goes away when all is done; a short job writes no plain line. With `own_time` the note says how long it takes.
    """

    def __init__(self, title: str, unit: str = "it", stream: TextIO | None = None, own_time: bool = False) -> None:
        self.title, self.unit, self.own_time = title, unit, own_time
        self.stream = sys.stderr if stream is None else stream
        self.started = self.last = time.monotonic()
        self._bar: Any = None

    def __call__(self, done: int, total: int, note: str = "") -> None:
        if not self.stream.isatty():
            self._line(done, total, note)
            return
        own = OWN_FORMAT + note.replace("{", "{{").replace("}", "}}") if self.own_time else None
        if self._bar is None:
            self._bar = tqdm(
                total=total or None,
                bar_format=own,
                desc=self.title,
                unit=self.unit,
                file=self.stream,
                ncols=columns(),
                nrows=24,  # some terminals say that they have none, and tqdm would draw nothing
                leave=False,
            )
        self._bar.total, self._bar.n, self._bar.ncols = total or None, done, columns()
        self._bar.bar_format = own
        self._bar.set_postfix_str("" if self.own_time else note, refresh=False)
        if total and done >= total:
            self.end()
        elif self.own_time:
            self._bar.refresh()  # whoever knows the time draws no more often than people can read
        else:
            self._bar.update(0)

    def _line(self, done: int, total: int, note: str) -> None:
        now = time.monotonic()
        if now - self.last < EVERY_SECONDS:
            return
        self.last = now
        there_are = f" of {total}" if total else ""
        print(f"{self.title}: {done}{there_are} {self.unit} {note}".rstrip(), file=self.stream, flush=True)

    def end(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def columns() -> int:
    """Of the terminal as it is now; the last one is left free, because some terminals break the line there."""
    return shutil.get_terminal_size().columns - 1
