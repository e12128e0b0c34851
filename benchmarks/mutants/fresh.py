"""The changes of a list that a person invented, each shown to the tests that it names: `python benchmarks/mutants --fresh`.

A test that fails with the change must pass without it, or it is left out, and said. Every outcome is a line of
results/mutants-fresh.jsonl. What was noticed is not tried again; what was missed is shown to the
`wider` tests of its entry next, and then to those that were written for it `since`.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import trial
import yaml

SECONDS = 300  # of the clock for a change


def try_all(root: Path, folder: Path, name: str, until: float) -> None:
    found = root / "results" / "mutants-fresh.jsonl"
    changes: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name(name).read_text("utf-8"))
    for turn, which in enumerate(("tests", "wider", "since")):  # all of them by their nearest tests first
        for change in changes:
            known = [row for row in _rows(found) if row["id"] == change["id"]]
            open_still = len(known) <= turn and all(row["outcome"] == "missed" for row in known)
            if which in change and open_still and time.monotonic() < until:
                _try(folder, change, which, found)


def _try(folder: Path, change: dict[str, Any], which: str, found: Path) -> None:
    row = {"id": change["id"], "by": which, **_outcome(folder, change, change[which])}
    trial.note(found, row)
    print(f"{row['outcome']:8} {row['seconds']:5.1f} s  {row['id']}  {row['test']}", flush=True)


def _outcome(folder: Path, change: dict[str, Any], tests: list[str]) -> dict[str, Any]:
    path, left_out = folder / change["file"], []
    original = path.read_text("utf-8")
    if original.count(change["old"]) != 1:
        sys.exit(f"{change['id']}: its old text is not once in {change['file']}")
    while True:
        trial.change(path, original.replace(change["old"], change["new"]).encode())
        outcome = _run(folder, [*tests, *(f"--deselect={test}" for test in left_out)])
        trial.change(path, original.encode())
        failed = outcome.failed
        if outcome.timed_out or not failed or _run(folder, [failed]).code == 0:
            break
        print(f"left out: {failed} fails without a change", flush=True)
        left_out.append(failed)
    result = "timeout" if outcome.timed_out else "missed" if outcome.code == 0 else "noticed"
    facts = {"outcome": result, "seconds": round(outcome.seconds, 1), "test": outcome.failed, "tests": tests}
    return facts | ({"left_out": left_out} if left_out else {})


def _run(folder: Path, tests: list[str]) -> trial.Outcome:
    return trial.run(folder, tests, seconds=SECONDS, cpu_seconds=SECONDS)


def _rows(found: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in found.read_text("utf-8").splitlines()] if found.exists() else []
