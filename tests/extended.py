"""A method of a reader's own, in a file, put through what every method must stand."""

import signal
from pathlib import Path

import distributed_worker
import tiny
import torch
from safetensors.torch import load_file

from sao.cli.main import main
from sao.config import outside
from sao.methods import METHODS
from sao.training import checkpoint


def check(file: Path, folder: Path) -> None:
    outside.use_file(str(file))
    name = next(name for name in METHODS if name not in outside.OWN["method"])
    learns_and_goes_on_after_a_kill(name, file, folder)
    is_the_same_in_two_processes(name, file, folder)


def learns_and_goes_on_after_a_kill(name: str, file: Path, folder: Path) -> None:
    _, expected = tiny.trained(folder / "whole", method=name, train__steps=6)
    words = ["train", "digits", "--out", str(folder / "killed"), *tiny.words(method=name, train__steps=6), "--code", str(file)]
    killed = tiny.Command(folder, *words, die=("sao.training.checkpoint", "save", 2))
    assert killed.wait() == -signal.SIGKILL
    assert main(["resume", str(folder / "killed")]) == 0
    found = tiny.method(method=name, train__steps=6)
    assert checkpoint.load_latest(folder / "killed" / "checkpoints", found, print) == 6
    assert all(torch.equal(value, found.state_dict()[key]) for key, value in expected.state_dict().items())
    assert main(["eval", str(folder / "killed"), "--metrics", "kmeans,knn1"]) == 0


def is_the_same_in_two_processes(name: str, file: Path, folder: Path) -> None:
    distributed_worker.make_checkpoint(name, folder)
    for world in (1, 2):
        group = distributed_worker.start(world, folder / str(world), "own_trajectory", str(file), name, str(folder))
        assert distributed_worker.finish(group) == [0] * world
    one, two = (load_file(folder / f"{name}-{world}-0.safetensors") for world in (1, 2))
    for key, value in one.items():
        torch.testing.assert_close(two[key], value, rtol=1e-9, atol=1e-9, msg=lambda text, key=key: f"{key}: {text}")
