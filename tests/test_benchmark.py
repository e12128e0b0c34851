"""The literal arrangement of the step is a fair baseline only if it computes the same thing."""

import json
import re
from typing import Any

import numpy as np
import pytest
import tiny
import torch

from sao.benchmark import measure
from sao.benchmark.literal import left_out, literal
from sao.cli.main import main
from sao.config import Config, load_preset
from sao.core import precision
from sao.errors import InputError
from sao.methods import Batch
from sao.runtime.machine import processor_name
from sao.training import device

SMALL = {"train.batch": "12", "encoder.widths": "[16, 32]"}
SMALL |= {"method.embedding_size": "8", "method.generator.width": "4", "method.bank": "64"}


def small(**changes: str) -> Config:
    return load_preset("digits", SMALL | {name.replace("__", "."): value for name, value in changes.items()})


FASTEST, PEAK_MEMORY = measure._fastest, measure.peak_memory


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    """What the processor can do is no matter here, and looking for it took longer than all the rest; as did other processes."""
    monkeypatch.setattr(measure, "_fastest", lambda function, seconds: FASTEST(function, 0.01))
    monkeypatch.setattr(measure, "peak_memory", lambda *arguments: 1.0)


@pytest.fixture
def double_precision():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("distance", ["jensen_shannon", "bhattacharyya"])
def test_literal_step_gives_the_same_losses_and_gradients(distance):
    config = small(method__distance=distance)
    ours, other = (measure.build(config, (1, 8, 8), 1000, arrangement) for arrangement in ("ours", "literal"))
    inputs = torch.rand(12, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 2 - 1
    batch = Batch(inputs, torch.arange(12))
    mine, expected = ours.step(batch, 0), other.step(batch, 0)
    assert mine.keys() == expected.keys()
    for name in mine:
        torch.testing.assert_close(mine[name], expected[name], rtol=1e-9, atol=1e-9, msg=lambda m, name=name: f"{name}: {m}")
    for network in ("generator", "discriminator"):
        for (name, a), b in zip(getattr(ours, network).named_parameters(), getattr(other, network).parameters(), strict=True):
            if network == "generator":  # the literal pass for G goes on to add to D's gradients, which is what it is for
                assert a.grad is not None
                torch.testing.assert_close(a.grad, b.grad, rtol=1e-8, atol=1e-9, msg=lambda m, name=name: f"{name}: {m}")
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


def test_phases_and_arithmetic_are_measured():
    config = small()
    method = measure.build(config, (1, 8, 8), 1000)
    inputs = torch.rand(12, 1, 8, 8) * 2 - 1
    batch = Batch(inputs, torch.arange(12))
    spent = measure.phases(lambda: method.step(batch, 0))
    assert set(spent) == {*measure.PHASES, "other"}
    assert all(spent[name] > 0 for name in measure.PHASES)
    forward = measure.flops(lambda: method.smooth_function(inputs))
    assert 15 * forward < measure.flops(lambda: method.step(batch, 1)) < 60 * forward


def test_flops_of_a_matrix_product():
    assert measure.flops(lambda: torch.ones(3, 5) @ torch.ones(5, 7)) == 2 * 3 * 5 * 7


# --- the command -----------------------------------------------------------------------------------------------------------


def bench(*more: str) -> list[str]:
    return ["bench", "digits", "--steps", "1", *[word for name, value in SMALL.items() for word in (f"--{name}", value)], *more]


def measured(capsys, *more: str) -> dict[str, Any]:
    assert main(bench("--json", *more)) == 0
    return json.loads(capsys.readouterr().out)


def test_the_command_measures_everything_in_one_run(monkeypatch, capsys):
    monkeypatch.setattr(measure, "_gemm_rate", lambda seconds: 1e15)  # a ceiling that no convolution here reaches
    monkeypatch.setattr(measure, "peak_memory", PEAK_MEMORY)
    found = measured(capsys, "--batch", "10")
    assert (found["batch"], found["steps"], found["processor"]) == (10, 1, processor_name())
    assert found["images_per_second"] == pytest.approx(10 / found["seconds"]["median"])
    assert found["times_as_fast_as_literal"] == found["literal"]["seconds"]["median"] / found["seconds"]["median"]
    assert found["memory_of_literal"] == found["peak_gb"] / found["literal"]["peak_gb"]
    assert found["share_of_ceiling"] == pytest.approx(found["tflop"] * 1e12 / found["seconds"]["fastest"] / 1e15)
    assert "conv3x3 16>32 4x4 nhwc" in found["ceiling_gflops"]
    assert found["embedding"]["images_per_second"] > 0
    assert {"generator", "momentum keys", "jacobian", "discriminator backward"} <= found["phases"].keys()


@pytest.mark.slow
def test_what_compiling_gains_is_measured_in_turns(monkeypatch, capsys):
    monkeypatch.setattr(device, "_compiles", lambda where: None)
    monkeypatch.setattr(precision.Compiled, "__call__", lambda self, function: function)
    assert main(bench("--no-literal", "--train.compile", "true")) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("uncompiled")]
    assert re.fullmatch(r"uncompiled +[\d.]+ s: the compiled step is [\d.]+ times as fast; the first one took \d+ s", line)


@pytest.mark.slow
def test_the_size_of_the_images_can_be_chosen(capsys):
    assert "conv3x3 16>32 6x6 nhwc" in measured(capsys, "--no-literal", "--data.size", "12")["ceiling_gflops"]


def test_a_step_that_does_more_than_others_counts_with_its_share(monkeypatch):
    """Every fourth step has a penalty: neither a step with it nor one without is what a step takes."""
    made: list[int] = []

    class Method:
        cycle = 4

        def training_step(self, batch, step: int) -> None:
            made.append(step)
            now[0] += 100.0 if step == 0 else 10.0 if step % 4 == 3 else 2.0  # the first one compiles and allocates

    now = [0.0]
    monkeypatch.setattr(measure.time, "perf_counter", lambda: now[0])
    (spread,) = measure.step_times([measure.Cycle(Method(), None)], 6)  # pyright: ignore[reportArgumentType]
    assert spread == measure.Spread(4.0, 4.0, 4.0)
    assert made == list(range(12)), "a cycle that does not count, and two for six steps"


@pytest.mark.slow
def test_the_arithmetic_of_a_step_that_does_more_than_others_counts_with_its_share(monkeypatch, capsys):
    monkeypatch.setattr(measure, "ceiling", lambda *arguments: {"gemm": 1.0})

    options = ((), ("--method.smoothness_weight", "0"), ("--method.smooth_every", "4"))
    always, never, shared = (measured(capsys, "--no-literal", *more)["tflop"] for more in options)
    assert shared == pytest.approx(never + (always - never) / 4)


def test_where_there_is_no_literal_step_that_is_said(capsys):
    assert measured(capsys, "--method.power_steps", "2")["literal"] is None
    assert main(bench("--method.smoothness_weight", "0")) == 0
    assert "literal      none: it is there for structural with a penalty" in capsys.readouterr().out


def test_a_shorter_step_is_measured_against_the_whole_one_and_says_by_what(capsys):
    assert main(bench("--method.smooth_every", "2", "--method.one_pass", "true", "--method.keys_from", "own")) == 0
    said = "the literal step is the paper's; ours is shorter by one_pass true, smooth_every 2, keys_from own"
    assert said in capsys.readouterr().out
    assert literal(small(method__smooth_every="2", method__one_pass="true", method__keys_from="own")) == literal(small())
    assert left_out(small()) == {}


@pytest.mark.slow
def test_another_preset_is_timed_on_the_same_shape(capsys, tmp_path):
    other = tmp_path / "wide.yaml"
    other.write_text("data: {source: cifar10}\nmethod: {name: simclr}\nencoder: {name: resnet, widths: [64], blocks: 2}\n")
    found = measured(capsys, "--no-literal", "--against", str(other), "--batch", "12")
    assert found["other"]["images_per_second"] == pytest.approx(12 / found["other"]["seconds"]["median"])
    assert found["times_as_fast_as_other"] == pytest.approx(found["images_per_second"] / found["other"]["images_per_second"])


@pytest.mark.slow
def test_own_files_are_measured_with_what_is_chosen_for_them(capsys, tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).integers(0, 256, (300, 8, 8, 3), dtype=np.uint8))
    assert main(["bench", "--data", str(tmp_path / "x.npy"), "--steps", "1", "--json", "--train.batch", "16"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["batch"], found["preset"]) == (16, str(tmp_path / "x.npy"))
    assert any(name.startswith("conv3x3") for name in found["ceiling_gflops"])


REFUSED = {"--steps 0": "--steps", "--train.device cuda": "processor", "--train.precision bfloat16": "float32"}
REFUSED |= {"--method simclr": "--method", "--against nowhere": "nowhere"}


@pytest.mark.parametrize(("more", "said"), REFUSED.items())
def test_what_it_cannot_honour_is_refused(more, said, capsys):
    assert said in tiny.refused(capsys, *bench(*more.split()))


def test_a_process_that_ends_is_one_line(monkeypatch):
    monkeypatch.setattr(measure.sys, "executable", "/bin/false")
    with pytest.raises(InputError, match="ended with code 1: it was killed; try a smaller --batch"):
        PEAK_MEMORY(small(), (1, 8, 8), 100, "ours")
