"""Equality, not "it did not crash": in double precision one process, two and, slowly, three are the same run.

In single precision they part after some steps. A group of processes ends as one.
"""

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import distributed_worker as worker
import numpy as np
import pytest
import tiny
import torch
from safetensors.torch import load_file

from sao.cli.main import main
from sao.core import distributed
from sao.training import checkpoint

EXACT = 1e-9  # relative, in double precision; measured: 1e-10
SINGLE = 1e-3  # relative, after eight steps in single precision; measured: 3e-6 in losses, 1e-4 in gradients


@pytest.fixture(scope="module")
def one_process(tmp_path_factory) -> Path:
    """Every case from a checkpoint, in this process."""
    folder = tmp_path_factory.mktemp("worlds")
    for name in worker.CASES:
        worker.make_checkpoint(name, folder)
        worker.trajectory(name, folder)
    return folder


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def world(request) -> int:
    """How many processes there are."""
    return request.param


@pytest.fixture(scope="module")
def worlds(world, one_process) -> Path:
    """The same in a group of processes."""
    group = worker.start(world, one_process / str(world), "trajectories", str(one_process))
    assert worker.finish(group) == [0] * world, (one_process / str(world) / "rank-0.txt").read_text()
    return one_process


@pytest.mark.parametrize("name", worker.CASES)
def test_several_processes_follow_the_trajectory_of_one(worlds, name, world):
    alone = load_file(worlds / f"{name}-1-0.safetensors")
    together = load_file(worlds / f"{name}-{world}-0.safetensors")
    assert alone.keys() == together.keys()
    assert any("/loss/" in key for key in alone)
    scale = {kind: max(float(v.abs().max()) for k, v in alone.items() if f"/{kind}/" in k) for kind in ("gradient", "state")}
    wrong = {}
    for key, expected in alone.items():
        kind = key.split("/")[1]
        # A bias before a BatchNorm has no gradient but rounding, and Adam moves it by that: it is measured by the others.
        floor = {"gradient": 1e-3 * scale["gradient"], "state": 1e-3 * scale["state"], "loss": 1e-6}[kind]
        size = max(float(expected.double().norm()), floor)
        error = float((together[key].double() - expected.double()).norm()) / size
        if not error <= EXACT:
            wrong[key] = error
    assert not wrong, sorted(wrong.items(), key=lambda item: -item[1])[:5]


@pytest.mark.parametrize("name", worker.CASES)
def test_ranks_never_differ_by_a_bit(worlds, name, world):
    first = load_file(worlds / f"{name}-{world}-0.safetensors")
    for rank in range(1, world):
        other = load_file(worlds / f"{name}-{world}-{rank}.safetensors")
        assert all(torch.equal(first[key], other[key]) for key in first)


def test_the_cases_have_something_to_compare(one_process):
    for name in worker.CASES:
        found = load_file(one_process / f"{name}-1-0.safetensors")
        states = [key for key in found if key.startswith("1/state/")]
        moved = [key for key in states if not torch.equal(found[key], found[f"{worker.STEPS}{key[1:]}"])]
        assert len(moved) > 10
        gradients = [value for key, value in found.items() if key.startswith("1/gradient/")]
        assert all(bool(value.isfinite().all()) for value in gradients)
        assert sum(float(value.abs().sum()) > 0 for value in gradients) > 5
    assert int(load_file(one_process / "jsd-1-0.safetensors")[f"{worker.STEPS}/state/bank.filled"]) == 64


def test_a_step_takes_one_gather_a_pass_one_gradient_sum_a_player_and_the_sums_of_batchnorm(worlds, world):
    norms = sum(type(module).__name__ == "BatchNorm" for module in tiny.method().modules()) // 2  # and its EMA
    for rank in range(world):
        counts = json.loads((worlds / f"facts-{world}-{rank}.json").read_text())["collectives"]
        # Of each BatchNorm mean and variance: one after the other forward, for D's samples and for G's, and together backward.
        expected = {"all_gather": 2, "all_reduce": 2 + norms * (2 + 2 + 1)}
        single = {"all_gather": 1, "all_reduce": 1}
        # Both views pass through the BatchNorms of projector and predictor, and through the projector of the teacher.
        both = {"all_gather": 1, "all_reduce": 1 + 2 * (2 * (2 + 1) + 2)}
        several = {"jsd": expected, "micro-batches": expected, "byol": both}
        assert counts == {**several, "simclr": single, "supervised": single}


def test_what_processes_agree_on(worlds, world):
    for rank in range(world):
        facts = json.loads((worlds / f"facts-{world}-{rank}.json").read_text())
        assert max(facts["features"]) < 1e-6
        assert facts["same"] == [True, False]
        assert facts["any"] == [False, True]
        assert facts["told"] == "by 0"
        assert facts["turns"] == rank


def test_shares_of_a_batch_are_the_batch_in_order(monkeypatch):
    for world in (1, 2, 3, 5, 8):
        monkeypatch.setattr(distributed, "world_size", lambda world=world: world)
        for batch in range(world, 20):
            shares = []
            for rank in range(world):
                monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
                shares.append(list(range(batch)[distributed.local_slice(batch)]))
            assert [row for share in shares for row in share] == list(range(batch))
            assert max(map(len, shares)) == distributed.largest_local_batch(batch)
            assert min(map(len, shares)) >= 1


def test_a_checksum_sees_one_bit_and_two_tensors_that_changed_places():
    tensors = [torch.randn(5, 3), torch.randn(5, 3).double()]
    tensors += [torch.tensor(3), torch.tensor([True, False]), torch.ones(2).half()]
    base = distributed.checksum(tensors)
    assert base == distributed.checksum([tensor.clone() for tensor in tensors])
    changed = tensors[0].clone()
    changed[2, 1] = changed[2, 1].nextafter(torch.tensor(9.0))
    assert base != distributed.checksum([changed, *tensors[1:]])
    assert base != distributed.checksum([tensors[1], tensors[0], *tensors[2:]])


# --- commands ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    """The run that nobody disturbed, with one process."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    tiny.trained(folder)
    return folder


def assert_same_run(folder: Path, expected: Path) -> None:
    ours, theirs = tiny.rows(folder), tiny.rows(expected)
    assert [row["step"] for row in ours] == [row["step"] for row in theirs]
    for own, other in zip(ours, theirs, strict=True):
        assert own.keys() == other.keys()
        assert all(math.isclose(own[key], other[key], rel_tol=SINGLE, abs_tol=1e-5) for key in own)
    for path in checkpoint.steps_in(expected / "checkpoints"):
        own, other = (load_file(run / "checkpoints" / path.name / checkpoint.METHOD) for run in (folder, expected))
        # A bias before a BatchNorm has no gradient but rounding, which Adam makes large and BatchNorm's mean takes out again.
        compared = [key for key in other if "generator" not in key or not key.endswith(("bias", "running_mean"))]
        assert len(compared) > 50
        close = {key: torch.allclose(own[key].double(), other[key].double(), rtol=SINGLE, atol=1e-4) for key in compared}
        assert all(close.values()), close


def train(folder: Path, **options) -> list[str]:
    return ["train", "digits", "--out", str(folder), *tiny.words(**options)]


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory) -> Iterator[dict[str, tuple[Path, list]]]:
    """Groups of two in which something happens to rank 1 in a step, all at the same time: they mostly wait."""
    events = {"dying": (6, {}), "stopping": (2, {"train__timeout_seconds": 5}), "differing": (4, {"train__check_every": 2})}
    started = {}
    for name, (call, options) in (events | {"diverging": (2, {})}).items():
        folder = tmp_path_factory.mktemp(name)
        words = train(folder / "run", **options)
        started[name] = folder, worker.start(2, folder, "disturbed_command", name, 1, call, *words)
    yield started
    for _, group in started.values():
        for process in group:
            process.kill()  # nothing to those that have ended


def test_a_worker_is_killed_and_the_other_ends_with_one_line_and_one_process_goes_on(disturbed, tmp_path, alone):
    folder, group = disturbed["dying"]
    run = folder / "run"
    assert worker.finish(group[1:]) == [-signal.SIGKILL]
    killed = time.monotonic()
    assert worker.finish(group[:1]) == [4]
    assert time.monotonic() - killed < 60
    (line,) = worker.said(folder)
    assert "has ended or does not answer" in line
    assert line.endswith(f"go on with: sao resume {run}")
    assert [path.name for path in checkpoint.steps_in(run / "checkpoints")] == ["step-00000003"]
    assert tiny.Command(tmp_path, "resume", str(run)).wait() == 0
    assert_same_run(run, alone)


DIFFERENT = "sao: step 4: the processes have different weights; the last checkpoint, of step 3"  # a bit of them is enough


@pytest.mark.parametrize(
    ("event", "codes", "said", "saved"),
    [
        ("stopping", [4], "does not answer (Timed out", []),
        ("differing", [3, 3], DIFFERENT, ["step-00000003"]),
        ("diverging", [4, 3], "sao: step 2: function returned NaN or inf", []),
    ],
)
def test_what_happens_to_one_process_ends_all_with_one_line(event, codes, said, saved, disturbed):
    folder, group = disturbed[event]
    assert worker.finish(group[: len(codes)]) == codes
    (line,) = worker.said(folder)
    assert said in line
    assert [path.name for path in checkpoint.steps_in(folder / "run" / "checkpoints")] == saved


def test_a_run_of_one_process_goes_on_with_two_which_evaluate_it_too(tmp_path, alone):
    run = tmp_path / "run"
    assert tiny.Command(tmp_path, *train(run), die=("sao.training.step", "batch_rows", 6)).wait() == -signal.SIGKILL
    assert worker.finish(worker.start(2, tmp_path / "resume", "command", "resume", str(run))) == [0, 0]
    assert_same_run(run, alone)
    words = ["eval", str(run), "--metrics", "knn1,effective_rank", "-o"]
    assert worker.finish(worker.start(2, tmp_path / "eval", "command", *words, str(tmp_path / "two.json"))) == [0, 0]
    assert worker.finish(worker.start(1, tmp_path / "eval1", "command", *words, str(tmp_path / "one.json"))) == [0]
    two, one = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("two", "one"))
    assert len(two) == len(one) > 1
    assert [round(metric["value"], 5) for metric in two] == [round(metric["value"], 5) for metric in one]


def test_two_processes_start_from_the_same_weights_as_one(tmp_path, alone):
    started = ["--start-from", str(alone), "--train.steps", "3", "--log.keep", "5"]
    assert worker.finish(worker.start(2, tmp_path / "two", "command", *train(tmp_path / "warm"), *started)) == [0, 0]
    assert worker.finish(worker.start(1, tmp_path / "one", "command", *train(tmp_path / "expected"), *started)) == [0]
    first, expected = (
        load_file(tmp_path / run / "checkpoints/step-00000000/method.safetensors") for run in ("warm", "expected")
    )
    assert all(torch.equal(value, first[name]) for name, value in expected.items())
    assert_same_run(tmp_path / "warm", tmp_path / "expected")


def test_a_command_that_torchrun_gives_again_goes_on_with_the_run_that_it_made(tmp_path, monkeypatch, capsys):
    words = train(tmp_path / "run", method="random")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "one launch")
    assert main(words) == 0
    assert main(words) == 0
    assert "is complete: all 8 steps are done" in capsys.readouterr().out
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "another launch")
    assert "holds a run already" in tiny.refused(capsys, *words)


@pytest.mark.slow
def test_torchrun_restarts_a_killed_worker_and_goes_on_from_the_last_checkpoint(tmp_path, alone):
    run = tmp_path / "run"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    words = [*launcher, "--nproc-per-node", "2", "--max-restarts", "1", "-m", "sao", *train(run, train__steps=30)]
    with (tmp_path / "said.txt").open("w") as said:
        launched = subprocess.Popen(words, stdout=said, stderr=said, env=environment)
    try:
        tiny.wait_for(lambda: len(checkpoint.steps_in(run / "checkpoints")) > 0, lambda: launched.poll() is None)
        os.kill(_worker_of(launched.pid, rank=1), signal.SIGKILL)
        assert launched.wait(300) == 0, (tmp_path / "said.txt").read_text()
    finally:
        launched.kill()
    text = (tmp_path / "said.txt").read_text()
    assert "going on after step" in text
    rows = tiny.rows(run)
    assert [row["step"] for row in rows] == list(range(1, 31))
    for own, other in zip(rows, tiny.rows(alone), strict=False):
        assert all(math.isclose(own[key], other[key], rel_tol=SINGLE, abs_tol=1e-5) for key in own)


def _worker_of(parent: int, rank: int) -> int:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            of = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if of == parent and f"RANK={rank}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                return int(folder.name)
        except OSError:
            continue
    raise AssertionError("there is no such worker")


def test_a_request_to_one_process_stops_all_at_one_step(tmp_path):
    run = tmp_path / "run"
    group = worker.start(2, tmp_path, "command", *train(run, train__steps=5000, log__checkpoint_every=5000))
    try:
        tiny.wait_for(lambda: tiny.lines_of(run / "metrics.jsonl") > 2, group[1].is_alive)
        os.kill(group[1].pid, signal.SIGTERM)
        assert worker.finish(group) == [130, 130]
    finally:
        for process in group:
            process.kill()
    (saved,) = checkpoint.steps_in(run / "checkpoints")
    assert int(saved.name[5:]) == tiny.rows(run)[-1]["step"]


def test_errors_are_said_once_and_nobody_waits_for_ever(tmp_path, alone):
    """Also where rank 0 alone, or another alone, can see what is wrong."""
    folders = [tmp_path / f"folder-{rank}" for rank in range(3)]
    values = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    for rank, folder in enumerate(folders):
        folder.mkdir()
        np.save(folder / "different.npy", values + rank)
        (folder / "file").write_text("")
    np.save(folders[0] / "first.npy", values)
    np.save(folders[1] / "second.npy", values)
    new = str(tmp_path / "new")
    tried = [
        (["train", "--out", str(alone)], "holds a run already"),
        (["train", "--out", "file/run"], "file/run cannot be written"),
        (["train", "--out", new, "--train.batch", "2"], "train.batch is 2 for 3 processes"),
        (["train", "--out", new, "--train.bach", "2"], "there is no option"),
        (["train", "--out", new, "--start-from", "no/where"], "no/where is not a run"),
        (["train", "--out", new, "--dry-run"], "--dry-run prices one process"),
        (["train", "--out", new, "--data", "first.npy"], "there is no file or folder first.npy"),
        (["train", "--out", new, "--data", "second.npy"], "there is no file or folder second.npy"),
        (["train", "--out", new, "--data", "different.npy", "--train.steps", "2"], "have read different data"),
        (["resume", str(tmp_path)], f"{tmp_path} is not a run"),
    ]
    lists = [(worker.free_port(), words) for words, _ in tried]
    assert worker.finish(worker.start(3, tmp_path, "commands", [str(folder) for folder in folders], lists)) == [0, 0, 0]
    lines = worker.said(tmp_path)
    found = [[line for line in lines if part in line] for _, part in tried]
    assert [len(one) for one in found] == [1] * len(tried), lines
    assert len(lines) == len(tried), lines
    for rank in range(3):
        codes = [
            line.split()[-1] for line in (tmp_path / f"rank-{rank}.txt").read_text().splitlines() if " ended with " in line
        ]
        assert codes == ["2"] * len(tried)
