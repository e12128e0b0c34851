"""--dry-run says what the run would do, and its price is near what the run then costs."""

import re
import subprocess
import sys

import pytest
import tiny

from sao.training import cost

TRAIN = ["--encoder.widths", "[16, 32]", "--method.generator.width", "16", "--train.threads", "1"]
# Not getrusage's peak: a new process begins with that of the one that started it.
PEAK = """
import sys
from sao.cli.main import main
from sao.runtime.machine import peak_memory
assert main(sys.argv[1:]) == 0
print("peak", peak_memory())
"""


@pytest.fixture
def photos(tmp_path, monkeypatch):
    monkeypatch.setenv("SAO_CACHE", str(tmp_path / "cache"))
    tiny.draw_pictures(tmp_path / "photos", 100, (40, 50, 3), classes="ba")
    (tmp_path / "photos/notes.txt").write_text("not an image")
    (tmp_path / "photos/a/broken.png").write_bytes(b"\x89PNG broken")
    return tmp_path / "photos"


def priced(capsys, *words: str) -> str:
    return tiny.said(capsys, "train", *words, "--dry-run")


def test_it_says_what_the_run_would_do(photos, capsys, tmp_path):
    said = priced(capsys, "--data", str(photos), *TRAIN, "--train.steps", "50", "--train.batch", "9")
    for words in (
        "resized to 32x32",
        "2 class subfolders were found",
        "10 of 100 samples are held out",
        "auto: bank 22 of 90 training samples",
        "2 items could not be used: a/broken.png: ",
        "notes.txt: not an image",
        "photos: 100 colour images of 32x32, 90 to train on, 10 held out, 2 classes",
        "50 steps of 9: 5 passes over the data",
        ", measured",
        "whole run   50 steps",
        "memory",
        "disk",
        "evaluation  at most 10m 00s after the last step",
        "report      0m ",
    ):
        assert words in said, words
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "photos"]


def test_memory_is_what_the_steps_then_take(photos, tmp_path):
    """The evaluation after them, which has a budget of its own, is left out."""
    words = ["train", "--data", str(photos), *TRAIN, "--train.batch", "45", "--train.steps", "3"]
    words += ["--log.evaluate_minutes", "1e-9", "--log.report", "false"]
    runs = [
        subprocess.Popen([sys.executable, "-c", PEAK, *words, *more], stdout=subprocess.PIPE, text=True)
        for more in (["--dry-run"], ["--out", str(tmp_path / "run")])
    ]
    said, done = (run.communicate()[0] for run in runs)
    assert [run.returncode for run in runs] == [0, 0]
    (memory,) = re.findall(r"memory +([\d.]+) GB of the ", said)
    (peak,) = re.findall(r"peak (\d+)", done)
    assert float(memory) == pytest.approx(int(peak) / 1e9, rel=0.3)


def test_a_batch_too_large_to_try_is_priced_by_a_line(photos, capsys, monkeypatch):
    monkeypatch.setattr(cost, "AFFORDABLE_SECONDS", 0.0)
    monkeypatch.setattr(cost, "SMALL_BATCH_NUMBERS", 4 * 3 * 32 * 32)
    said = priced(capsys, "--data", str(photos), *TRAIN, "--train.steps", "50", "--train.batch", "45")
    assert "a straight line through batches of 4 and 8" in said


def test_too_much_memory_is_said(photos, capsys, monkeypatch):
    monkeypatch.setattr("sao.training.cost.usable_memory", lambda: 2**20)
    said = priced(capsys, "--data", str(photos), *TRAIN, "--train.steps", "50", "--train.batch", "9")
    assert "too much; lower train.batch" in said


def test_the_budget_of_the_evaluation_is_said(photos, capsys):
    words = ["--data", str(photos), *TRAIN, "--train.steps", "60", "--train.batch", "9", "--log.evaluate_minutes"]
    assert "evaluation  at most 2m 30s after the last step" in priced(capsys, *words, "2.5")
    assert "evaluation  no limit after the last step" in priced(capsys, *words, "null")
