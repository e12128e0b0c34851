"""The tool that changes the package to see whether its tests notice: its changes, and one trial of a small package."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "benchmarks" / "mutants"
sys.path.insert(0, str(TOOL))
from changes import mutants  # noqa: E402  # pyright: ignore[reportMissingImports]

SOURCE = '''
"""A docstring with a 1 in it."""
SCALE = 0.5

@torch.no_grad()
def f(x: Annotated[float, 3], rows, *, centred=True):
    if len(rows) < 2 or not x:
        raise ValueError(f"{x} is less than {2 + 3}")
    y = F.normalize(x.detach() - rows[1:].mean(0), dim=1)
    g(x, y)
    return -y
'''


def changes() -> list[tuple[str, str, str]]:
    return [(mutant.kind, mutant.before, mutant.after) for mutant in mutants("f.py", SOURCE.encode())]


def test_each_kind_of_change_is_made():
    assert set(changes()) == {
        ("constant", "0.5", "1.0"),
        ("guard", "torch.no_grad()", "torch.autograd.profiler.record_function('')"),
        ("constant", "True", "False"),
        ("condition", "len(rows) < 2 or not x", "not (len(rows) < 2 or not x)"),
        ("operator", "len(rows) < 2 or not x", "len(rows) < 2 and (not x)"),
        ("comparison", "len(rows) < 2", "len(rows) <= 2"),
        ("constant", "2", "3"),
        ("sign", "not x", "x"),
        ("keyword", "F.normalize(x.detach() - rows[1:].mean(0), dim=1)", "F.normalize(x.detach() - rows[1:].mean(0))"),
        ("left out", "F.normalize(x.detach() - rows[1:].mean(0), dim=1)", "x.detach() - rows[1:].mean(0)"),
        ("operator", "x.detach() - rows[1:].mean(0)", "x.detach() + rows[1:].mean(0)"),
        ("left out", "x.detach()", "x"),
        ("other function", "rows[1:].mean(0)", "rows[1:].sum(0)"),
        ("index", "rows[1:]", "rows[:]"),
        ("constant", "1", "2"),
        ("constant", "0", "1"),
        ("left out", "g(x, y)", "pass"),
        ("arguments", "g(x, y)", "g(y, x)"),
        ("sign", "-y", "y"),
    }


def test_nothing_but_the_named_place_is_changed():
    for mutant in mutants("f.py", SOURCE.encode()):
        lines = zip(SOURCE.splitlines(), mutant.source.decode().splitlines(), strict=True)
        assert [number for number, (one, other) in enumerate(lines, 1) if one != other] == [mutant.line]


def test_names_are_unique_and_stay_when_lines_move():
    keys = [mutant.key for mutant in mutants("f.py", SOURCE.encode())]
    assert len(set(keys)) == len(keys)
    assert keys == [mutant.key for mutant in mutants("f.py", b"\n\n" + SOURCE.encode())]


def lines_of(folder: Path, script: str) -> list[str]:
    """What a process that forks says."""
    # pytest is imported once, before the forks: that takes a second of a busy machine
    begin = f"import sys; sys.path.insert(0, {str(TOOL)!r})\nfrom pathlib import Path\nimport pytest, trial\n"
    command = [sys.executable, "-c", f"{begin}folder = Path({str(folder)!r})\n{script}"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.splitlines()


@pytest.mark.slow
def test_a_trial_tells_what_the_tests_notice_what_they_do_not_and_what_does_not_end(tmp_path: Path):
    (tmp_path / "small.py").write_text("def count(n):\n    while n > 0:\n        n -= 1\n    return n\n")
    (tmp_path / "test_small.py").write_text("from small import count\n\ndef test_small():\n    assert count(3) == 0\n")
    script = """
from changes import mutants
source = (folder / "small.py").read_bytes()
print("plain", trial.run(folder, ["test_small.py"], 60, 60).code)
for mutant in mutants("small.py", source):
    trial.change(folder / "small.py", mutant.source)
    found = trial.run(folder, ["test_small.py"], 300, 3)
    print(mutant.before, mutant.after, "late" if found.timed_out else found.code, found.failed, sep="|")
"""
    assert lines_of(tmp_path, script) == [
        "plain 0",
        "n > 0|not n > 0|1|test_small.py::test_small",
        "n > 0|n >= 0|1|test_small.py::test_small",
        "0|1|1|test_small.py::test_small",
        "n -= 1|n += 1|late|",
        "1|2|1|test_small.py::test_small",
    ]


@pytest.mark.slow
def test_the_quickest_test_of_a_line_comes_first_and_all_others_follow(tmp_path: Path):
    (tmp_path / "sao").mkdir()
    (tmp_path / "sao/__init__.py").write_text("")
    (tmp_path / "sao/small.py").write_text("def up(n):\n    return n + 1\n\n\ndef down(n):\n    return n - 1\n")
    (tmp_path / "test_small.py").write_text(
        "import time\nfrom sao.small import down, up\n\n"
        "def test_slow():\n    for _ in range(300_000):\n        pass\n    assert up(1) == 2\n\n"
        "def test_quick():\n    assert up(1) == 2\n\n"
        "def test_other():\n    assert down(1) == 0\n"
    )
    script = """
from touched import Only, Touched, Watch, quickest
kept = Touched(folder / "kept")
assert kept.known(folder, "test_small.py", "sao/small.py") is None
assert trial.run(folder, ["test_small.py"], 60, 60, (Watch(folder, folder / "found.json"),)).code == 0
kept.keep(folder, "test_small.py", folder / "found.json")
tests = kept.known(folder, "test_small.py", "sao/small.py")
first = quickest(tests, "sao/small.py", 2)
print(*first, quickest(tests, "sao/small.py", 1))
source = (folder / "sao/small.py").read_bytes()
for broken in (source.replace(b"n + 1", b"n"), source.replace(b"n - 1", b"n")):
    trial.change(folder / "sao/small.py", broken)
    assert kept.known(folder, "test_small.py", "sao/small.py") is None
    for plugin in (Only(first), Only(first, but=True), Only(list(tests), but=True)):
        found = trial.run(folder, ["test_small.py"], 60, 60, (plugin,))
        print(found.code, found.failed)
"""
    assert lines_of(tmp_path, script) == [
        "test_small.py::test_quick test_small.py::test_slow []",
        "1 test_small.py::test_quick",
        "0 ",
        "0 ",
        "0 ",
        "1 test_small.py::test_other",
        "0 ",
    ]
