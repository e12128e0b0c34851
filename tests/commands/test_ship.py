"""A small copy of a run, and models that come with the package: what works on them, and what says in a line that it cannot."""

import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
import yaml
from PIL import Image

import sao
from sao import models
from sao.cli.main import main
from sao.config import load_preset
from sao.errors import InputError
from sao.evaluation.result import Metric, write_json
from sao.export.card import command_of
from sao.training import checkpoint
from sao.training.run_folder import Run

PROTOCOL = {"n_test": 360, "seed": 0}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """As if it had been trained on this machine for eight steps, and evaluated."""
    method = tiny.method()
    with torch.no_grad():
        for name, tensor in method.state_dict().items():
            if tensor.is_floating_point():  # EMAs that differ from the weights they follow
                tensor += 0.02 if name.startswith("ema_") else 0.05
    run = tiny.untrained(tmp_path_factory.mktemp("ship") / "run", method, data__folder="/tmp/somewhere")
    (run.folder / "data.json").write_text(replace(run.facts, place=("/tmp/somewhere", "../somewhere")).as_text())
    numbers = {"kmeans": 0.5, "kmeans_best": 0.625, "raw/kmeans_best": 0.25}
    write_json(run.evaluations / "summary.json", [Metric(name, value, None, PROTOCOL) for name, value in numbers.items()])
    return run.folder


def shipped(run: Path, target: Path, *words: str) -> Path:
    assert main(["ship", str(run), "-o", str(target), *words]) == 0
    return target


@pytest.fixture(scope="module")
def box(run, tmp_path_factory) -> Path:
    """A folder of models, of which there is one."""
    folder = tmp_path_factory.mktemp("box")
    return shipped(run, folder / "tiny8", "--licence", "Apache-2.0").parent


@pytest.fixture
def inside(box, tmp_path, monkeypatch) -> Path:
    """An empty folder to work in, where the package has that model."""
    monkeypatch.setattr(models, "FOLDER", box)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_model_by_its_name_is_the_run(run, inside):
    images = np.asarray(tiny.dataset().test.pixels[:20])  # pyright: ignore[reportAttributeAccessIssue]
    ours, theirs = sao.load(run, device="cpu"), sao.load("tiny8", device="cpu")
    for feature in ("backbone", "embedding", "layers"):
        np.testing.assert_array_equal(theirs.embed(images, feature), ours.embed(images, feature))
    np.testing.assert_array_equal(theirs.sample(5), ours.sample(5))
    assert theirs.step == ours.step == 8
    assert theirs.predict(images, k=3).shape == (20,)


def test_commands_take_the_name(inside, capsys):
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(inside / "black.png")
    assert main(["sample", "tiny8", "-o", "x.png"]) == 0
    assert main(["embed", "tiny8", "black.png", "-o", "f.csv"]) == 0
    assert main(["cluster", "tiny8", "digits", "-k", "4", "-o", "groups"]) == 0
    assert (inside / "f.csv").read_text("utf-8-sig").startswith("name,f0,")
    with Image.open(inside / "x.png") as picture:
        assert picture.size[0] > 8
    assert (inside / "groups/assignments.csv").is_file()
    rows = ["--rows", "200", "--metrics", "kmeans"]
    assert main(["eval", "tiny8", "--data", "digits", "-o", "e.json", *rows]) == 0
    assert json.loads((inside / "e.json").read_text())[0]["name"] == "kmeans"


def test_it_holds_emas_and_nothing_to_train_on(box):
    (path,) = checkpoint.steps_in(box / "tiny8" / "checkpoints")
    names = checkpoint.tensor_shapes(path)
    assert names
    assert all(name.startswith("ema_") for name in names)
    assert {name.split(".")[0] for name in names} == {"ema_discriminator", "ema_generator"}
    files = tiny.contents(box / "tiny8").keys()
    inner = "checkpoints/step-00000008"
    weights = {f"{inner}/method.safetensors", f"{inner}/state.json"}
    assert files == {"sao-run.json", "config.yaml", "data.json", "README.md"} | weights


def test_the_size_that_is_said_is_of_every_file(run, tmp_path, capsys):
    said = tiny.said(capsys, "ship", run, "-o", tmp_path / "copy")
    assert f" in {tmp_path / 'copy'}, {sum(map(len, tiny.contents(tmp_path / 'copy').values())) / 1e6:.2f} MB" in said


def test_nothing_tells_of_the_machine(run, box):
    assert "/tmp/somewhere" in (run / "config.yaml").read_text()
    for file in (box / "tiny8").rglob("*"):
        if file.suffix in (".json", ".yaml", ".md"):
            text = file.read_text()
            assert "/tmp" not in text
            assert str(Path.home()) not in text
            assert str(run) not in text
    facts = Run.open(box / "tiny8").facts
    assert facts.place is None
    assert facts.glimpse is None
    assert facts.classes == 10


def test_the_card_has_data_command_numbers_and_licence(run, box):
    card = (box / "tiny8/README.md").read_text()
    assert "Optical Recognition of Handwritten Digits" in card
    assert "- licence of the weights: Apache-2.0" in card
    assert "Measured on 360 held-out samples, evaluation seed 0:" in card
    assert "| kmeans | 0.500 | – |\n| kmeans_best | 0.625 | 0.250 |" in card
    typed = next(line for line in card.splitlines() if line.startswith("- command: ")).split("`")[1]
    typed = shlex.split(typed)
    assert typed[:3] == ["sao", "train", "digits"]
    options = dict(zip([word.removeprefix("--") for word in typed[3::2]], typed[4::2], strict=True))
    assert command_of(load_preset("digits", options)) == shlex.join(typed)
    assert options["train.steps"] == "8"


def test_a_card_has_no_empty_column_and_says_which_manifold(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "copy")
    how = {**PROTOCOL, "algorithm": "by hand"}
    write_json(copy / "eval/summary.json", [Metric("kmeans", 0.5, None, PROTOCOL), Metric("manifold", 0.75, None, how)])
    card = (shipped(copy, tmp_path / "model", "--licence", "Apache-2.0") / "README.md").read_text()
    assert "| metric | learnt |\n|---|---|\n| kmeans | 0.500 |\n| manifold | 0.750 |\n\n" in card
    assert "- manifold: accuracy of clusters on a manifold; algorithm by hand; n_test 360\n" in card


def test_the_hub_reads_the_card(run, tmp_path):
    """By its own parser: what the front matter says, and every number with how it was measured."""
    hub = pytest.importorskip("huggingface_hub")
    copy = shutil.copytree(run, tmp_path / "copy")
    how = {**PROTOCOL, "split": "test", "n_train": 1437, "objective": "hinge", "interval_95": [0.5, 0.75], "not": "told"}
    write_json(copy / "eval/summary.json", [Metric("svm", 0.625, None, how), Metric("raw/svm", 0.25, None, how)])
    card = hub.ModelCard.load(shipped(copy, tmp_path / "model", "--licence", "Apache-2.0") / "README.md")
    about = card.data
    assert (about.license, about.library_name, about.pipeline_tag) == ("apache-2.0", "sao", "image-feature-extraction")
    assert {"sao", "self-supervised-learning", "structural"} <= set(about.tags)
    assert about.datasets is None
    (result,) = about.eval_results
    assert (result.metric_type, result.metric_name, result.metric_value) == ("accuracy", "linear SVM accuracy", 0.625)
    assert (result.dataset_name, result.dataset_split) == ("digits", "test")
    told = {"objective": "hinge", "split": "test", "n_train": 1437, "n_test": 360, "interval_95": [0.5, 0.75]}
    assert result.metric_args == told
    assert "| svm | 0.625 | 0.500 to 0.750 | 0.250 |" in card.text
    front = yaml.safe_load(card.content.split("---\n")[1])
    assert hub.ModelCardData(**front).to_dict() == front
    titles = ["Intended use", "Training data", "Training", "Metrics", "Limits", "How to load it", "Licence"]
    assert re.findall(r"(?m)^## (.*)$", card.text) == titles


@pytest.mark.parametrize(
    ("typed", "front"),
    [
        ([], {}),
        (["--licence", "MIT"], {"license": "mit"}),
        (["--licence", "ours: ask\n---"], {"license": "other", "license_name": "ours: ask\\n---"}),
    ],
)
def test_the_licence_on_the_hub_is_the_one_that_was_typed(typed, front, run, tmp_path):
    hub = pytest.importorskip("huggingface_hub")
    about = hub.ModelCard.load(shipped(run, tmp_path / "model", *typed) / "README.md").data.to_dict()
    assert {key: value for key, value in about.items() if key.startswith("license")} == front


def test_a_known_data_set_is_named_as_the_hub_names_it(tmp_path):
    hub = pytest.importorskip("huggingface_hub")
    made = tiny.untrained(tmp_path / "run", data__source="cifar10")
    card = hub.ModelCard.load(shipped(made.folder, tmp_path / "model") / "README.md")
    assert card.data.datasets == ["uoft-cs/cifar10"]


@pytest.mark.parametrize("name", models.model_names())
def test_the_command_on_the_card_of_a_model_is_one_of_today(name):
    """A preset that changes makes other networks: the card then has to name the options that it had.

    A card of version 0.2 has that version's names of options.
    """
    folder = models.run_folder(name)
    written = re.search(r"(?m)^- command: `sao train (.*)`$", (folder / "README.md").read_text())
    assert written is not None
    preset, *words = shlex.split(written[1])
    options = {key.removeprefix("--"): value for key, value in zip(words[::2], words[1::2], strict=True)}
    assert command_of(load_preset(preset, options)) == command_of(Run.open(folder).config)


def test_half_of_the_bits_is_kept_only_if_it_makes_no_difference(run, tmp_path, capsys, monkeypatch):
    from sao.cli import ship

    assert "the largest difference is" in tiny.said(capsys, "ship", run, "-o", tmp_path / "half", "--half")
    (path,) = checkpoint.steps_in(tmp_path / "half/checkpoints")
    tensors = checkpoint.some_tensors(path, list(checkpoint.tensor_shapes(path)))
    assert {str(tensor.dtype) for tensor in tensors.values() if tensor.is_floating_point()} == {"torch.float16"}
    half = sao.load(tmp_path / "half", device="cpu")
    assert half.embed(tiny.dataset().test).dtype == np.float32
    monkeypatch.setattr(ship, "HALF_AGREES", 1e-9)
    assert "so it was not kept: leave --half out" in tiny.refused(capsys, "ship", run, "-o", tmp_path / "other", "--half")
    assert [file.name for file in tmp_path.iterdir()] == ["half"]


def test_a_run_of_that_name_here_comes_first_and_that_is_said(run, inside, capsys):
    shutil.copytree(run, inside / "tiny8")
    assert main(["sample", "tiny8", "-o", "x.png"]) == 0
    said = "tiny8 is a run in the current folder, which is taken instead of the model of that name that comes with sao"
    assert said in capsys.readouterr().err
    with pytest.warns(UserWarning, match="is taken instead"):
        sao.load("tiny8", device="cpu", weights="raw").sample(1)


def test_a_folder_of_that_name_that_is_no_run_is_in_nobodys_way(inside, capsys):
    (inside / "tiny8").mkdir()
    assert main(["sample", "tiny8", "-o", "x.png"]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sample", "tini8", "-o", "x.png"], "tini8 is not a run, and no model of that name comes with sao"),
        (["sample", "tini8", "-o", "x.png"], "(did you mean tiny8?): there are tiny8"),
        (["resume", "tiny8"], "tiny8 holds nothing to train on"),
        (["eval", "tiny8"], "tiny8 comes without its data: give --data"),
        (["eval", "tiny8", "--data", "digits"], "nothing is written into tiny8: give -o"),
        (["eval", "tiny8", "--data", "digits", "-o", "e.json", "--weights", "raw"], "holds EMA weights only"),
        (["report", "tiny8"], "tiny8 has no history"),
        (["ship", "tiny8", "-o", "again"], "is such a copy already"),
    ],
)
def test_what_cannot_be_is_one_line(inside, words, said, capsys):
    assert said in tiny.refused(capsys, *words)
    assert not list(inside.iterdir())


def test_it_cannot_be_learnt_on_in_python(inside):
    with pytest.raises(InputError, match="holds nothing to train on"):
        _ = sao.load("tiny8", device="cpu").method


def test_a_folder_with_something_in_it_is_not_written_to(run, tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("kept")
    assert "is not an empty folder" in tiny.refused(capsys, "ship", run, "-o", tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


def test_every_model_in_the_package_opens():
    for name in models.model_names():
        card = (models.FOLDER / name / "README.md").read_text()
        assert "Not evaluated" not in card
        assert "not stated" not in card
        assert card.startswith("---\nlicense: apache-2.0\nlibrary_name: sao\npipeline_tag: image-feature-extraction\n")
        assert sao.load(models.FOLDER / name, device="cpu").sample(2).shape[0] == 2
    assert sum(file.stat().st_size for file in models.FOLDER.rglob("*.safetensors")) < 12.5e6


def test_a_copy_of_a_run_with_local_embeddings_needs_no_local_head(tmp_path):
    options = {"method__local_weight": 1, "method__local_size": 4, "encoder__start": "patches"}
    run = tiny.untrained(tmp_path / "run", **options)
    (path,) = checkpoint.steps_in(shipped(run.folder, tmp_path / "copy") / "checkpoints")
    assert not [name for name in checkpoint.tensor_shapes(path) if "local_head" in name]
    whole, copy = (sao.load(tmp_path / name) for name in ("run", "copy"))
    for feature in ("backbone", "embedding"):
        found, expected = (model.embed(tiny.dataset().test, feature) for model in (copy, whole))
        np.testing.assert_array_equal(found, expected)
