"""benchmarks/settings.py: which trials it makes, and that a study which was stopped does not make them again."""

import argparse
import json
import sys
from pathlib import Path

import pytest

from sao.errors import InputError

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import settings  # pyright: ignore[reportMissingImports]


def command(out: Path, **changes) -> argparse.Namespace:
    given = {
        "preset": "digits", "data": None, "folder": None, "schedule": None, "hold_back": False, "manifold": False, "steps": 2,
        "seeds": "0", "jobs": 1, "only": None, "tried": [], "out": out,
    }  # fmt: skip
    return argparse.Namespace(**{**given, **changes})


def test_options_by_hand_keep_their_lists():
    name, changes = settings.by_hand("narrow: encoder.widths [8, 32], train.steps 5")
    assert (name, changes) == ("narrow", {"encoder.widths": "[8, 32]", "train.steps": "5"})


@pytest.mark.parametrize("text", ["method.bank 512", ": method.bank 512", "bank: method.bank", "bank:"])
def test_options_by_hand_that_cannot_be_read_are_refused(text):
    with pytest.raises(InputError, match="--try takes"):
        settings.by_hand(text)


def test_what_is_tried_by_hand_is_tried_alone_unless_more_is_asked_for(tmp_path):
    by_hand = ["small bank: method.bank 64"]
    (only,) = settings.trials(command(tmp_path, tried=by_hand))
    assert (only.setting, only.value) == ("tried", "small bank")
    assert only.config.method.bank == 64
    both = list(settings.trials(command(tmp_path, tried=by_hand, only="preset", seeds="0,1")))
    assert [(trial.setting, trial.config.seed) for trial in both] == [
        ("preset", 0), ("preset", 1), ("tried", 0), ("tried", 1),
    ]  # fmt: skip
    assert len(list(settings.trials(command(tmp_path)))) > 20


def test_a_trial_that_was_measured_is_not_made_again(tmp_path, capsys):
    options = command(tmp_path, only="preset", steps=1)
    (trial,) = settings.trials(options)
    (other,) = settings.trials(command(tmp_path, only="preset", steps=1, hold_back=True))
    kept = [
        {"asked": settings.asked(trial), "found": {"kmeans": 0.25}},
        {"asked": settings.asked(other), "found": {"kmeans": 0.5}},
    ]
    (tmp_path / "settings.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
    settings.study(options)
    assert [path.name for path in tmp_path.iterdir()] == ["settings.jsonl"]
    assert "| preset | as it is | 0.250 | 1 |" in capsys.readouterr().out
