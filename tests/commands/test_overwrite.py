"""`--overwrite` as a person uses it: nobody's files are removed, and a kill leaves the old run or the new one."""

import os
import shutil
import signal
import sys
from functools import partial
from pathlib import Path

import pytest
import tiny

import sao
from sao.cli.main import main
from sao.errors import InputError
from sao.training.run_folder import Run

refused = partial(tiny.refused, quiet=True)

OLD, NEW = 8, 2  # steps


def words(steps: int = NEW) -> list[str]:
    return tiny.words(method="random", train__steps=steps)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A run that `sao train` made, with everything that commands put into one."""
    run = tmp_path_factory.mktemp("made") / "run"
    assert main(["train", *tiny.words(train__steps=OLD, log__sample_every=4, log__to="tensorboard"), "--out", str(run)]) == 0
    assert main(["eval", str(run), "--metrics", "knn1"]) == 0
    (run / "log.txt").chmod(0o600)
    return run


@pytest.fixture
def run(made, tmp_path) -> Path:
    return shutil.copytree(made, tmp_path / "run")


def test_a_run_is_replaced_wholly(run):
    (run / "eval" / "step-00000008-backbone-ema-on-other.zip.json").write_text("[]")  # of `sao eval RUN --data other.zip`
    assert main(["train", *words(), "--out", str(run), "--overwrite"]) == 0
    assert [row["step"] for row in Run(run).rows()] == [1, 2]
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-00000002"]
    assert not (run / "tensorboard").exists()
    assert {path.name for path in (run / "eval").iterdir()} == {"summary.json", "verdict.json"}
    assert not [path.name for path in run.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    "foreign",
    ["thesis.tex", "eval/notes.json", "checkpoints/mine.pt", "samples/step-1.psd", "notes/a.txt", ".git/config", "empty/"],
)
def test_a_file_that_sao_did_not_write_stops_it_and_is_named(run, foreign, capsys):
    path = run / foreign
    path.parent.mkdir(exist_ok=True)
    path.mkdir() if foreign.endswith("/") else path.write_text("precious")
    before = tiny.contents(run)
    said = refused(capsys, "train", *words(), "--out", run, "--overwrite")
    assert any(str(one) in said for one in (path, path.parent))
    assert tiny.contents(run) == before
    assert path.exists()


def test_a_link_in_a_run_is_not_followed(run, tmp_path, capsys):
    elsewhere = tmp_path / "elsewhere"
    (run / "samples").rename(elsewhere)
    (run / "samples").symlink_to(elsewhere)
    assert str(run / "samples") in refused(capsys, "train", *words(), "--out", run, "--overwrite")
    assert list(elsewhere.iterdir())


@pytest.mark.parametrize("mark", [None, "", "{}", '{"sao": 1, "format": "2"}', "[" * 10_000])
def test_a_folder_without_the_mark_is_not_touched(tmp_path, mark, capsys):
    (tmp_path / "config.yaml").touch()
    (tmp_path / "thesis.tex").write_text("precious")
    if mark is not None:
        (tmp_path / "sao-run.json").write_text(mark)
    before = tiny.contents(tmp_path)
    assert "sao-run.json" in refused(capsys, "train", *words(), "--out", tmp_path, "--overwrite")
    refused(capsys, "train", *words(), "--out", tmp_path)
    assert "is not a run" in refused(capsys, "resume", tmp_path)
    assert tiny.contents(tmp_path) == before


def test_a_project_is_not_emptied(tmp_path, monkeypatch, capsys):
    for name in ("config.yaml", "main.py"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    refused(capsys, "train", *words(), "--out", ".", "--overwrite")
    assert {path.name for path in tmp_path.iterdir()} == {"config.yaml", "main.py"}


def test_a_run_without_the_mark_is_neither_opened_nor_replaced(run, capsys):
    (run / "sao-run.json").unlink()
    before = tiny.contents(run)
    assert "does not carry sao's mark" in refused(capsys, "train", *words(), "--out", run, "--overwrite")
    assert "it has no sao-run.json" in refused(capsys, "resume", run)
    assert tiny.contents(run) == before


def test_a_run_of_a_later_version_says_so(run, capsys):
    (run / "sao-run.json").write_text('{"sao": "9.1", "format": 9}')
    assert "written by sao 9.1" in refused(capsys, "resume", run)
    with pytest.raises(InputError, match=r"written by sao 9\.1"):
        sao.load(run)


@pytest.mark.parametrize(("out", "how"), [("data", "is the data itself"), ("data/run", "inside"), (".", "around")])
def test_a_run_in_or_around_its_data_is_refused(tmp_path, out, how, capsys):
    data, target = tiny.draw_pictures(tmp_path / "data", 12), tmp_path / out
    before = tiny.contents(data)
    for given in (target, tmp_path / "data" / ".." / out):
        said = refused(capsys, "train", *words(), "--data", data, "--out", given, "--overwrite")
        assert how in said
    assert tiny.contents(data) == before
    link = tmp_path.parent / f"{tmp_path.name}-link"
    link.symlink_to(target)
    assert how in refused(capsys, "train", *words(), "--data", data, "--out", link, "--overwrite")
    assert not (tmp_path / "data" / "run").exists()


def test_a_run_that_was_put_around_data_is_refused_too(run, capsys):
    """The mark alone does not make photographs inside a run sao's own."""
    tiny.draw_pictures(run / "photographs", 12)
    said = refused(capsys, "train", *words(), "--data", run / "photographs", "--out", run, "--overwrite")
    assert "around the data" in said
    assert len(list((run / "photographs").iterdir())) == 12


# --- kills -----------------------------------------------------------------------------------------------------------


def kill_at(change: int, run: Path, alone: bool = False) -> None:
    """SIGKILL this process before its n-th change in the folder of a run."""
    seen, where = 0, str(run)

    def record(event: str, values: tuple) -> None:
        nonlocal seen
        writes = event in ("os.remove", "os.rename", "os.rmdir", "os.mkdir") or (
            event == "open" and isinstance(values[2], int) and values[2] & (os.O_WRONLY | os.O_RDWR)
        )
        name = values[0] if isinstance(values[0], str | Path) else ""
        inside = str(name).startswith(where) or (name != "" and not os.path.isabs(name))  # a name in a folder that is open
        if writes and inside and not str(name).endswith("lock"):
            seen += 1
            if seen == change:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(record)
    if alone:  # the part of `sao train` that replaces: quick enough to kill it often
        Run.create(run, tiny.config(method="random", train__steps=NEW), Run(run).facts, overwrite=True)
        sys.exit()


def killed(folder: Path, change: int, run: Path, *words: str) -> int:
    """The exit code of a command; of none, of the part that replaces."""
    return tiny.Command(folder, *words, first=partial(kill_at, change, run, alone=not words)).wait()


def which(run: Path, before: dict[str, bytes]) -> str:
    """Whether a folder holds the old run, whole, or the new one, with nothing of the old."""
    opened = Run.open(run)
    assert not (run / ".new").exists()
    if opened.config.train.steps == OLD:
        left = {name: content for name, content in tiny.contents(run).items() if not name.startswith(".")}
        assert left == before
        assert sao.load(run).step == OLD
        return "old"
    assert opened.config.train.steps == NEW
    names = {path.name for path in run.rglob("*") if path.is_file() and not path.name.startswith(".")}
    assert names <= {"sao-run.json", "config.yaml", "data.json", "lock"}
    assert opened.facts.samples
    return "new"


def test_a_kill_at_any_change_leaves_the_old_run_or_the_new_one(made, tmp_path):
    found, change = [], 0
    while True:
        change += 1 if change < 12 else 5  # the removal of the old files is many changes of one kind
        run = shutil.copytree(made, tmp_path / f"{change}" / "run")
        before = tiny.contents(run)
        if (code := killed(tmp_path, change, run)) == 0:
            break
        assert code == -signal.SIGKILL
        found.append(which(run, before))
    assert found == sorted(found, reverse=True)  # first the old one, from some moment on the new one
    assert found.count("old") >= 4
    assert found.count("new") >= 8


@pytest.mark.parametrize("change", [3, 25, 40])
def test_a_killed_overwrite_goes_on_by_resume_or_by_overwrite(change, run, tmp_path):
    before = tiny.contents(run)
    arguments = ["train", *words(), "--out", str(run), "--overwrite"]
    assert killed(tmp_path, change, run, *arguments) == -signal.SIGKILL
    copy = shutil.copytree(run, tmp_path / "copy")
    assert which(copy, before) == ("old" if change == 3 else "new")
    tiny.Command(tmp_path, "resume", run).succeed()
    assert Run(run).rows()[-1]["step"] == (OLD if change == 3 else NEW)
    tiny.Command(tmp_path, *arguments).succeed()
    assert [row["step"] for row in Run(run).rows()] == [1, 2]


def test_a_first_run_that_was_killed_while_it_was_made_leaves_a_free_folder_or_a_run(made, tmp_path):
    for change in range(1, 12):
        run = tmp_path / f"{change}" / "run"
        assert killed(tmp_path, change, run, "train", *words(), "--out", str(run)) == -signal.SIGKILL
        if (run / "sao-run.json").exists() or (run / ".new").exists():
            assert Run.open(run).config.train.steps == NEW
        else:
            sao_run = Run.create(run, tiny.config(method="random"), Run(made).facts)
            assert sao_run.config.train.steps == OLD
