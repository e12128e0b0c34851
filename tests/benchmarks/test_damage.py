"""A run folder with a damaged file is used, or refused in one line: 80 mutants, slowly, and 2,000 by benchmarks/damage.py."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from damage import COMMANDS, Mutant, make_run, run_all, trial  # pyright: ignore[reportMissingImports]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return make_run(tmp_path_factory.mktemp("damage"))


@pytest.mark.slow
def test_no_mutant_ends_in_a_traceback(tmp_path):
    assert run_all(80, 7, tmp_path) == []  # python benchmarks/damage.py tries more


@pytest.mark.parametrize("command", COMMANDS)
def test_a_dict_where_a_number_stood(run, tmp_path, command):
    content = (run / "data.json").read_text().replace('"shape": [1, 8, 8]', '"shape": [1, {"a": 1}, 8]')
    assert trial(run, Mutant("data.json", "by hand", content.encode()), command, tmp_path) is None


def test_metrics_that_are_not_text(run, tmp_path):
    rows = (run / "metrics.jsonl").read_bytes()
    assert trial(run, Mutant("metrics.jsonl", "by hand", rows[:40] + b"\xff" + rows[40:]), "resume", tmp_path) is None


def test_the_trial_notices_a_traceback(run, tmp_path, monkeypatch):
    monkeypatch.setattr("sao.training.run_folder.DataFacts.from_text", lambda text: 1 / 0)
    story = trial(run, Mutant("log.txt", "removed", None), "embed", tmp_path)
    assert story is not None
    assert "ZeroDivisionError" in story
