"""The numbers on a card are of the very weights that it is shipped with."""

from pathlib import Path

import pytest
import tiny

from sao.cli.main import main
from sao.evaluation.result import Metric, write_json
from sao.training import checkpoint
from sao.training.run_folder import DataFacts, Run

LAST = 8  # of the tiny configuration
PROTOCOL = {"n_test": 360, "seed": 0}


def card(folder: Path, step: int, evaluated: dict[str, float]) -> str:
    """Of a run whose newest checkpoint is of this step, with files of evaluations, each with one number."""
    run = Run.create(folder / "run", tiny.config(), DataFacts.of(tiny.dataset()))
    checkpoint.save(run.checkpoints, tiny.method(), step, keep=1)
    for name, value in evaluated.items():
        write_json(run.evaluations / f"{name}.json", [Metric("kmeans", value, None, PROTOCOL)])
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
