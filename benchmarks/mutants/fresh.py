"""The changes of fresh.yaml, each shown to the tests that it names: `python benchmarks/mutants --fresh`.

A file of tests is first run without a change: one that fails then is left out, and said. Every outcome is a line of
results/mutants-fresh.jsonl. What was noticed is not tried again; what was missed is shown to the
`wider` tests of its entry next, and again when fresh.yaml names others.
"""

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import trial
import yaml

CHANGES = Path(__file__).with_name("fresh.yaml")
SECONDS = 240  # of the clock for a change, and for a file of tests without one


def try_all(root: Path, folder: Path, until: float) -> None:
    """Those whose tests are the quickest first, as far as it is known how long they take."""
    found, unchanged = root / "results" / "mutants-fresh.jsonl", root / ".mutants" / "unchanged.json"
    known = {row["id"]: row for row in _rows(found)}  # the last line of each
    seconds: dict[str, float | None] = json.loads(unchanged.read_text("utf-8")) if unchanged.exists() else {}
    changes = [{**one, "tests": _tests(one, known)} for one in yaml.safe_load(CHANGES.read_text("utf-8"))]
    left = [change for change in changes if not _is_known(known.get(change["id"]), change["tests"])]
    while left and time.monotonic() < until:
        change = min(left, key=lambda one: sum(seconds.get(test) or _guess(folder, test) for test in one["tests"]))
        left.remove(change)
        for test in [test for test in change["tests"] if test not in seconds]:
            seconds[test] = _unchanged(folder, test)
            unchanged.parent.mkdir(exist_ok=True)
            unchanged.write_text(json.dumps(seconds, indent=1), encoding="utf-8")
        tests = [test for test in change["tests"] if seconds[test] is not None]
        if tests and time.monotonic() < until:
            row = {"id": change["id"], **_outcome(folder, change, tests)}
            row["left_out"] = [test for test in change["tests"] if test not in tests]
            with found.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(row, ensure_ascii=False) + "\n")
            print(f"{row['outcome']:8} {row['seconds']:5.1f} s  {row['id']}", flush=True)


def _tests(change: dict[str, Any], known: dict[str, dict]) -> list[str]:
    """The nearest ones; for what they have missed, others."""
    missed = known.get(change["id"], {}).get("outcome") == "missed"
    return change.get("wider", change["tests"]) if missed else change["tests"]


def _is_known(row: dict[str, Any] | None, tests: list[str]) -> bool:
    return row is not None and (row["outcome"] != "missed" or {*row["tests"], *row.get("left_out", ())} == set(tests))


def _outcome(folder: Path, change: dict[str, Any], tests: list[str]) -> dict[str, Any]:
    path = folder / change["file"]
    original = path.read_text("utf-8")
    if original.count(change["old"]) != 1:
        sys.exit(f"{change['id']}: its old text is not once in {change['file']}")
    trial.change(path, original.replace(change["old"], change["new"]).encode())
    outcome = _run(folder, tests)
    trial.change(path, original.encode())
    result = "timeout" if outcome.timed_out else "missed" if outcome.code == 0 else "noticed"
    return {"outcome": result, "seconds": round(outcome.seconds, 1), "test": outcome.failed, "tests": tests}


def _unchanged(folder: Path, test: str) -> float | None:
    """How long a file of tests takes; None where it fails, or takes too long, without any change."""
    outcome = _run(folder, [test])
    if outcome.code != 0:
        print(f"left out: {test} without a change: {outcome.failed or outcome.code}", flush=True)
    return outcome.seconds if outcome.code == 0 else None


def _run(folder: Path, tests: list[str]) -> trial.Outcome:
    outcome = trial.run(folder, tests, seconds=SECONDS, cpu_seconds=SECONDS)
    for remains in ("runs", ".hypothesis"):
        shutil.rmtree(folder / remains, ignore_errors=True)
    return outcome


def _guess(folder: Path, test: str) -> float:
    """Seconds, by the length of the file."""
    return (folder / test.partition("::")[0]).stat().st_size / 500


def _rows(found: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in found.read_text("utf-8").splitlines()] if found.exists() else []
