"""Tests run against a changed copy of the package, in a process that is forked from one which has imported torch before."""

import gc
import importlib
import json
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Imported once, before the fork; nothing of the package itself.
PRELOADED = ["torch", "torch.func", "torch._dynamo", "numpy", "scipy", "sklearn", "sklearn.datasets", "pydantic", "yaml"]
PRELOADED += ["safetensors.torch", "PIL.Image", "pytest", "hypothesis", "matplotlib.pyplot", "kornia"]
COPIED = ("sao", "tests", "docs", "README.md", "pyproject.toml", "CONTRIBUTING.md", "benchmarks", "results")
NO_TESTS = 5  # what pytest says where nothing was to be run
MEMORY = 12 * 2**30  # of address space: a changed size must not take the machine with it


@dataclass(frozen=True)
class Outcome:
    code: int  # of pytest; 0 if every test passed
    failed: str  # the first test that did not
    seconds: float
    cpu_seconds: float
    timed_out: bool = False


def preload() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.dont_write_bytecode = False  # all but the changed file is compiled once
    for name in PRELOADED:
        try:
            importlib.import_module(name)
        except ImportError:
            print(f"{name} is not installed: tests that need it fail without a change, too", file=sys.stderr)
    gc.freeze()  # what is here stays: no child looks through it for garbage


def copy_package(root: Path, folder: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "*.npz")
    for name in COPIED:
        if (root / name).is_dir():
            shutil.copytree(root / name, folder / name, ignore=ignored)
        elif (root / name).exists():
            shutil.copy(root / name, folder / name)


def change(path: Path, source: bytes) -> None:
    """Write a source, and forget what was compiled of it: two changes within a second would have one time stamp."""
    path.write_bytes(source)
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def note(file: Path, row: dict[str, Any]) -> None:
    """One more line of JSON in a file of outcomes."""
    file.parent.mkdir(exist_ok=True)
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(row, ensure_ascii=False) + "\n")


def run(folder: Path, tests: list[str], seconds: float, cpu_seconds: float, plugins: tuple[Any, ...] = ()) -> Outcome:
    """These files of tests in the folder, until the first failure or the end of the time."""
    log = folder / "said.txt"
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _become_pytest(folder, tests, log, max(1, int(cpu_seconds)), plugins)
    status, usage, timed_out = _wait(pid, started + seconds)
    for remains in ("runs", ".hypothesis"):
        shutil.rmtree(folder / remains, ignore_errors=True)
    said = log.read_text(errors="replace")
    failures = [line for line in said.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    first = next((line.partition(" ")[2].partition(" - ")[0] for line in failures), "")
    timed_out |= os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU
    code = os.waitstatus_to_exitcode(status)
    if code == NO_TESTS:  # all of them were left out: nothing noticed anything
        code = 0
    return Outcome(code, first, time.monotonic() - started, usage.ru_utime + usage.ru_stime, timed_out)


def _wait(pid: int, deadline: float) -> tuple[int, resource.struct_rusage, bool]:
    timed_out = False
    try:
        while True:
            found, status, usage = os.wait4(pid, os.WNOHANG)
            if found:
                return status, usage, timed_out
            if time.monotonic() > deadline and not timed_out:
                timed_out = True
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
    finally:  # also what the tests started and did not end
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def _become_pytest(folder: Path, tests: list[str], log: Path, cpu_seconds: int, plugins: tuple[Any, ...]) -> None:
    """Never returns."""
    code = 70
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 5))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(folder)
        os.environ["PYTHONPATH"] = str(folder)
        sys.path.insert(0, str(folder))
        import pytest

        code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--tb=no", "--assert=plain", *tests], plugins=list(plugins))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(code))
