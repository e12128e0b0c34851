"""How far something is that can be counted: a bar on a terminal, plain lines now and then elsewhere."""

import sys
import time
from typing import Any, TextIO

from tqdm import tqdm

EVERY_SECONDS = 15.0  # between plain lines


class Bar:
    """Called with what is done and what there is, 0 while nobody knows.

    The bar goes away when all is done; a short job writes no plain line.
    """

    def __init__(self, title: str, unit: str = "it", stream: TextIO | None = None) -> None:
        self.title, self.unit = title, unit
        self.stream = sys.stderr if stream is None else stream
        self.started = self.last = time.monotonic()
        self._bar: Any = None

    def __call__(self, done: int, total: int, note: str = "") -> None:
        if not self.stream.isatty():
            self._line(done, total, note)
            return
        if self._bar is None:
            self._bar = tqdm(
                total=total or None,
                desc=self.title,
                unit=self.unit,
                file=self.stream,
                dynamic_ncols=True,
                leave=False,
            )
        self._bar.total, self._bar.n = total or None, done
        self._bar.set_postfix_str(note, refresh=False)
        if done < total or not total:
            self._bar.update(0)
        else:
            self.end()

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
