"""Wrong changes, one at a time, and whether a test notices: `make mutants`, or `… sao/core/memory_bank.py`.

Every outcome is a line of results/mutants.jsonl, so that a run can be stopped at any time and goes on where it was. A change
that was noticed is not tried again; one that was not, when its file or its tests have changed.
"""

import argparse
import hashlib
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import fresh
import report
import trial
from changes import Mutant, mutants
from touched import Only, Touched, Watch, quickest

ROOT = Path(__file__).parents[2]
FOUND = ROOT / "results" / "mutants.jsonl"
FILES = [f"sao/core/{name}.py" for name in ("objectives", "finite", "jacobian", "memory_bank", "random", "distributed")]
FILES += ["sao/data/split.py", "sao/data/loader.py", "sao/training/loop.py", "sao/training/checkpoint.py"]
FILES += ["sao/methods/*.py", "sao/evaluation/*.py"]
# Tests beside those of the file's own name.
GAN_STEP, VIEWS_STEP = "tests/methods/test_structural_step.py", "tests/methods/test_baseline_steps.py"
VIEW_METHODS = ["tests/methods/test_view_steps.py", "tests/methods/test_two_views.py"]
EVERY_METHOD = "tests/methods/test_every_method.py"
CONTROLS = "tests/methods/test_controls.py"  # of every method too, and quicker
LIBRARIES = "tests/methods/test_library_imports.py"
DEFAULTS = "tests/methods/test_published_options.py"  # of every file of methods: it is quick
ALSO = {
    "sao/training/loop.py": ["tests/test_distributed.py"],
    "sao/core/random.py": ["tests/data/test_loader.py"],
    "sao/data/split.py": ["tests/data/test_table_files.py", "tests/data/test_arrays.py", "tests/data/test_images.py"],
    "sao/methods/gan.py": [GAN_STEP, "tests/methods/test_structural.py", CONTROLS],
    "sao/core/finite.py": ["tests/test_objectives.py", "tests/test_smoothness.py", "tests/test_memory.py"],
    "sao/methods/discriminator_passes.py": [GAN_STEP, "tests/methods/test_structural.py"],
    "sao/methods/encoders.py": [GAN_STEP, CONTROLS, "tests/config/test_config.py"],
    "sao/methods/biggan.py": [GAN_STEP, CONTROLS],
    "sao/methods/hinge.py": [GAN_STEP],
    **{f"sao/methods/{name}.py": VIEW_METHODS for name in ("byol", "dino", "nnclr", "swav")},
    "sao/methods/base.py": [GAN_STEP, CONTROLS, "tests/methods/test_health.py", EVERY_METHOD],
    "sao/methods/self_conditioned.py": ["tests/methods/test_reclustering.py", EVERY_METHOD],
    "sao/methods/stylegan2.py": [EVERY_METHOD],
    "sao/methods/optimisers.py": [VIEWS_STEP, "tests/methods/test_simclr.py"],
    "sao/methods/random.py": [CONTROLS],
    "sao/methods/simclr.py": [VIEWS_STEP],
    "sao/methods/supervised.py": [VIEWS_STEP, CONTROLS],
    "sao/methods/vicreg.py": [VIEWS_STEP, CONTROLS],
    "sao/methods/two_view.py": [VIEWS_STEP, "tests/methods/test_simclr.py", *VIEW_METHODS],
    "sao/methods/__init__.py": [EVERY_METHOD, CONTROLS, "tests/config/test_config.py"],
    "sao/methods/diffusers_import.py": [LIBRARIES, "tests/methods/test_ddpm.py"],
    "sao/methods/lightly_import.py": [LIBRARIES, "tests/methods/test_simclr.py"],
    "sao/methods/third_party.py": [LIBRARIES, "tests/methods/test_mae.py"],
    "sao/evaluation/extractors.py": ["tests/evaluation/test_generation.py"],
    "sao/evaluation/features.py": ["tests/evaluation/test_suite.py"],
    "sao/evaluation/fidelity.py": ["tests/evaluation/test_generation.py"],
    "sao/evaluation/folds.py": ["tests/evaluation/test_suite.py"],
    "sao/evaluation/html.py": ["tests/test_notebook.py"],
    "sao/evaluation/inputs.py": ["tests/evaluation/test_svm.py", "tests/evaluation/test_suite.py"],
    "sao/evaluation/comparison.py": ["tests/evaluation/test_verdict.py"],
    "sao/evaluation/partitions.py": ["tests/evaluation/test_clusters.py"],
}
SLOW = ("sao/core/distributed.py", "sao/training/loop.py")  # their tests start many processes: last
LEAST = 5  # of a file, however small


def main() -> int:
    arguments, started = _arguments(), time.monotonic()
    files = arguments.files or sorted({str(path.relative_to(ROOT)) for pattern in FILES for path in ROOT.glob(pattern)})
    chosen = _chosen(files, arguments.mutants)
    if arguments.report:
        print(report.written(chosen, _found()))
        return 0
    trial.preload()
    with tempfile.TemporaryDirectory(prefix="mutants") as name:
        folder = Path(name)
        trial.copy_package(ROOT, folder)
        if arguments.fresh:
            fresh.try_all(ROOT, folder, arguments.fresh, until=started + 60 * arguments.minutes)
            return 0
        if arguments.again:
            tried = _found()
            chosen = {file: [mutant for mutant in these if mutant.key in tried] for file, these in chosen.items()}
        for file, these in sorted(chosen.items(), key=lambda item: item[0] in SLOW):
            _try_file(folder, file, these, until=started + 60 * arguments.minutes)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="files of the package; all that compute something, if none is named")
    parser.add_argument("--mutants", type=int, default=400, help="about how many to try, spread over the files (400)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no trial after this time; the next call goes on")
    parser.add_argument("--again", action="store_true", help="only those that no test noticed before")
    parser.add_argument(
        "--fresh", nargs="?", const="fresh-4.yaml", metavar="LIST", help="those that a person invented (fresh-4.yaml)"
    )
    parser.add_argument("--report", action="store_true", help="print what was found so far, as results/mutants.md has it")
    arguments = parser.parse_args()
    for file in arguments.files:
        if not file.startswith("sao/") or not (ROOT / file).is_file():
            parser.error(f"{file} is no file of the package: name one as sao/core/memory_bank.py")
    return arguments


def _chosen(files: list[str], wanted: int) -> dict[str, list[Mutant]]:
    """Of every file its share, but at least a few: those that were tried before, then an order that everyone gets."""
    tried = _found()
    everything = {file: mutants(file, (ROOT / file).read_bytes()) for file in files}
    share = min(1.0, wanted / max(1, sum(map(len, everything.values()))))
    return {
        file: sorted(all_of_it, key=lambda mutant: (mutant.key not in tried, mutant.order))[
            : max(LEAST, math.ceil(share * len(all_of_it)), sum(mutant.key in tried for mutant in all_of_it))
        ]
        for file, all_of_it in everything.items()
        if all_of_it
    }


def tests_of(file: str) -> list[str]:
    """tests/x/test_y*.py for sao/x/y.py, and what `ALSO` adds; where there is nothing, the tests of the folder."""
    path = Path(file).relative_to("sao")
    own = sorted(str(found.relative_to(ROOT)) for found in (ROOT / "tests" / path.parent).glob(f"test_{path.stem}*.py"))
    first = [DEFAULTS] if path.parent.name == "methods" else []  # what runs at import is a line of no test: in this order
    return list(dict.fromkeys([*first, *own, *ALSO.get(file, [])])) or [str(Path("tests") / path.parent)]


def _try_file(folder: Path, file: str, chosen: list[Mutant], until: float) -> None:
    tests = tests_of(file)
    known, state = _found(), _state(folder, file, tests)
    left = [mutant for mutant in chosen if not _is_known(known.get(mutant.key), state)]
    if not left or time.monotonic() > until:
        return
    original = (folder / file).read_bytes()
    known_tests = _known_tests(folder, file, tests)
    cpu_seconds = sum(test["seconds"] for test in known_tests.values())
    limits: dict[str, float] = {"seconds": 180 + 20 * cpu_seconds, "cpu_seconds": 60 + 3 * cpu_seconds}
    for mutant in sorted(left, key=lambda mutant: mutant.key not in known):
        if time.monotonic() > until:
            return
        trial.change(folder / file, mutant.source)
        outcome = _try(folder, mutant, tests, known_tests, limits)
        trial.change(folder / file, original)
        _note(mutant, outcome, state)


def _known_tests(folder: Path, file: str, tests: list[str]) -> dict[str, dict]:
    """The lines and the time of every test; what is not known yet is found by running them without a change."""
    touched, found = Touched(ROOT / ".mutants" / "touched"), folder / "touched.json"
    everything: dict[str, dict] = {}
    for test in (path for name in tests for path in _test_files(folder / name, folder)):
        known = touched.known(folder, test, file)
        if known is None:
            plain = trial.run(folder, [test], seconds=3600, cpu_seconds=3600, plugins=(Watch(folder, found),))
            if plain.code != 0:
                sys.exit(f"{test} fails without any change: {plain.failed or plain.code}")
            known = touched.keep(folder, test, found)
        everything |= known
    return everything


def _test_files(test: Path, folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in (sorted(test.rglob("test_*.py")) if test.is_dir() else [test])]


def _try(folder: Path, mutant: Mutant, tests: list[str], known: dict[str, dict], limits: dict[str, float]) -> trial.Outcome:
    """First the tests that run the changed line, the quickest first; then all others of its file."""
    first = quickest(known, mutant.file, mutant.line)
    files = list(dict.fromkeys(name.split("::")[0] for name in first))
    if files:
        outcome = trial.run(folder, files, **limits, plugins=(Only(first),))
        if outcome.code != 0 or len(first) == len(known):
            return outcome
    return trial.run(folder, tests, **limits, plugins=(Only(first, but=True),))


def _note(mutant: Mutant, outcome: trial.Outcome, state: dict[str, str]) -> None:
    result = "timeout" if outcome.timed_out else "survived" if outcome.code == 0 else "killed"
    about = {name: getattr(mutant, name) for name in ("key", "file", "line", "kind")}
    found = {"result": result, "test": outcome.failed, "seconds": round(outcome.seconds, 1)}
    trial.note(FOUND, about | found | state)
    print(f"{result:8} {outcome.seconds:5.1f} s  line {mutant.line}: {mutant.key}", flush=True)


def _state(folder: Path, file: str, tests: list[str]) -> dict[str, str]:
    """Digests of the file and of its tests, with what they import from their folder."""
    paths = [path for test in tests for path in _sources(folder / test)]
    shared = [path for path in (folder / "tests").glob("*.py") if not path.name.startswith("test_")]
    return {"source": _digest([folder / file]), "tests": _digest(sorted({*paths, *shared}))}


def _sources(test: Path) -> Iterator[Path]:
    if test.is_dir():
        yield from test.rglob("*.py")
    else:
        yield test
        yield from (path for path in test.parent.glob("*.py") if not path.name.startswith("test_"))


def _digest(paths: list[Path]) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]


def _is_known(row: dict | None, state: dict[str, str]) -> bool:
    """One that was noticed stays so; one that was not is tried again when the file or its tests have changed."""
    if row is None:
        return False
    return row["result"] != "survived" or (row["source"], row["tests"]) == (state["source"], state["tests"])


def _found() -> dict[str, dict]:
    """The last line of each mutant."""
    if not FOUND.exists():
        return {}
    rows = [json.loads(line) for line in FOUND.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    return {row["key"]: row for row in rows}


if __name__ == "__main__":
    sys.exit(main())
