"""A method from outside the package is a method like any other; a run says which file it needs, and imports none by itself."""

import shutil
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import outside as files
import pytest
import tiny
import yaml

import sao
from sao.benchmark.measure import peak_memory
from sao.cli.main import main
from sao.config import Config, load_preset, outside
from sao.errors import CODE, InputError
from sao.methods import METHODS

SETTINGS = tiny.OPTIONS | tiny.METHODS["vicreg"]
SMALL = [word for name, value in SETTINGS.items() for word in (f"--{name}", value)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A folder with mine.py and a finished run of it."""
    folder = tmp_path_factory.mktemp("outside")
    mine = files.write(folder)
    words = ["--method", f"{mine}:Options", "--method.factor", "3", "--train.steps", "4", "--out", str(folder / "run")]
    assert main(["train", "digits", *SMALL, *words]) == 0
    outside.forget()
    return folder


def test_a_run_records_file_class_and_digest_and_no_path(trained):
    text = (trained / "run" / "config.yaml").read_text()
    stored = yaml.safe_load(text)
    assert stored["outside"]["method"].keys() == {"file", "name", "sha256"}
    assert (stored["outside"]["method"]["file"], stored["outside"]["method"]["name"]) == ("mine.py", "Options")
    assert stored["method"] | {"name": "scaled", "factor": 3.0} == stored["method"]
    assert str(trained) not in text


def test_a_run_is_used_with_the_file_that_a_person_names(trained, tmp_path, capsys):
    code = ["--code", str(trained / "mine.py")]
    assert main(["embed", str(trained / "run"), "digits", "-o", str(tmp_path / "f.npz"), *code]) == 0
    assert np.load(tmp_path / "f.npz")["features"].shape[0] == 1797
    assert main(["eval", str(trained / "run"), "--metrics", "knn1", "-o", str(tmp_path / "e.json"), *code]) == 0
    assert capsys.readouterr().err.count("changed") == 0


def test_a_run_imports_nothing_by_itself(trained, tmp_path, capsys, monkeypatch):
    """Not even a file of the right name in the current folder or in the run's own."""
    monkeypatch.chdir(trained)
    before = {name for name in sys.modules if name.startswith("sao_code_")}  # of tests that ran earlier
    said = tiny.refused(capsys, "embed", "run", "digits", "-o", tmp_path / "f.npz")
    assert "needs mine.py:Options (method scaled): add --code PATH/mine.py" in said
    with pytest.raises(InputError, match=r"sao\.register\(Options\)"):
        sao.load("run")
    assert {name for name in sys.modules if name.startswith("sao_code_")} == before
    assert "scaled" not in METHODS


@pytest.mark.parametrize("kept", [True, False], ids=["record", "no record"])
@pytest.mark.parametrize(
    "change",
    [
        {"outside": 3},
        {"outside": {"method": [1]}},
        {"outside": {"method": {"file": 7, "name": ["x"]}}},
        {"method": {"name": ["scaled"]}},
        {"method": 3},
        {"data": {"source": ["x"]}},
    ],
)
def test_a_tampered_run_is_one_line(change, kept, trained, tmp_path, capsys):
    run = shutil.copytree(trained / "run", tmp_path / "run")
    stored = yaml.safe_load((run / "config.yaml").read_text())
    if not kept:
        del stored["outside"]
    (run / "config.yaml").write_text(yaml.safe_dump(stored | change))
    tiny.refused(capsys, "embed", run, "digits", "-o", tmp_path / "f.npz")


def test_a_record_of_what_is_in_the_package_changes_nothing(trained, tmp_path):
    values = {"method": {"name": "vicreg"}, "encoder": None}
    outside.check({"method": {"file": "x.py"}, "encoder": {"file": "x.py"}, "other": 1}, values, "run")


def test_a_changed_file_is_said_once_and_used(trained, tmp_path, capsys):
    other = files.write(tmp_path, files.METHOD + "\n# another version\n")
    assert main(["embed", str(trained / "run"), "digits", "-o", str(tmp_path / "f.npz"), "--code", str(other)]) == 0
    said = capsys.readouterr().err
    assert said.count("mine.py has changed since the run of") == 1


def test_resume_goes_on_with_the_file(trained, tmp_path, capsys):
    run = shutil.copytree(trained / "run", tmp_path / "run")
    assert "mine.py:Options" in tiny.refused(capsys, "resume", run, "--train.steps", "6")
    said = tiny.said(capsys, "resume", run, "--train.steps", "6", "--code", trained / "mine.py")
    assert "going on after step 4 of 6" in said
    assert yaml.safe_load((run / "config.yaml").read_text())["outside"]["method"]["file"] == "mine.py"
    assert f"--train.steps 12 --code {trained / 'mine.py'}" in tiny.said(capsys, "resume", run, "--code", trained / "mine.py")


def test_a_copy_to_give_away_says_what_it_needs(trained, tmp_path, capsys):
    code = ["--code", str(trained / "mine.py")]
    assert main(["ship", str(trained / "run"), "-o", str(tmp_path / "copy"), *code]) == 0
    said, card = capsys.readouterr().out, (tmp_path / "copy" / "README.md").read_text()
    for text in (said, card):
        assert "mine.py (class Options, sha256 " in text
        assert "--code mine.py" in text
    assert "--method mine.py:Options" in card
    assert str(trained) not in card + (tmp_path / "copy" / "config.yaml").read_text()
    assert not (tmp_path / "copy" / "mine.py").exists()
    assert sao.load(tmp_path / "copy").embed(tiny.dataset().test).shape[0] == 360


def test_python_takes_options_of_an_own_class(tmp_path):
    mine = files.write(tmp_path)
    options = outside.code_files.import_file(str(mine)).member("Options")
    settings = {name: value for name, value in SETTINGS.items() if not name.startswith("method")} | {"train.steps": "2"}
    model = sao.train("digits", tmp_path / "run", options=settings, method=options(factor=5.0, projection_size=8))
    assert model.config.method.model_dump() | {"name": "scaled", "factor": 5.0} == model.config.method.model_dump()
    outside.forget()
    with pytest.raises(InputError, match=r"mine\.py:Options"):
        sao.load(tmp_path / "run")
    assert sao.register(options) == "scaled"
    assert sao.load(tmp_path / "run").step == 2


def test_its_options_are_checked_and_shown_like_all(tmp_path, capsys):
    mine = files.write(tmp_path)
    assert "method.factor" in tiny.refused(capsys, "train", "digits", "--method", f"{mine}:Options", "--method.factor", "-1")
    assert "--method.factor  (number above 0; default: 2.0)" in tiny.said(capsys, "options", f"{mine}:Options")
    assert "VICReg with a factor." in tiny.said(capsys, "options", "--code", mine)
    outside.forget()
    assert "there is no method 'scaled'" in tiny.refused(capsys, "train", "digits", "--method", "scaled")
    assert load_preset("digits").method.name == Config().method.name


@pytest.mark.parametrize(
    ("text", "member", "said"),
    [
        (None, "Options", "cannot be read: No such file"),
        ("def broken(:\n", "Options", "mine.py, line 1: SyntaxError"),
        ("x = 1\nnothing\n", "Options", "mine.py, line 2: NameError: name 'nothing' is not defined"),
        ("x = 1\n", "Options", "defines no Options"),
        ("Options = 3\n", "Options", "is no method: its class must be derived from MethodOptions"),
        (files.METHOD.replace('"scaled"', '"vicreg"'), "Options", "is called vicreg, as a method of sao is"),
        (files.METHOD.replace('name: Literal["scaled"] = "scaled"', "name: str = 'x'"), "Options", "has no name"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(text, member, said, tmp_path, capsys):
    mine = tmp_path / "mine.py" if text is None else files.write(tmp_path, text)
    out = tmp_path / "run"
    assert said in tiny.refused(capsys, "train", "digits", "--method", f"{mine}:{member}", "--out", out)
    assert not out.exists()


def test_a_file_without_a_class_is_one_line(tmp_path, capsys):
    mine = files.write(tmp_path)
    assert "name a class in it too" in tiny.refused(capsys, "train", "digits", "--method", mine, "--out", tmp_path / "run")


def test_the_process_that_measures_memory_has_the_file_too(tmp_path):
    config = load_preset("digits", SETTINGS | {"method": f"{files.write(tmp_path)}:Options"})
    assert peak_memory(config, (1, 8, 8), 100, "ours") > 0


def test_a_package_offers_a_method_by_an_entry_point(tmp_path, monkeypatch, capsys):
    files.write(tmp_path, name="installed_method.py")
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("scaled", "installed_method:Options", "sao.methods")
    asked: list[str] = []

    def found(group, name=None):
        asked.append(group)
        return [point] if group == "sao.methods" and name in (None, "scaled") else []

    monkeypatch.setattr(outside, "entry_points", found)
    config = load_preset("digits", {"method": "scaled", "method.factor": "4"})
    assert config.method.model_dump()["factor"] == 4
    assert "--method.factor" in tiny.said(capsys, "options", "scaled")
    assert not CODE  # an installed package needs no file


def test_data_comes_from_a_function_that_a_person_names(tmp_path, capsys):
    source = f"{files.write(tmp_path, files.DATA)}:moons"
    run, features = tmp_path / "run", tmp_path / "f.npz"
    small = tiny.OPTIONS | {"encoder.width": "4", "method.embedding_size": "4", "method.generator.width": "4"}
    words = [word for name, value in (small | {"train.steps": "2"}).items() for word in (f"--{name}", value)]
    said = tiny.said(capsys, "train", "--data", source, *words, "--out", run)
    assert "60 rows of 2 numbers, 54 to train on, 6 held out, 2 classes" in said
    assert f"sao embed {run} mine.py:moons -o features.npz --code {tmp_path / 'mine.py'}" in said
    stored = yaml.safe_load((run / "config.yaml").read_text())
    assert stored["data"]["source"] == "mine.py:moons"
    assert stored["outside"]["data"].keys() == {"file", "name", "sha256"}
    outside.forget()
    assert "add --code PATH/mine.py" in tiny.refused(capsys, "resume", run, "--train.steps", "3")
    assert main(["resume", str(run), "--train.steps", "3", "--code", str(tmp_path / "mine.py")]) == 0
    (run / "config.yaml").write_text((run / "config.yaml").read_text().replace("mine.py:moons", "mine.py:make_moons"))
    code = ["--code", tmp_path / "mine.py"]  # names of its own file alone
    assert "mine.py:make_moons is no function of that file" in tiny.refused(capsys, "resume", run, "--train.steps", "4", *code)
    outside.forget()
    assert main(["embed", str(run), source, "-o", str(features)]) == 0
    assert len(np.load(features)["features"]) == 60
