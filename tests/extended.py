"""A method that a document adds to the package, put through what every method must stand; run by tests/test_docs.py.

Usage: extended.py METHOD FOLDER, with a copy of the package that has the method first on the path.
"""

import signal
import sys
from pathlib import Path

import distributed_worker
import tiny
import torch
from safetensors.torch import load_file

from sao.cli.main import main
from sao.training import checkpoint


def learns_and_goes_on_after_a_kill(name: str, folder: Path) -> None:
    _, expected = tiny.trained(folder / "whole", method=name, train__steps=6)
    words = ["train", "digits", "--out", str(folder / "killed"), *tiny.words(method=name, train__steps=6)]
    killed = tiny.Command(folder, *words, die=("sao.training.checkpoint", "save", 2))
    assert killed.wait() == -signal.SIGKILL
    assert main(["resume", str(folder / "killed")]) == 0
    found = tiny.method(method=name, train__steps=6)
    assert checkpoint.load_latest(folder / "killed" / "checkpoints", found, print) == 6
    assert all(torch.equal(value, found.state_dict()[key]) for key, value in expected.state_dict().items())
    assert main(["eval", str(folder / "killed"), "--metrics", "kmeans,knn1"]) == 0


def is_the_same_in_two_processes(name: str, folder: Path) -> None:
    distributed_worker.make_checkpoint(name, folder)
    for world in (1, 2):
        group = distributed_worker.start(world, folder / str(world), "one_trajectory", name, str(folder))
        assert distributed_worker.finish(group) == [0] * world
    one, two = (load_file(folder / f"{name}-{world}-0.safetensors") for world in (1, 2))
    for key, value in one.items():
        torch.testing.assert_close(two[key], value, rtol=1e-9, atol=1e-9, msg=lambda text, key=key: f"{key}: {text}")


if __name__ == "__main__":
    learns_and_goes_on_after_a_kill(sys.argv[1], Path(sys.argv[2]))
    is_the_same_in_two_processes(sys.argv[1], Path(sys.argv[2]))
