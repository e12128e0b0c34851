"""Which test runs which lines of the package, and how long it takes: the tests that can notice a change, the quickest first.

What a test starts in another process is not seen, nor what an earlier test left behind for it. So this only gives an order:
a change that the tests of its line do not notice is shown to all the others of its file, too.
"""

import hashlib
import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest


class Watch:
    """A pytest plugin: the lines of the package that each test runs, written to a file at the end."""

    def __init__(self, folder: Path, written: Path):
        self.package, self.root, self.written = f"{folder / 'sao'}/", folder, written
        self.lines: dict[str, set[int]] = defaultdict(set)
        self.tests: dict[str, dict] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.lines.clear()
        started = time.process_time()
        before = sys.gettrace()
        threading.settrace(self._call)
        sys.settrace(self._call)
        try:
            return (yield)
        finally:
            sys.settrace(before)
            threading.settrace(None)  # pyright: ignore[reportArgumentType]
            lines = {str(Path(name).relative_to(self.root)): sorted(found) for name, found in self.lines.items()}
            self.tests[item.nodeid] = {"seconds": round(time.process_time() - started, 3), "lines": lines}

    def pytest_sessionfinish(self) -> None:
        self.written.write_text(json.dumps(self.tests), encoding="utf-8")

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(self.package) else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.lines[frame.f_code.co_filename].add(frame.f_lineno)
        return self._line


class Only:
    """A pytest plugin: these tests alone, in this order; or all but these."""

    def __init__(self, names: list[str], but: bool = False):
        self.place, self.but = {name: place for place, name in enumerate(names)}, but

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.but:
            items[:] = [item for item in items if item.nodeid not in self.place]
        else:
            chosen = [item for item in items if item.nodeid in self.place]
            items[:] = sorted(chosen, key=lambda item: self.place[item.nodeid])


class Touched:
    """What is known of the tests, by file of tests; kept on disk until that file, or the file that is asked about, changes."""

    def __init__(self, kept: Path):
        self.kept = kept

    def known(self, folder: Path, test: str, file: str) -> dict[str, dict] | None:
        kept = self._kept(test)
        if not kept.exists():
            return None
        found = json.loads(kept.read_text(encoding="utf-8"))
        same = all(found["sources"].get(name) == _digest(folder / name) for name in (test, file))
        return found["tests"] if same else None

    def keep(self, folder: Path, test: str, found: Path) -> dict[str, dict]:
        tests = json.loads(found.read_text(encoding="utf-8"))
        sources = [*(folder / "sao").rglob("*.py"), folder / test]
        digests = {str(path.relative_to(folder)): _digest(path) for path in sources}
        self.kept.mkdir(parents=True, exist_ok=True)
        self._kept(test).write_text(json.dumps({"sources": digests, "tests": tests}), encoding="utf-8")
        return tests

    def _kept(self, test: str) -> Path:
        return self.kept / f"{test.replace('/', '-')}.json"


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def quickest(tests: dict[str, dict], file: str, line: int) -> list[str]:
    """The names of the tests that run this line, the quickest first."""
    running = [name for name, test in tests.items() if line in test["lines"].get(file, ())]
    return sorted(running, key=lambda name: tests[name]["seconds"])
