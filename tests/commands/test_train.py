"""Training as a person starts, stops and kills it: real processes, real signals, and the same bits in the end."""

import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tiny

from sao.cli.main import main
from sao.runtime.torchvision_import import torchvision_datasets

refused = partial(tiny.refused, quiet=True)

STEPS = 10


@pytest.fixture(scope="module")
def options(tmp_path_factory) -> dict[str, object]:
    """Ten steps on some of the digits, which a process reads as if they were MNIST."""
    folder = tmp_path_factory.mktemp("data")
    tiny.save_few(folder / "mnist.npz")
    every = {"log__evaluate_every": 5, "log__sample_every": 5}
    return {"data__source": "mnist", "data__folder": folder, "train__steps": STEPS, **every}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, options):
    """Runs that nobody disturbed, by method."""
    made: dict[str, Path] = {}

    def run(method: str) -> Path:
        if method not in made:
            folder = tmp_path_factory.mktemp(method)
            tiny.Command(folder, "train", *tiny.words(method=method, **options), "--out", folder / "run").succeed()
            made[method] = folder / "run"
        return made[method]

    return run


def assert_same_run(found: Path, expected: Path) -> None:
    """The final weights, EMAs, moments and bank, and everything logged, bit for bit."""
    assert tiny.rows(found) == tiny.rows(expected)
    assert len(tiny.rows(expected)) == STEPS + 2
    for name in ("method.safetensors", "optimisers.safetensors"):
        last = f"checkpoints/step-{STEPS:08d}/{name}"
        assert (found / last).read_bytes() == (expected / last).read_bytes()
    for picture in expected.glob("samples/*.png"):
        assert (found / "samples" / picture.name).read_bytes() == picture.read_bytes()
    left = {path.name for path in (found / "checkpoints").iterdir()}
    assert left == {path.name for path in (expected / "checkpoints").iterdir()}


def kill_at_random(folder: Path, arguments: list[str], draws: random.Random) -> None:
    """Start a command and SIGKILL it at a random moment after it has logged a row or some."""
    metrics = folder / "run" / "metrics.jsonl"
    command = tiny.Command(folder, *arguments)
    command.wait_for(lambda: tiny.lines_of(folder / "said.txt") >= 2)  # the loop begins
    wanted = tiny.lines_of(metrics) + draws.randint(1, 3)
    command.wait_for(lambda: tiny.lines_of(metrics) >= wanted)
    time.sleep(draws.random() * 0.03)
    command.send(signal.SIGKILL)
    assert command.wait() == -signal.SIGKILL


@pytest.mark.parametrize("method", ["structural", "supervised"])
def test_a_run_killed_at_random_moments_ends_as_if_nothing_had_happened(method, uninterrupted, tmp_path, options):
    draws = random.Random(os.urandom(8))
    out = str(tmp_path / "run")
    kill_at_random(tmp_path, ["train", *tiny.words(method=method, **options), "--out", out], draws)
    kill_at_random(tmp_path, ["resume", out], draws)
    tiny.Command(tmp_path, "resume", out).succeed()
    assert_same_run(tmp_path / "run", uninterrupted(method))


@pytest.mark.parametrize(
    ("die", "left"),
    [
        (("sao.training.checkpoint", "save_file", 1), []),  # the first checkpoint, nothing written yet
        (("sao.training.checkpoint", "save_file", 4), [3]),  # the second one, between its two files
        (("sao.runtime.files", "sync_all", 2), [3]),  # the second one, written but not renamed
        (("sao.training.checkpoint", "steps_in", 3), [3, 6, 9]),  # the third one is there, the first not removed yet
    ],
)
def test_a_kill_while_a_checkpoint_is_written_loses_nothing(die, left, uninterrupted, tmp_path, options):
    out = tmp_path / "run"
    killed = tiny.Command(tmp_path, "train", *tiny.words(method="supervised", **options), "--out", str(out), die=die)
    assert killed.wait() == -signal.SIGKILL
    assert sorted(path.name for path in (out / "checkpoints").glob("step-*")) == [f"step-{step:08d}" for step in left]
    said = tiny.Command(tmp_path, "resume", out).succeed()
    assert f"going on after step {max(left, default=0)} of {STEPS}" in said
    assert_same_run(out, uninterrupted("supervised"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_request_to_stop_saves_and_says_how_to_go_on(number, uninterrupted, tmp_path, options):
    out = tmp_path / "run"
    command = tiny.Command(tmp_path, "train", *tiny.words(**options), "--log.checkpoint_every", "1000", "--out", str(out))
    command.wait_for(lambda: tiny.lines_of(out / "metrics.jsonl") >= 1)
    command.send(number)
    assert command.wait() == 130
    done = tiny.rows(out)[-1]["step"]
    assert done < STEPS
    said = command.output.read_text().splitlines()[-1]
    assert said == f"stopped after step {done} of {STEPS}; go on with: sao resume {out}"
    assert said in (out / "log.txt").read_text()
    assert [path.name for path in (out / "checkpoints").iterdir()] == [f"step-{done:08d}"]
    tiny.Command(tmp_path, *said.partition("with: sao ")[2].split()).succeed()
    assert tiny.rows(out) == tiny.rows(uninterrupted("structural"))


def test_a_folder_in_which_another_process_trains_is_left_alone(uninterrupted, tmp_path, options, capsys):
    out = tmp_path / "run"
    words = ["train", *tiny.words(**options), "--out", str(out)]
    first = tiny.Command(tmp_path, *words)
    first.wait_for(lambda: tiny.lines_of(out / "metrics.jsonl") >= 1)
    first.send(signal.SIGSTOP)
    for second in (["resume", str(out)], [*words, "--overwrite"]):
        assert main(second) == 2
        assert capsys.readouterr().err == f"sao: {out} is in use: another process trains there; wait for it, or stop it\n"
    first.send(signal.SIGCONT)
    first.succeed()
    assert_same_run(out, uninterrupted("structural"))


def test_the_installed_command_survives_a_kill_too(uninterrupted, tmp_path, options):
    out = tmp_path / "run"
    words = [sys.executable, "-m", "sao", "train", *tiny.words(**options), "--out", str(out)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    tiny.wait_for(lambda: tiny.lines_of(out / "metrics.jsonl") >= 5, alive=lambda: process.poll() is None)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    done = subprocess.run([sys.executable, "-m", "sao", "resume", str(out)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not [line for line in done.stderr.splitlines() if not line.startswith("evaluating: ")]  # said on a busy machine
    assert "| untrained |" in done.stdout
    assert "– patches: left out" in done.stdout
    assert f"look at       {out}/samples/step-{STEPS:08d}.png" in done.stdout
    assert_same_run(out, uninterrupted("structural"))


def test_a_complete_run_is_said_to_be_complete(uninterrupted, capsys):
    run = uninterrupted("supervised")
    before = {path: path.read_bytes() for path in (run / "checkpoints").rglob("*.safetensors")}
    summary = (run / "eval" / "summary.json").stat()
    said = tiny.said(capsys, "resume", run)
    assert f"complete: all {STEPS} steps are done; to go on for longer: sao resume {run} --train.steps {2 * STEPS}" in said
    assert said.count("\n") == 1
    assert (run / "eval" / "summary.json").stat() == summary, "nothing is evaluated again"
    assert before == {path: path.read_bytes() for path in (run / "checkpoints").rglob("*.safetensors")}


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(tmp_path, capsys):
    run, _ = tiny.trained(tmp_path / "run", method="supervised")
    expected = (tiny.rows(run.folder), (run.checkpoints / "step-00000008" / "method.safetensors").read_bytes())
    (run.checkpoints / "step-00000008" / "state.json").unlink()
    said = tiny.said(capsys, "resume", run.folder)
    assert f"checkpoint {run.checkpoints / 'step-00000008'} is damaged (state.json: No such file" in said
    assert "going on after step 6 of 8" in said
    assert expected == (tiny.rows(run.folder), (run.checkpoints / "step-00000008" / "method.safetensors").read_bytes())


def test_keep_is_the_number_of_checkpoints_kept(tmp_path):
    run, _ = tiny.trained(tmp_path / "run", method="random", log__checkpoint_every=1, log__keep=3)
    assert sorted(path.name for path in run.checkpoints.iterdir()) == [f"step-0000000{n}" for n in (6, 7, 8)]


def test_a_dry_run_does_without_the_data_and_does_not_download_it(tmp_path, monkeypatch, capsys):
    def offline(*args, **kwargs):
        raise AssertionError("a dry run must not download")

    monkeypatch.setattr(torchvision_datasets().utils, "download_url", offline)
    words = tiny.words(train__batch=500, train__epochs=2, encoder__widths="[4]")
    assert main(["train", "cifar10", *words, "--train.epochs", "2", "--data.folder", str(tmp_path), "--dry-run"]) == 0
    priced = capsys.readouterr()
    assert "random pixels of its shape and its 50000 samples" in priced.out
    assert "200 steps" in priced.out
    assert "one step" in priced.out
    assert priced.err == ""


# --- bad input: one line, exit code 2, nothing left behind ------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "labels", "words", "said"),
    [
        (8, 40, ["--data", "nowhere.npz"], "nowhere.npz"),
        (8, 39, ["--data", "data.npz"], "labels of shape (39,) for 40 samples"),
        (8, 40, ["--data", "data.npz", "--train.batch", "41"], "train.batch is 41 but there are only 40 training samples"),
        (4, 40, ["--data", "mnist", "--data.folder", "."], "4x4: set --data.size"),
        (4, 40, ["--data", "mnist", "--data.folder", ".", "--data.size", "4"], "data.size"),
    ],
)
def test_refuses_data_that_cannot_be_learnt_from(size, labels, words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = np.random.default_rng(0).integers(0, 256, (40, size, size, 1), dtype=np.uint8), np.arange(labels) % 3
    for name in ("data", "mnist"):
        np.savez(f"{name}.npz", x_train=x, y_train=y, x_test=x[:12], y_test=y[:12])
    assert said in refused(capsys, "train", "digits", *tiny.words(), *words, "--out", "run")
    assert not Path("run").exists()


def test_supervised_needs_labels(capsys, tmp_path):
    words = [*tiny.words(method="supervised"), "--data.labels=false", "--out", tmp_path / "run"]
    assert "needs labels" in refused(capsys, "train", *words)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("out", ["file/run", "file"])
def test_refuses_an_output_folder_that_cannot_be_written(capsys, tmp_path, out):
    (tmp_path / "file").write_text("precious")
    assert str(tmp_path / out) in refused(capsys, "train", *tiny.words(), "--out", str(tmp_path / out))
    assert (tmp_path / "file").read_text() == "precious"


def test_refuses_to_replace_a_run_unasked_before_it_reads_data(capsys, tmp_path):
    run, _ = tiny.trained(tmp_path / "run", method="random")
    said = refused(capsys, "train", "digits", "--data", tmp_path / "nowhere", "--out", run.folder)
    assert f"sao resume {run.folder}" in said
    assert "--overwrite" in said
    assert len(run.rows()) == 8


def test_refuses_a_damaged_configuration(capsys, tmp_path):
    run, _ = tiny.trained(tmp_path / "run", method="random")
    text = (run.folder / "config.yaml").read_text()
    for damaged in (b"method: [", b"\xff\xfe", b"- 1", text.replace("batch:", "bacth:").encode()):
        (run.folder / "config.yaml").write_bytes(damaged)
        assert "config.yaml" in refused(capsys, "resume", str(run.folder))


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ([0] * 40, "Without labels nobody can say"),
        ([n // 2 for n in range(40)], "40 samples of 20 classes are too few to match clusters with"),
    ],
)
def test_labels_that_allow_no_measure_do_not_end_a_run(labels, reason, tmp_path, capsys):
    images = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "few.npz", x=images, y=labels)
    words = tiny.words(method="random", log__evaluate_every=2, log__evaluate_minutes=5)
    assert reason in tiny.said(capsys, "train", "digits", *words, "--data", tmp_path / "few.npz", "--out", tmp_path / "run")
    assert "eval/jacobian_norm_q50" in tiny.rows(tmp_path / "run")[-1]


def test_a_disk_that_is_full_is_one_line_and_keeps_what_is_there(tmp_path, capsys, monkeypatch):
    """A limit on the size of files is what a process can do to itself that comes nearest."""
    import resource

    from sao.training import checkpoint

    save = checkpoint.save

    def limited(folder, method, step, keep):
        if step > 3:
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
        return save(folder, method, step, keep)

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    monkeypatch.setattr(checkpoint, "save", limited)
    try:
        assert main(["train", *tiny.words(method="supervised"), "--out", str(tmp_path / "run")]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "step-00000006 cannot be written" in said
    assert [path.name for path in (tmp_path / "run/checkpoints").iterdir()] == ["step-00000003"]
