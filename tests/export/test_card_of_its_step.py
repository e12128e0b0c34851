"""The numbers on a card are of the very weights that it is shipped with."""

from pathlib import Path

import pytest
import tiny

from sao.cli.main import main
from sao.evaluation.result import Metric, write_json
from sao.report import history
from sao.training import checkpoint
from sao.training.run_folder import DataFacts, Run

LAST = 8  # of the tiny configuration
PROTOCOL = {"n_test": 360, "seed": 0}


def card(folder: Path, step: int, evaluated: dict[str, float], protocol: dict[str, int] = PROTOCOL) -> str:
    """Of a run whose newest checkpoint is of this step, with files of evaluations, each with one number."""
    run = Run.create(folder / "run", tiny.config(), DataFacts.of(tiny.dataset()))
    checkpoint.save(run.checkpoints, tiny.method(), step, keep=1)
    for name, value in evaluated.items():
        write_json(run.evaluations / f"{name}.json", [Metric("kmeans", value, None, protocol)])
    assert main(["ship", str(run.folder), "-o", str(folder / "copy"), "--licence", "MIT"]) == 0
    return (folder / "copy/README.md").read_text()


@pytest.mark.parametrize(
    ("step", "evaluated", "shown"),
    [
        (LAST, {"summary": 0.25}, "0.250"),
        (LAST, {"summary": 0.25, "step-00000008-backbone-ema": 0.5}, "0.500"),
        (4, {"summary": 0.25, "step-00000004-backbone-ema": 0.5}, "0.500"),
    ],
)
def test_the_card_shows_the_evaluation_of_its_step(step, evaluated, shown, tmp_path):
    text = card(tmp_path, step, evaluated)
    assert f"the EMA weights after step {step}," in text
    assert f"| kmeans | {shown} |" in text
    assert "Not evaluated" not in text


@pytest.mark.parametrize(
    "other",
    ["summary", "step-00000008-backbone-ema", "step-00000004-embedding-ema", "step-00000004-backbone-raw"],
)
def test_numbers_of_other_weights_or_features_are_not_on_the_card(other, tmp_path):
    text = card(tmp_path, 4, {other: 0.25})
    assert "Not evaluated" in text
    assert "0.250" not in text


def test_a_table_of_before_the_run_went_on_is_not_on_the_card(tmp_path):
    """The run was extended to 8 steps and stopped before its new table was written."""
    text = card(tmp_path, LAST, {"summary": 0.25}, {**PROTOCOL, "step": 4})
    assert "Not evaluated" in text
    assert "0.250" not in text


def test_a_table_that_says_its_step_is_shown_for_it_alone(tmp_path):
    text = card(tmp_path, 4, {"summary": 0.25}, {**PROTOCOL, "step": 4})
    assert "| kmeans | 0.250 |" in text
    run = Run.open(tmp_path / "run")
    for step, shown in ((4, [0.25]), (LAST, [])):
        assert [one["value"] for one in history.metrics(run, step)] == shown


def test_the_report_of_an_earlier_step_does_not_show_a_table_of_the_last(tmp_path):
    card(tmp_path, 4, {"summary": 0.25})  # as version 0.2 wrote it
    run = Run.open(tmp_path / "run")
    assert history.metrics(run, 4) == []
    assert [one["value"] for one in history.metrics(run, LAST)] == [0.25]
