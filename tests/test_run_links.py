"""A run folder may be a stranger's: no link in it is followed, wherever it is planted and whenever."""

import os
import shutil
import stat
from pathlib import Path

import numpy as np
import pytest
import tiny

import sao
from sao.cli.main import main
from sao.errors import InputError
from sao.training import checkpoint
from sao.training.log import Log
from sao.training.run_folder import Run

SMALL = tiny.words(train__steps=3, log__checkpoint_every=1, log__sample_every=3, log__to="tensorboard", log__evaluate_every=1)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A run with one of every kind of file."""
    folder = tmp_path_factory.mktemp("made")
    pixels = np.random.default_rng(0).integers(0, 256, (120, 8, 8), dtype=np.uint8)
    np.savez(folder / "data.npz", x=pixels, y=np.arange(120) % 2)
    run = folder / "run"
    assert main(["train", "digits", "--data", str(folder / "data.npz"), "--out", str(run), *SMALL]) == 0
    assert main(["eval", str(run), "--metrics", "knn1"]) == 0
    assert main(["report", str(run), "--points", "10"]) == 0
    return run


@pytest.fixture
def run(made, tmp_path) -> Path:
    return shutil.copytree(made, tmp_path / "run")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def commands(run: Path, out: Path) -> dict[str, list[str]]:
    data = str(run.parent / "data.npz")
    return {
        "resume": ["resume", str(run), "--train.steps", "4"],
        "eval": ["eval", str(run), "--metrics", "knn1"],
        "embed": ["embed", str(run), data, "-o", str(out / "f.csv")],
        "report": ["report", str(run)],
        "ship": ["ship", str(run), "-o", str(out / "copy")],
        "export": ["export", str(run), "-o", str(out / "encoder")],
        "sample": ["sample", str(run), "-o", str(out / "s.npy")],
        "cluster": ["cluster", str(run), data, "-k", "2", "-o", str(out / "groups")],
    }


def wrong(said: str) -> list[str]:
    return [line for line in said.splitlines() if line.startswith("sao: ") and "warning" not in line]


def refused(words: list[str], capsys) -> str:
    code = main(words)
    said = capsys.readouterr()
    assert code == 2, (words, said)
    (line,) = wrong(said.err)
    assert "Traceback" not in said.err
    return line


def link(place: Path, target: Path | str) -> None:
    """In the place of whatever is there."""
    shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
    place.symlink_to(target)


@pytest.fixture
def mine(tmp_path):
    """A file that nobody may touch."""
    (tmp_path / "mine").write_text("mine")
    yield tmp_path / "mine"
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_link_at_any_place_is_refused_by_every_command(made, tmp_path, capsys):
    """What each link leads to is a whole copy of what it replaced, so that only the link can be the reason."""
    shutil.copy(made.parent / "data.npz", tmp_path)
    kinds = {"tensorboard", "samples", "eval", "checkpoints", "log.txt", "lock", "report.html", "config.yaml"}
    places = sorted(path.relative_to(made) for path in made.rglob("*"))
    assert kinds <= {str(place) for place in places}
    for place in places:
        run = shutil.copytree(made, tmp_path / "run")
        target = tmp_path / "elsewhere" / place.name
        target.parent.mkdir()
        (run / place).rename(target)
        (run / place).symlink_to(target)
        before = contents(tmp_path)
        for words in commands(run, tmp_path / "out").values():
            assert f"{run / place} is a symbolic link" in refused(words, capsys)
        assert contents(tmp_path) == before  # nothing was written anywhere, the target least of all
        shutil.rmtree(target.parent)
        shutil.rmtree(run)


@pytest.mark.parametrize("name", ["log.txt", "notes.txt", "eval/x", ".new"])
def test_a_link_to_nothing_is_refused_too(run, name, tmp_path, capsys):
    link(run / name, tmp_path / "not there")
    assert "is a symbolic link" in refused(["resume", str(run)], capsys)
    assert not (tmp_path / "not there").exists()


def test_a_queue_in_a_run_keeps_nobody_waiting(run, capsys):
    (run / "metrics.jsonl").unlink()
    os.mkfifo(run / "metrics.jsonl")
    assert "neither a file nor a folder" in refused(["resume", str(run)], capsys)
    with pytest.raises(InputError, match="neither a file"):
        Run(run).rows()


def test_the_attack_of_a_login_script_appends_nothing(run, made, mine, tmp_path, capsys):
    """As a person would meet it: log.txt leads to a shell's start file, and the data's name is a command."""
    link(run / "log.txt", mine)
    data = shutil.copy(made.parent / "data.npz", tmp_path / "x$(touch owned) #.npz")
    assert "log.txt is a symbolic link" in refused(["resume", str(run), "--data", str(data)], capsys)


def test_a_run_that_is_reached_by_a_link_is_used(run, tmp_path):
    (tmp_path / "latest").symlink_to(run)
    assert sao.load(tmp_path / "latest").step == 3


# --- links that come after the check ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["log.txt", "metrics.jsonl"])
def test_a_log_that_became_a_link_is_not_appended_to(run, mine, name):
    link(run / name, mine)
    with pytest.raises(InputError, match="is a symbolic link"):
        Log(run)


def test_tensorboard_does_not_write_through_a_link(run, tmp_path):
    (tmp_path / "mine").mkdir()
    link(run / "tensorboard", tmp_path / "mine")
    with pytest.raises(InputError, match="is a symbolic link"):
        Log(run, to=["tensorboard"])
    assert list((tmp_path / "mine").iterdir()) == []


def test_checkpoints_of_another_run_are_neither_deleted_nor_read(run, tmp_path):
    other = shutil.copytree(run, tmp_path / "other")
    (other / "checkpoints" / ".step-00000009.writing-1").mkdir()
    before = contents(other)
    link(run / "checkpoints", "../other/checkpoints")
    method = tiny.method()
    with pytest.raises(InputError, match="is a symbolic link"):
        checkpoint.save(run / "checkpoints", method, 9, keep=1)
    with pytest.raises(InputError, match="is a symbolic link"):
        checkpoint.load_latest(run / "checkpoints", method, lambda _: None)
    assert contents(other) == before
    assert (other / "checkpoints" / ".step-00000009.writing-1").is_dir()


@pytest.mark.parametrize("name", ["state.json", "method.safetensors", "optimisers.safetensors"])
def test_a_file_of_a_checkpoint_that_became_a_link_is_not_read(run, tmp_path, name):
    latest = checkpoint.steps_in(run / "checkpoints")[-1]
    (latest / name).rename(tmp_path / name)
    (latest / name).symlink_to(tmp_path / name)
    with pytest.raises(InputError, match="is a symbolic link"):
        checkpoint.load(latest, tiny.method())


def test_a_lock_that_is_a_link_is_refused_and_its_target_is_not_emptied(run, mine):
    from filelock import FileLock

    link(run / "lock", mine)
    with pytest.raises(InputError, match="lock is a symbolic link"), Run(run).held():
        pass
    with pytest.raises(OSError), FileLock(run / "lock", timeout=0):  # what keeps the locks of the cache
        pass


# --- other damage that a stranger can do -----------------------------------------------------------------------------

NESTED = "[" * 100_000


def test_resume_falls_back_where_the_latest_state_is_nested_deeply(run, capsys):
    (run / "checkpoints/step-00000003/state.json").write_text(NESTED)
    assert main(["resume", str(run)]) == 0
    said = capsys.readouterr()
    assert "going on after step 2 of 3" in said.out
    assert "nested too deeply" in said.out
    assert sao.load(run).step == 3


@pytest.mark.parametrize("name", ["config.yaml", "sao-run.json", "data.json", "eval/step-00000003-backbone-ema.json"])
@pytest.mark.parametrize("text", [NESTED, "{a: " * 100_000, '{"a": ' * 900 + "1" + "}" * 900])
def test_a_deeply_nested_file_is_one_line_or_no_matter(run, name, text, capsys):
    (run / name).write_text(text)
    for words in (["eval", str(run), "--metrics", "knn1"], ["resume", str(run)]):
        code, said = main(words), capsys.readouterr()
        assert code in (0, 2)
        assert len(wrong(said.err)) == code // 2


def test_a_deeply_nested_option_is_one_line(capsys, tmp_path):
    refused(["train", "--encoder.widths", NESTED, "--out", str(tmp_path / "run")], capsys)


def test_files_of_a_run_have_the_modes_that_the_umask_asks_for(made, tmp_path):
    for words in (commands(made, tmp_path)[name] for name in ("ship", "export", "sample", "embed")):
        assert main(words) == 0
    umask = os.umask(0o022)
    os.umask(umask)
    for path in (*made.rglob("*"), *tmp_path.rglob("*")):
        asked = (0o777 if path.is_dir() else 0o666) & ~umask
        assert stat.S_IMODE(path.stat().st_mode) == asked, path


# --- what is printed -------------------------------------------------------------------------------------------------


def test_printed_commands_can_be_pasted(made, tmp_path, capsys):
    run, data = tmp_path / "a run", shutil.copy(made.parent / "data.npz", tmp_path / "My Photos; rm.npz")
    assert main(["train", "digits", "--data", str(data), "--out", str(run), *SMALL]) == 0
    said = capsys.readouterr().out
    assert f"sao cluster '{run}'" in said
    assert f"sao embed '{run}' '{data}' -o features.npz" in said
    assert f"`sao resume '{run}'`" in refused(["train", "--out", str(run)], capsys)


def test_names_cannot_write_to_the_terminal_or_forge_a_line(made, tmp_path, capsys):
    data = shutil.copy(made.parent / "data.npz", tmp_path / "x\x1b[2J\n2026-01-01 00:00:00 forged.npz")
    assert main(["train", "digits", "--data", str(data), "--out", str(tmp_path / "r\x1b]0;\nun"), *SMALL]) == 0
    said = capsys.readouterr()
    log = (tmp_path / "r\x1b]0;\nun" / "log.txt").read_text()
    for text in (said.out, said.err, log):
        assert "\x1b" not in text
        assert not [line for line in text.splitlines() if line.endswith("forged.npz") and line.startswith("2026-01-01")]
    assert r"\x1b[2J\n2026" in log
