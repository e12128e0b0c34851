"""`sao resume` with other options: longer runs, and what that does to the learning rates."""

import shutil
from pathlib import Path

import pytest
import tiny

from sao.cli.main import main
from sao.training.run_folder import Run


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Runs of some steps, by their options."""
    kept: dict[tuple, Path] = {}

    def make(**options) -> Path:
        key = tuple(sorted(options.items()))
        if key not in kept:
            kept[key] = tmp_path_factory.mktemp("made") / "run"
            assert main(["train", *tiny.words(**options), "--out", str(kept[key])]) == 0
        return kept[key]

    return make


def tensors(run: Path, step: int) -> tuple[bytes, bytes]:
    files = ("method.safetensors", "optimisers.safetensors")
    first, second = ((run / f"checkpoints/step-{step:08d}" / name).read_bytes() for name in files)
    return first, second


def test_a_longer_run_is_the_one_that_it_would_have_been(made, tmp_path, capsys):
    run = shutil.copytree(made(train__steps=4), tmp_path / "run")
    said = tiny.said(capsys, "resume", run, "--train.steps", "9")
    assert "train.steps is 9 from here on; it was 4" in said
    assert "going on after step 4 of 9" in said
    assert "one of 9 steps" in said
    assert tensors(run, 9) == tensors(made(train__steps=9), 9)
    assert tiny.rows(run) == tiny.rows(made(train__steps=9))
    assert Run(run).config == Run(made(train__steps=9)).config


def test_a_longer_cosine_is_said_to_be_another_run(made, tmp_path, capsys):
    run = shutil.copytree(made(method="supervised", train__steps=4, train__schedule="cosine"), tmp_path / "run")
    said = tiny.said(capsys, "resume", run, "--train.steps=8")
    assert "after step 4 the learning rate goes on at 50% of its highest value instead of 0%" in said
    assert tensors(run, 8) != tensors(made(method="supervised", train__steps=8, train__schedule="cosine"), 8)
    assert "complete: all 8 steps are done" in tiny.said(capsys, "resume", run)


def test_passes_over_the_data_are_a_length_too(made, tmp_path, capsys):
    run = shutil.copytree(made(method="random", train__steps=4), tmp_path / "run")
    assert main(["resume", str(run), "--train.epochs", "1"]) == 0
    assert Run(run).rows()[-1]["step"] == Run(run).facts.samples // 16


def test_other_options_hold_from_here_on(made, tmp_path, capsys):
    run = shutil.copytree(made(train__steps=4), tmp_path / "run")
    assert main(["resume", str(run), "--train.steps", "6", "--log.every", "2", "--train.check_every", "7"]) == 0
    assert [row["step"] for row in Run(run).rows()] == [1, 2, 3, 4, 6]
    assert Run(run).config.train.check_every == 7


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--train.steps", "3"], "has made 4 steps already"),
        (["--train.steps", "many"], "train.steps"),
        (["--train.stesp", "9"], "train.steps"),
        (["--data.source", "spirals"], "--data PATH"),
        (["--method.generator.width", "5"], "of another network"),
        (["--data", "spirals"], "the data has changed"),
    ],
)
def test_what_cannot_be_changed_changes_nothing(made, tmp_path, options, said, capsys):
    run = shutil.copytree(made(train__steps=4), tmp_path / "run")
    before = tiny.contents(run)
    assert said in tiny.refused(capsys, "resume", run, *options)
    assert before == tiny.contents(run)
