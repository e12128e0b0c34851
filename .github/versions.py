"""The versions that the workflow tests, read from pyproject.toml and constraints.txt, where they are declared.

python .github/versions.py             lines for the workflow: matrix={…}, the jobs, and newest=…, the newest Python
python .github/versions.py --pin X     torch X in constraints.txt instead of the tested one; `newest` lets pip choose
"""

import argparse
import json
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTED = "tested"
# What torch needs beside it; torchvision's versions go with torch's.
TIED = ("torch", "torchvision")


def declared() -> dict[str, list[str]]:
    """Oldest and newest Python; oldest, tested and newest torch."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pythons = [
        found[1]
        for line in project["classifiers"]
        if (found := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line))
    ]
    (torch,) = (found[1] for line in project["dependencies"] if (found := re.fullmatch(r"torch>=([\d.]+)", line)))
    return {"python": [pythons[0], pythons[-1]], "torch": [torch, TESTED, "newest"]}


def matrix() -> dict[str, list[dict[str, str]]]:
    """A job for every pair of them on Linux, and one on macOS with what is newest and tested."""
    versions = declared()
    linux = [
        {"os": "ubuntu-latest", "python": python, "torch": torch}
        for python in versions["python"]
        for torch in versions["torch"]
    ]
    return {"include": [*linux, {"os": "macos-latest", "python": versions["python"][-1], "torch": TESTED}]}


def pinned(constraints: str, torch: str) -> str:
    """Constraints with another torch: that release's newest patch, or none at all."""
    lines = [line for line in constraints.splitlines() if re.split(r"[=<>~]", line)[0] not in TIED]
    return "\n".join([*lines, *([] if torch == "newest" else [f"torch~={torch}.0"])]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pin", metavar="TORCH")
    arguments = parser.parse_args()
    if arguments.pin is None:
        print(f"matrix={json.dumps(matrix())}")
        print(f"newest={declared()['python'][-1]}")
        return
    path = ROOT / "constraints.txt"
    path.write_text(pinned(path.read_text(encoding="utf-8"), arguments.pin), encoding="utf-8")


if __name__ == "__main__":
    main()
