"""A run finds its data again: from any folder, after a move, and at a place that a person names, if it is the same data."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny

from sao.cli.main import main
from sao.training.run_folder import Run


def photographs(folder: Path, seed: int = 0, count: int = 24) -> Path:
    return tiny.draw_pictures(folder, count, seed=seed, classes=("light", "dark"))


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A folder with photographs and a run of them that was started in it, by relative paths."""
    folder = tmp_path_factory.mktemp("project")
    photographs(folder / "photographs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("SAO_CACHE", str(folder.parent / "cache"))
        assert main(["train", *tiny.words(method="random"), "--data", "photographs", "--out", "runs/x"]) == 0
    return folder


@pytest.fixture(autouse=True)
def elsewhere(project, monkeypatch) -> None:
    """Where the commands are typed."""
    monkeypatch.setenv("SAO_CACHE", str(project.parent / "cache"))
    monkeypatch.chdir("/")


@pytest.fixture
def moved(project, tmp_path) -> Path:
    """A copy of the project at another place; its absolute path leads nowhere."""
    copy = shutil.copytree(project, tmp_path / "project")
    _leave_something_to_do(copy)
    file = copy / "runs/x/data.json"
    facts = json.loads(file.read_text())
    assert facts["place"][1] == "../../photographs"
    file.write_text(json.dumps(facts | {"place": [str(tmp_path / "gone" / "photographs"), facts["place"][1]]}))
    return copy


def _leave_something_to_do(project: Path) -> None:
    """Else a run that is complete is not gone on with."""
    (project / "runs/x/eval/summary.json").unlink(missing_ok=True)


def test_from_another_folder(project):
    _leave_something_to_do(project)
    assert main(["resume", str(project / "runs/x")]) == 0
    assert main(["eval", str(project / "runs/x"), "--metrics", "effective_rank"]) == 0


def test_a_folder_of_that_name_where_the_command_is_typed_is_not_taken_for_it(project, tmp_path, monkeypatch):
    photographs(tmp_path / "photographs", seed=1, count=30)
    monkeypatch.chdir(tmp_path)
    _leave_something_to_do(project)
    assert main(["resume", str(project / "runs/x")]) == 0


def test_run_and_data_moved_together(moved):
    assert main(["resume", str(moved / "runs/x")]) == 0
    assert main(["eval", str(moved / "runs/x"), "--metrics", "effective_rank"]) == 0


def test_data_that_is_gone_is_said_with_every_place(moved, tmp_path, capsys):
    (moved / "photographs").rename(tmp_path / "elsewhere")
    for command in ("resume", "eval"):
        said = tiny.refused(capsys, command, moved / "runs/x")
        for place in (tmp_path / "gone/photographs", moved / "photographs", "/photographs"):
            assert f" {place}," in said.replace(";", ",")
        assert "--data PATH" in said


def test_a_place_that_is_named_is_remembered(moved, tmp_path, capsys):
    (moved / "photographs").rename(tmp_path / "elsewhere")
    assert main(["resume", str(moved / "runs/x"), "--data", str(tmp_path / "elsewhere")]) == 0
    assert main(["resume", str(moved / "runs/x")]) == 0
    assert Run(moved / "runs/x").config.data.source == str(tmp_path / "elsewhere")


@pytest.mark.parametrize(("count", "seed", "said"), [(25, 0, "22 samples"), (24, 1, "other ones in the train set")])
def test_other_data_is_refused(moved, tmp_path, count, seed, said, capsys):
    before = tiny.contents(moved)
    other = photographs(tmp_path / "other", seed, count)
    assert said in tiny.refused(capsys, "resume", moved / "runs/x", "--data", other)
    assert "there is no file or folder" in tiny.refused(capsys, "resume", moved / "runs/x", "--data", tmp_path / "nowhere")
    assert before == tiny.contents(moved)


def test_labels_that_were_exchanged_are_other_data(moved, capsys):
    data = moved / "photographs"
    for old, new in (("dark", "x"), ("light", "dark"), ("x", "light")):
        (data / old).rename(data / new)
    assert "other ones" in tiny.refused(capsys, "resume", moved / "runs/x")


def test_pixels_that_another_decoder_rounds_otherwise_are_the_same_data(project):
    facts = Run(project / "runs/x").facts
    assert facts.glimpse is not None
    near = {part: [(mean + 0.004, std - 0.004, label) for mean, std, label in rows] for part, rows in facts.glimpse.items()}
    assert facts.difference(replace(facts, glimpse=near)) is None


def test_a_named_data_set_in_a_folder_of_ones_own(tmp_path, monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    (tmp_path / "sets").mkdir()
    np.savez(tmp_path / "sets" / "mnist.npz", x_train=pixels[:30], x_test=pixels[30:])
    monkeypatch.chdir(tmp_path)
    words = tiny.words(method="random", data__source="mnist", data__folder="sets")
    assert main(["train", *words, "--out", "run"]) == 0
    monkeypatch.chdir("/")
    (tmp_path / "run/eval/summary.json").unlink()
    assert main(["resume", str(tmp_path / "run")]) == 0
