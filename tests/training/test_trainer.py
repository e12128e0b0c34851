"""The one driver: every entry trains by it, and a run whose folder goes away or whose disk is full ends in one line."""

import resource
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch

import sao
from sao.cli.main import main
from sao.data.dataset import Images
from sao.methods.genrep import GenRep
from sao.methods.structural import Structural
from sao.methods.supervised import Supervised
from sao.reproduce import figure2, study
from sao.reproduce.rows import chosen_rows, runs_of
from sao.reproduce.tables import table4
from sao.training import checkpoint
from sao.training.loop import Diverged
from sao.training.run_folder import Run

ASKED = {"train.deterministic": "true", "train.schedule": "cosine", "train.steps": "2"}
SMALL = tiny.OPTIONS | tiny.METHODS["structural"] | ASKED


@pytest.fixture
def without_summary(monkeypatch) -> None:
    """The evaluation after the last step takes longer than the steps."""
    monkeypatch.setattr("sao.training.trainer.print_summary", lambda *_: None)


def pixels() -> np.ndarray:
    train = tiny.dataset().train
    assert isinstance(train, Images)
    return np.asarray(train.pixels[:200])


def by_command(folder: Path, *more: str) -> None:
    words = [word for name, value in SMALL.items() for word in (f"--{name}", value)]
    assert main(["train", *words, "--out", str(folder), *more]) == 0


def by_dry_run(folder: Path) -> None:
    by_command(folder, "--dry-run")


def by_function(folder: Path) -> None:
    sao.train(pixels(), folder, options=SMALL)


def by_estimator(folder: Path) -> None:
    others = {name: value for name, value in SMALL.items() if name != "train.steps"}
    sao.StructuralEmbedding(2, steps=2, options=others, device="cpu", random_state=0).fit(pixels())


def by_table(folder: Path) -> None:
    table = table4("cpu")
    run = runs_of(table, chosen_rows(table, ["full"]), ["digits"], [0], SMALL, folder)[0]
    study.finish_run(run)


def by_figure(folder: Path) -> None:
    figure2._seconds(figure2.job(figure2.METHOD, 0, folder, ASKED))


ENTRIES = [by_command, by_dry_run, by_function, by_estimator, by_table, by_figure]


@pytest.mark.usefixtures("without_summary")
@pytest.mark.parametrize("train", ENTRIES, ids=lambda entry: entry.__name__)
def test_every_entry_trains_in_the_numerics_and_by_the_schedule_of_the_loop(train, tmp_path, monkeypatch):
    seen, rates = set(), []

    def noted(method, batch, number):
        tf32 = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        seen.add((torch.are_deterministic_algorithms_enabled(), *tf32))
        rates.append(method.optimisers["discriminator"].param_groups[0]["lr"])

    tiny.before_step(monkeypatch, Structural, noted)
    monkeypatch.setattr(study, "measured", lambda *_: [])
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        train(tmp_path / "run")
        assert (torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled()) == ("high", False)
    finally:
        torch.set_float32_matmul_precision(before)
    assert seen == {(True, "highest", False)}
    assert rates[1] == pytest.approx(0.5 * rates[0])


@pytest.mark.parametrize("train", ENTRIES, ids=lambda entry: entry.__name__)
def test_every_entry_stops_where_a_loss_is_not_finite(train, tmp_path, monkeypatch, capsys):
    def breaking(self, batch, number):
        raise FloatingPointError("covariance has a NaN")

    monkeypatch.setattr(Structural, "step", breaking)
    monkeypatch.setattr(study, "measured", lambda *_: [])
    if train in (by_command, by_dry_run):
        with pytest.raises(AssertionError, match="3 == 0"):
            train(tmp_path / "run")
        assert "step 1: covariance has a NaN" in capsys.readouterr().err
    elif train is by_table:
        train(tmp_path / "run")
        assert "diverged" in (tmp_path / "run/full-digits-seed0/eval.json").read_text()
    else:
        with pytest.raises(Diverged, match="step 1: covariance has a NaN"):
            train(tmp_path / "run")


# --- other runs ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def generator(tmp_path_factory) -> Path:
    run, _ = tiny.trained(tmp_path_factory.mktemp("generator") / "gan", train__steps=2)
    return run.folder


def genrep(generator: Path) -> dict[str, str]:
    small = {name: value for name, value in tiny.METHODS["genrep"].items() if name != "method.source"}
    return {**tiny.OPTIONS, **small, "method": "genrep", "method.generator": str(generator)}


@pytest.mark.usefixtures("without_summary")
def test_a_function_and_an_estimator_learn_from_the_generator_that_they_were_given(generator, tmp_path):
    model = sao.train(pixels(), tmp_path / "run", steps=2, options=genrep(generator))
    options = {name: value for name, value in genrep(generator).items() if name != "train.steps"}
    fitted = sao.StructuralEmbedding(2, steps=2, options=options, device="cpu", random_state=0).fit(pixels())
    for method in (model.method, fitted.model_.method):
        assert isinstance(method, GenRep)
        assert int(method.source_step) == 2


# --- a folder that goes away -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("without_summary")
@pytest.mark.parametrize("how", ["deleted", "moved"])
def test_a_folder_that_goes_away_is_noticed_and_the_state_is_saved_beside_it(how, tmp_path):
    out, beside = tmp_path / "run", tmp_path / "run-rescued"
    words = tiny.words(method="supervised", train__steps=100_000, log__checkpoint_every=50_000)
    command = tiny.Command(tmp_path, "train", *words, "--out", str(out))
    command.wait_for(lambda: tiny.lines_of(out / "metrics.jsonl") >= 3)
    out.rename(tmp_path / "elsewhere")
    if how == "deleted":
        shutil.rmtree(tmp_path / "elsewhere")
    assert command.wait() == 4, command.errors.read_text()
    (said,) = command.errors.read_text().splitlines()
    (saved,) = checkpoint.steps_in(beside / "checkpoints")
    step = int(saved.name.removeprefix("step-"))
    assert said == (
        f"sao: {out} was deleted or moved while it was trained; its state after step {step} is saved: "
        f"go on with sao resume {beside}"
    )
    assert not out.exists()
    assert main(["resume", str(beside), "--train.steps", str(step + 2)]) == 0
    assert [row["step"] for row in tiny.rows(beside)] == [step + 1, step + 2]


def test_a_folder_that_goes_away_in_the_last_step_is_noticed(tmp_path, monkeypatch, capsys):
    """The evaluation and its files come after the last step."""
    out = tmp_path / "run"
    (tmp_path / "run-rescued").mkdir()
    assert train_until(lambda: shutil.rmtree(out), 7, monkeypatch, out) == 4
    assert capsys.readouterr().err.endswith(f"its state after step 8 is saved: go on with sao resume {out}-rescued-2\n")
    assert list((tmp_path / "run-rescued").iterdir()) == []


# --- a disk that is full -----------------------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path):
    """A disk of eight megabytes, where this process may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], capture_output=True)
    if done.returncode:
        pytest.skip("only root can mount a small disk")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> None:
    with suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(2**12))


def train_until(change, at: int, monkeypatch, out: Path, **options: int) -> int:
    """The exit code of a training in whose step something is done."""
    with monkeypatch.context() as patched:
        tiny.before_step(patched, Supervised, lambda method, batch, number: change() if number == at else None)
        return main(["train", *tiny.words(method="supervised", **options), "--out", str(out)])


@pytest.mark.usefixtures("without_summary")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"log__checkpoint_every": 30}, "{out} cannot be written (No space left on device); go on with: sao resume {out}"),
        ({"log__every": 1000, "log__checkpoint_every": 30}, "checkpoint {out}/checkpoints/step-00000060 cannot be written"),
    ],
    ids=["row", "checkpoint"],
)
def test_a_full_disk_is_one_line_and_the_run_goes_on_once_there_is_room(options, said, disk, monkeypatch, capsys):
    out = disk / "run"
    assert train_until(lambda: fill(disk), 30, monkeypatch, out, train__steps=90, **options) == 2
    error = capsys.readouterr().err
    assert error.startswith("sao: " + said.format(out=out))
    assert "No space left on device" in error
    assert error.count("\n") == 1
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["step-00000030"]
    (disk / "filler").unlink()
    assert main(["resume", str(out)]) == 0
    assert "going on after step 30 of 90" in capsys.readouterr().out
    assert Run(out).rows()[-1]["step"] == 90


def test_a_row_that_cannot_be_written_is_one_line(tmp_path, monkeypatch, capsys):
    """A limit on the size of files stands for the full disk where none can be mounted."""
    limits, out = resource.getrlimit(resource.RLIMIT_FSIZE), tmp_path / "run"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, ((out / "metrics.jsonl").stat().st_size, limits[1]))

    try:
        assert train_until(limit, 4, monkeypatch, out) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert capsys.readouterr().err == f"sao: {out} cannot be written (File too large); go on with: sao resume {out}\n"
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["step-00000003"]


# --- runs of version 0.2 -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("without_summary")
def test_a_run_with_a_steadiest_checkpoint_of_version_0_2_opens_and_is_replaced(tmp_path):
    run, _ = tiny.trained(tmp_path / "run", method="supervised", train__steps=3)
    shutil.copytree(run.checkpoints, run.folder / "steadiest")
    np.save(run.evaluations / "step-00000003-clusters.npy", np.zeros(9, np.uint8))
    assert sao.load(run.folder).step == 3
    assert main(["resume", str(run.folder), "--train.steps", "4"]) == 0
    assert main(["train", *tiny.words(method="supervised"), "--out", str(run.folder), "--overwrite"]) == 0
    assert not (run.folder / "steadiest").exists()
