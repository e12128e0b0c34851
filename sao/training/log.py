"""Where a run speaks: metrics.jsonl for machines, log.txt and the console for people, trackers on request."""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sao.errors import printable
from sao.runtime.files import opened
from sao.training.bar import Bar, TimeLeft, columns
from sao.training.trackers import Trackers

BAR_LENGTH = 20  # letters
WIDTH = 79  # of a line that every terminal shows whole
NOTE_WIDTH = 48  # of what stands behind a bar
EVALUATION = "evaluation"  # what happens between steps and takes long


class FolderGone(Exception):
    """The folder of a run was deleted or moved while the run was trained; noticed after a step."""

    def __init__(self, step: int) -> None:
        super().__init__(step)
        self.step = step


OnLog = Callable[[dict[str, Any]], object]  # gets a row of metrics.jsonl


class Log:
    """Rows of scalars and lines of text. Only the main process has one that writes (`folder=None` is silent).

    Each row goes to the trackers named in `to` and to `on_log` too. What `on_log` raises is kept in `failure`, where the loop
    finds it: it stops as for Ctrl-C. Trackers are told the `options` of the run.
    """

    failure: BaseException | None = None

    def __init__(
        self,
        folder: Path | None,
        first: int = 0,
        on_log: OnLog | None = None,
        to: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._on_log = on_log
        self._metrics = self._text = self._trackers = None
        if folder is None:
            return
        self._path = folder / "metrics.jsonl"
        try:
            self._metrics = opened(self._path, "a", encoding="utf-8")
            self._text = opened(folder / "log.txt", "a", encoding="utf-8", errors="backslashreplace")
            self._trackers = Trackers(to, folder, options or {}, first, self.note)
        except BaseException:
            self.close()
            raise

    def row(self, step: int, scalars: dict[str, float]) -> None:
        """One line of JSON. What depends on the clock is named time/…; the rest is the same for the same seed."""
        row = {"step": step, **scalars}
        if self._metrics is not None:
            self.check(step)
            self._metrics.write(json.dumps(row) + "\n")
            self._metrics.flush()
        if self._trackers is not None:
            self._trackers.row(step, scalars)
        if self._on_log is not None and self.failure is None:
            try:
                self._on_log(row)
            except BaseException as error:  # also KeyboardInterrupt, by which a function asks to stop
                self.failure = error

    def final(self, step: int, metrics: Mapping[str, float]) -> None:
        """The evaluation after the last step, for trackers: in the folder it is a file of its own."""
        if self._trackers is not None:
            self._trackers.finish(step, metrics)

    def check(self, step: int) -> None:
        """Notice that the folder has gone: a file that was deleted takes every row without an error."""
        if self._metrics is None:
            return
        try:
            there = os.path.samestat(os.fstat(self._metrics.fileno()), self._path.lstat())
        except OSError:
            there = False
        if not there:
            raise FolderGone(step)

    def say(self, line: str) -> None:
        """One line, with control characters escaped: names of data and folders may be a stranger's."""
        if self._text is None:
            return
        print(printable(line), flush=True)
        self.note(line)

    def note(self, line: str) -> None:
        """A line for log.txt alone."""
        if self._text is None:
            return
        self._text.write(time.strftime("%Y-%m-%d %H:%M:%S ") + printable(line) + "\n")
        self._text.flush()

    def close(self) -> None:
        if self._trackers is not None:
            self._trackers.close()
        for file in (self._metrics, self._text):
            if file is not None:
                with suppress(OSError):  # every line was flushed when it was written; a full disk has been reported then
                    file.close()


class Progress:
    """Steps, time left, samples a second and one loss: a bar on a terminal, a line now and then elsewhere."""

    def __init__(
        self, first: int, total: int, batch: int, shown: bool, cycle: int = 1, evaluate_every: int | None = None
    ) -> None:
        self.first, self.total, self.batch, self.shown = first, total, batch, shown
        self.terminal = sys.stdout.isatty()
        self._bar = Bar("training", "step", sys.stdout, own_time=True)
        self.started = self.last = time.monotonic()
        self.left = TimeLeft(first, total, cycle, {EVALUATION: evaluate_every}, time.monotonic)

    def update(self, done: int, note: str) -> None:
        now = time.monotonic()
        if not self.shown or (now - self.last < (0.2 if self.terminal else 15) and done < self.total):
            return
        self.last = now
        evaluations = self.left.unknown(EVALUATION)
        left, beside = f"{clock(self.left.seconds)} left", f"+ {evaluations} evaluations" if evaluations else ""
        rate = f"{self.batch / max(1e-9, self.left.seconds_a_step):.0f} samples/s"
        if self.terminal:
            self._bar(done, self.total, _that_fit([left, note, beside, rate], NOTE_WIDTH))
        else:
            print(_that_fit([f"step {done}/{self.total}", left, note, beside, rate], WIDTH), flush=True)

    def times(self, done: int) -> dict[str, float]:
        """Since the run was started or resumed."""
        seconds = time.monotonic() - self.started
        return {"time/seconds": seconds, "time/samples_per_second": (done - self.first) * self.batch / max(1e-9, seconds)}

    def end_line(self) -> None:
        self._bar.end()


def _that_fit(fields: list[str], width: int) -> str:
    """As many of the fields, the first ones first, as a line can hold."""
    line = fields[0]
    for field in fields[1:]:
        if field and len(line) + 2 + len(field) <= width:
            line += f"  {field}"
    return line


class Stages:
    """What a long computation is doing: one line with a bar that is redrawn on a terminal, a line now and then elsewhere.

    A stage is known by what stands before its first comma: what follows tells how far it is inside of itself.
    """

    def __init__(self, title: str, every: float = 15.0, of: int = 0) -> None:
        self.title, self.every, self.of = title, every, of
        self.terminal = sys.stderr.isatty()
        self.started = self.last = time.monotonic()
        self.stage, self.begun = "", 0

    def expect(self, stages: int) -> None:
        """So many beside those that were."""
        self.of = self.begun + stages

    def __call__(self, stage: str) -> None:
        self.begun += stage.partition(",")[0] != self.stage
        self.stage = stage.partition(",")[0]
        now = time.monotonic()
        if not self.terminal and now - self.last < self.every:
            return
        self.last = now
        line, so_far = f"{self.title}: {self._bar()}{printable(stage)}", f" ({clock(now - self.started)} so far)"
        if self.terminal:  # a line that breaks cannot be drawn over
            line = line[: columns() - len(so_far)]
        line += so_far
        print(f"\r\x1b[2K{line}" if self.terminal else line, end="" if self.terminal else "\n", file=sys.stderr, flush=True)

    def _bar(self) -> str:
        """Of the stages that are over."""
        if not self.of:
            return ""
        of = max(self.of, self.begun)
        whole = BAR_LENGTH * (self.begun - 1) // of
        drawn = f"{'█' * whole}{'░' * (BAR_LENGTH - whole)} " if self.terminal else ""
        return f"{drawn}{self.begun} of {of}, "

    def end(self) -> None:
        if self.terminal:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


def clock(seconds: float) -> str:
    if seconds == float("inf"):
        return "?"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours}h"
    return f"{hours}h {minutes:02d}m" if hours else f"{minutes}m {seconds:02d}s"
