"""The smallest real training, in this process or in another one that can be killed."""

import csv
import inspect
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image

from sao.cli.main import main
from sao.config import Config, load_preset
from sao.core.random import batch_rows
from sao.data.dataset import Dataset, Frames, Images
from sao.data.loader import Batches
from sao.data.named import digits
from sao.methods import Batch, Method, structural
from sao.training import checkpoint
from sao.training.log import Log
from sao.training.loop import new_method, train
from sao.training.run_folder import DataFacts, Run


def _own(options: str) -> dict[str, str]:
    """Those of a method by their dotted names."""
    return {f"method.{name}": value for name, _, value in (option.partition("=") for option in options.split())}


GAN = {"method.generator.width": "4", "method.generator.latent_size": "8"}
RESNET = {"encoder.widths": "[4, 8]"}
VIT = {"encoder": "vit", "encoder.width": "8", "encoder.depth": "1", "encoder.heads": "2"}
HEAD = {"method.hidden_size": "16", "method.projection_size": "8"}
# Of the run that images are generated with; where none is begun, as it is before its first step.
SOURCE = {
    "method": {"name": "structural", "embedding_size": 8, "bank": 64, "generator": {"width": 4, "latent_size": 8}},
    "encoder": {"name": "resnet", "widths": [4, 8]},
    "seed": 0,
}
# The smallest networks of every method.
METHODS = {
    "structural": {**RESNET, **GAN, "method.embedding_size": "8", "method.bank": "64"},
    "hinge": {**RESNET, **GAN},
    "biggan": {**GAN, "encoder": "biggan", "encoder.width": "8"},
    "self_conditioned": _own("width=4 latent_size=8 embedding_size=4 clusters=5 clustered=100 recluster_every=4"),
    "stylegan2": _own("width=8 latent_size=8 group=4 penalty_every=3 adapt_every=2 adapt_images=320 half_life=1000"),
    "bigbigan": {**RESNET, **GAN, **{f"method.{name}": "8" for name in ("width", "joint_width", "head_width")}},
    "genrep": {**RESNET, **HEAD, "method.source": json.dumps(SOURCE)},
    "simclr": {**RESNET, **HEAD},
    "vicreg": {**RESNET, "method.projection_size": "16"},
    "mae": {**VIT, "method.decoder.width": "8", "method.decoder.depth": "1", "method.decoder.heads": "2"},
    "ddpm": {"encoder": "unet", "encoder.channels": "8", "encoder.blocks": "1", "method.sampling_steps": "4"},
    "byol": {**RESNET, **HEAD, "method.predictor_size": "16"},
    "nnclr": {**RESNET, **HEAD, "method.predictor_size": "16", "method.queue": "40"},
    "swav": {**RESNET, **HEAD, "method.prototypes": "12", "method.queue": "40", "method.frozen_epochs": "0.02"},
    "dino": {**RESNET, **HEAD, "method.outputs": "12", "method.frozen_epochs": "0.02"},
    "supervised": RESNET,
    "random": RESNET,
    "nonsaturating": {**RESNET, **GAN},  # of docs/extending.md, as the next
    "barlow_twins": {**RESNET, "method.projection_size": "16"},
}
Kind = TypeVar("Kind", bound=Method)
First = Callable[[], None] | None  # what a process does before its command
OPTIONS = {
    "train.batch": "16",
    "train.steps": "8",
    "train.threads": "1",
    "log.every": "1",
    "log.evaluate_every": "null",
    "log.sample_every": "null",
    "log.checkpoint_every": "3",
    "log.evaluate_minutes": "1e-9",  # the evaluation after the last step is longer than all the rest: tests of it ask for it
    "log.report": "false",
}


def fake(**values: Any) -> Any:
    """What stands in for an object of which only these values are asked."""
    return SimpleNamespace(**values)


def config(**options: Any) -> Config:
    """The tiny configuration with options changed; dots are written as two underscores."""
    return load_preset("digits", _changed(options))


def words(**options: Any) -> list[str]:
    """The same as arguments of `sao train`."""
    return [word for name, value in _changed(options).items() for word in (f"--{name}", value)]


def _changed(options: dict[str, Any]) -> dict[str, str]:
    by_hand = {name.replace("__", "."): str(value) for name, value in options.items()}
    small = METHODS[by_hand.get("method", "structural")]
    if "encoder" in by_hand:  # the small sizes are those of another
        small = {name: value for name, value in small.items() if not name.startswith("encoder")}
    if "method.generator" in by_hand:  # a run that says itself what it is
        small = {name: value for name, value in small.items() if name != "method.source"}
    return OPTIONS | small | by_hand


def structural_options(config: Config) -> structural.Options:
    assert isinstance(config.method, structural.Options)
    return config.method


@cache
def dataset() -> Dataset:
    return digits()


@cache
def few() -> Dataset:
    """Some of the digits, just so many that they are not cross-validated: to evaluate all of them takes seconds."""
    data = dataset()
    return Dataset("digits", data.train.select(np.arange(400)), data.test.select(np.arange(110)))


def draw_pictures(folder: Path, count: int, shape: tuple[int, ...] = (9, 9, 3), seed: int = 0, classes: Any = ("",)) -> Path:
    """PNG files of noise, in turns in a folder for each class."""
    for index, pixels in enumerate(np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)):
        place = folder / classes[index % len(classes)]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(place / f"{index}.png")
    return folder


def save_few(path: Path) -> Path:
    """The same as an archive."""
    arrays: dict[str, Any] = {}
    for name, part in (("train", few().train), ("test", few().test)):
        assert isinstance(part, Images)
        arrays |= {f"x_{name}": part.pixels, f"y_{name}": part.labels}
    np.savez(path, **arrays)
    return path


def framed(crop: float = 0.25) -> Dataset:
    """The digits with whole pictures behind them, of which training sees crops."""
    data = dataset()
    assert isinstance(data.train, Images)
    pixels = np.asarray(data.train.pixels).repeat(2, axis=1).repeat(2, axis=2)
    frames = Frames(pixels, np.linspace(0.5, 2, len(pixels), dtype=np.float32), crop)
    return Dataset("framed", replace(data.train, frames=frames), data.test)


def batch(step: int = 0, size: int = 16) -> Batch:
    """The batch of a step as one process gets it, labels included."""
    batches = Batches(dataset().train, torch.device("cpu"))
    rows = batch_rows(0, step, size, len(batches))
    return Batch(batches.inputs(rows), rows, batches.labels(rows))


def method(**options: Any) -> Method:
    return new_method(config(**options), dataset(), torch.device("cpu"))


def method_of(kind: type[Kind], **options: Any) -> Kind:
    """The same, of a class that is known."""
    found = method(**options)
    assert isinstance(found, kind)
    return found


def make_steps(method: Method, first: int, last: int, size: int = 16) -> list[dict[str, torch.Tensor]]:
    """Steps on the batches of one process, each after what the method does before it; the scalars of each."""
    batches, found = Batches(dataset().train, torch.device("cpu")), []
    for step in range(first, last):
        method.refresh(batches, step)
        found.append(method.step(batch(step, size), step))
    return found


def two_steps(method: Method) -> dict[str, torch.Tensor]:
    """In float64: the scalars of the second, the gradients, and the state after it."""
    method.double()
    for step in range(2):
        whole = batch(step)
        scalars = method.step(replace(whole, inputs=whole.inputs.double()), step)
    gradients = {f"gradient of {name}": p.grad for name, p in method.named_parameters() if p.grad is not None}
    assert gradients
    return scalars | gradients | method.state_dict()


def trained(folder: Path, data: Dataset | None = None, **options: Any) -> tuple[Run, Method]:
    """Train in this process."""
    settings, data = config(**options), data or dataset()
    method = new_method(settings, data, torch.device("cpu"))
    run = Run.create(folder, settings, DataFacts.of(data))
    go_on(run, settings, data, method, 0)
    return run, method


def untrained(folder: Path, method: Method | None = None, **options: Any) -> Run:
    """A run that looks as if it had been trained for eight steps."""
    run = Run.create(folder, config(**options), DataFacts.of(dataset()))
    checkpoint.save(run.checkpoints, method or new_method(run.config, dataset(), torch.device("cpu")), 8, keep=1)
    return run


def go_on(run: Run, settings: Config, data: Dataset, method: Method, first: int) -> None:
    log = Log(run.folder)
    try:
        train(run, settings, data, method, log, first)
    finally:
        log.close()


def rows(folder: Path) -> list[dict[str, Any]]:
    """Logged rows without what depends on the clock."""
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in Run(folder).rows()]


def wait_for(happened: Callable[[], bool], alive: Callable[[], bool], seconds: float = 300) -> None:
    """Wait for what a process is to do, as long as it lives; a busy machine needs patience."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert alive(), "the process ended before it happened"
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.002)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file, as a spreadsheet would read them."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def metrics(path: Path) -> dict[str, dict[str, Any]]:
    """Those that `sao eval` wrote, by their names."""
    return {metric["name"]: metric for metric in json.loads(path.read_text())}


def lines_of(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


# A server that has imported everything forks a process for each command: a real one, to be killed, without seconds of imports.
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(
    ["sao.cli.train", "sao.cli.resume", "sao.training.trainer", "sklearn.datasets", "torch._dynamo", "PIL.Image"]
)


class Command:
    """`sao ARGUMENTS` in a process of its own; what it says goes to FOLDER/said.txt and FOLDER/errors.txt."""

    def __init__(self, folder: Path, *arguments: object, die: tuple[str, str, int] | None = None, first: First = None) -> None:
        first = first if die is None else partial(_kill_at, *die)
        self.output, self.errors = folder / "said.txt", folder / "errors.txt"
        self.output.unlink(missing_ok=True)  # what the command before it said
        self.process = _server.Process(target=_run, args=(list(map(str, arguments)), self.output, self.errors, first))
        self.process.start()

    def wait_for(self, happened: Callable[[], bool]) -> None:
        wait_for(happened, self.process.is_alive)

    def send(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def succeed(self) -> str:
        """What it said, once it has ended as it should."""
        assert self.wait() == 0, self.errors.read_text()
        return self.output.read_text()

    def wait(self) -> int:
        """The exit code; negative for a signal."""
        self.process.join(300)
        assert self.process.exitcode is not None, "the process did not end"
        return self.process.exitcode


def _run(arguments: list[str], output: Path, errors: Path, first: First) -> None:
    from sao.cli.main import main

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background may have been told to ignore Ctrl-C
    for number, path in ((1, output), (2, errors)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    if first is not None:
        first()
    code = main(arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(code)


def _kill_at(module: str, name: str, call: int) -> None:
    """SIGKILL this process when a function is called for the n-th time."""
    import importlib

    owner = importlib.import_module(module)
    function, calls = getattr(owner, name), 0

    def dying(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)

    setattr(owner, name, dying)


def said(capsys, *words: object) -> str:
    """What a command that succeeds writes to standard output."""
    capsys.readouterr()
    assert main([str(word) for word in words]) == 0
    return capsys.readouterr().out


class Arrived(Exception):
    """Raised in the place of a function, with the arguments that it was called with."""


def arrival(monkeypatch: Any, place: str, call: Callable[[], object]) -> dict[str, Any]:
    """The arguments, by name, that a function gets from a call, which ends there."""
    signature = inspect.signature(resolve_name(place))

    def stop(*given: Any, **named: Any) -> None:
        bound = signature.bind(*given, **named)
        bound.apply_defaults()
        raise Arrived(bound.arguments)

    with monkeypatch.context() as patched:
        patched.setattr(place, stop)
        try:
            result = call()
        except Arrived as arrived:
            return arrived.args[0]
    raise AssertionError(f"{place} was not called: {result}")


def before_step(monkeypatch: Any, kind: type[Method], action: Callable[[Any, Batch, int], object]) -> None:
    """Do something with the method, the batch and the number before each step."""
    step = kind.step

    def acting(self: Any, batch: Batch, number: int) -> Any:
        action(self, batch, number)
        return step(self, batch, number)

    monkeypatch.setattr(kind, "step", acting)


def refused(capsys, *words: object, quiet: bool = False) -> str:
    """The one line that a command says before it gives up; `quiet`: it has said nothing else."""
    capsys.readouterr()
    assert main([str(word) for word in words]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("sao: ")
    assert said.err.count("\n") == 1, said.err
    assert not quiet or said.out == ""
    return said.err
