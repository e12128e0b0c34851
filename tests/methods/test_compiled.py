"""train.compile: the passes without Jacobian as torch.compile makes them give what the networks themselves give."""

from collections.abc import Iterator
from typing import Any

import pytest
import tiny
import torch
from torch import Tensor

from sao.cli.main import main
from sao.core import precision
from sao.errors import InputError
from sao.methods import METHODS, Method
from sao.training import device
from sao.training.loop import new_method
from sao.training.run_folder import Run

QUICK = ("supervised",)  # tracing takes seconds for each pass; the others are tried by `make slow`
CASES: dict[str, dict[str, Any]] = {
    **{name: {"method": name} for name in METHODS if name != "random"},  # which does not learn
    "micro-batches": {"method__micro_batch": 5},
    "spectral normalisation": {"method__spectral_normalisation": "true"},
    "without penalty": {"method__smoothness_weight": 0},
    "local": {"method__local_weight": 1, "method__local_cluster_weight": 1, "method__smooth_every": 2},
    "one pass": {"method__one_pass": "true", "method__smoothness_weight": 0},
}


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    """Torch keeps what it compiled by the code it came from, and gives up after the eighth kind."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def made(options: dict[str, Any], compile: bool) -> tuple[Method, dict[str, Tensor]]:
    method = tiny.method(**options)
    if compile:
        method.compile_networks()
    return method, tiny.two_steps(method)


def assert_same_steps(options: dict[str, Any]) -> Method:
    _, expected = made(options, compile=False)
    method, found = made(options, compile=True)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)
    assert method._compiled._known
    return method


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CASES])
def test_compiled_passes_learn_the_same(name, monkeypatch):
    """Traced, and with the backward pass that torch derives ahead, but without the code that takes a minute to generate."""
    monkeypatch.setattr(precision, "BACKEND", "aot_eager")
    assert_same_steps(CASES[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["structural", "supervised"])
def test_generated_code_learns_the_same(name):
    assert precision.BACKEND == "inductor"
    assert_same_steps(CASES[name])


def test_what_a_jacobian_is_taken_of_is_not_compiled(monkeypatch):
    """Nor is anything, unless it is asked for."""
    asked = []
    monkeypatch.setattr(precision.Compiled, "__call__", lambda self, function: asked.append(function) or function)
    method = tiny.method()
    method.training_step(tiny.batch(), 0)
    assert asked == []
    method.compile_networks()
    with monkeypatch.context() as patched:
        patched.setattr(method, "_update_generator", lambda *arguments: {})
        method.training_step(tiny.batch(), 0)
    assert asked == [method.generator, method.ema_discriminator.network.features]  # pyright: ignore[reportAttributeAccessIssue]


def test_the_option_reaches_the_method(monkeypatch, tmp_path):
    monkeypatch.setattr(device, "_compiles", lambda where: None)
    monkeypatch.setattr(precision.Compiled, "__call__", lambda self, function: function)
    seen, step_of = [], Method.training_step

    def recorded(self, batch, step):
        seen.append(self.compiled)
        return step_of(self, batch, step)

    monkeypatch.setattr(Method, "training_step", recorded)
    words = tiny.words(method="supervised", train__steps=2, train__compile="true")
    assert main(["train", *words, "--out", str(tmp_path / "run")]) == 0
    assert seen == [True, True]
    assert Run.open(tmp_path / "run").config.train.compile
    assert not new_method(tiny.config(), tiny.dataset(), torch.device("cpu")).compiled


def test_where_nothing_can_be_compiled_it_is_one_line_before_anything_is_written(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(device, "_compiles", lambda where: "No working C++ compiler found")
    words = tiny.words(method="supervised", train__compile="true")
    assert "train.compile cannot be used here (No working C++ compiler found)" in tiny.refused(
        capsys, "train", *words, "--out", str(tmp_path / "run")
    )
    assert not (tmp_path / "run").exists()


def test_several_processes_are_refused(monkeypatch):
    monkeypatch.setattr(device.distributed, "world_size", lambda: 2)
    with pytest.raises(InputError, match=r"train\.compile is for one process"):
        device.check_compiler(tiny.config(train__compile="true").train, torch.device("cpu"))
    device.check_compiler(tiny.config().train, torch.device("cpu"))


@pytest.mark.slow
def test_whether_anything_can_be_compiled_is_tried(monkeypatch):
    device._compiles.cache_clear()
    assert device._compiles(torch.device("cpu")) is None
    device._compiles.cache_clear()
    monkeypatch.setattr(torch, "compile", lambda function: 1 / 0)
    assert device._compiles(torch.device("cpu")) == "division by zero"
    device._compiles.cache_clear()
