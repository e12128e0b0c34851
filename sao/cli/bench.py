"""sao bench: a training step on this machine, by phase, beside its ceiling, a literal arrangement of it and another preset."""

import json
import time
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sao.cli.flags import PRESET
from sao.errors import InputError
from sao.runtime.machine import processor_name

if TYPE_CHECKING:  # torch comes with it
    from sao.config import Config

SPIRALS = (2,), 10_000
DIGITS = 1437, 8, 1  # as in KNOWN: samples, size, channels
ENOUGH = 128  # images for a forward pass at full speed; more only cost memory


def add_options(parser: ArgumentParser) -> None:
    parser.set_defaults(takes_options=True)
    parser.add_argument("preset", nargs="?", default=None, help=PRESET)
    parser.add_argument("--data", dest="source", help="your own files, and what --auto chooses for them, or a data set's name")
    parser.add_argument("--batch", help="samples a step (default: the preset's)")
    parser.add_argument("--steps", type=int, default=5, help="steps to time (default: 5)")
    parser.add_argument("--against", metavar="PRESET", help="another preset or .yaml file, timed in turns on the same shape")
    literal = "leave out the comparison with a literal arrangement of the step, which is there for the paper's method alone"
    parser.add_argument("--no-literal", action="store_true", help=literal)
    parser.add_argument("--json", action="store_true", help="for machines instead of people")


def run(arguments: Namespace) -> None:
    from sao.config import load_preset

    options = dict(arguments.options)
    if arguments.batch is not None:
        options["train.batch"] = arguments.batch
    if arguments.source is not None:
        options["data.source"] = arguments.source
    preset = arguments.preset or ("digits" if arguments.source is None else "own")
    config = load_preset(preset, options)
    _check(config, arguments.steps)
    config, shape, samples = for_data(config, options if preset == "own" else None)
    other = None
    if arguments.against is not None:
        other = load_preset(arguments.against, {} if arguments.batch is None else {"train.batch": arguments.batch})
        _check(other, arguments.steps)
    measured = measure(config, shape, samples, arguments.steps, literal=not arguments.no_literal, other=other)
    if other is not None:
        measured["other"]["name"] = arguments.against
    print(json.dumps(measured, indent=1) if arguments.json else _as_text(measured))


def _check(config: "Config", steps: int) -> None:
    """What the benchmark cannot honour it refuses."""
    if steps < 1:
        raise InputError(f"--steps must be at least 1, got {steps}")
    if config.train.device not in ("auto", "cpu") or config.train.precision == "bfloat16":
        raise InputError("sao bench measures float32 on the processor: leave --train.device and --train.precision out")


def measure(
    config: "Config", shape: tuple[int, ...], samples: int, steps: int, literal: bool, other: "Config | None" = None
) -> dict[str, Any]:
    """One step of `config`, in turns with its literal arrangement, and with one of another configuration on the same shape."""
    import torch

    from sao.benchmark import measure as measuring
    from sao.benchmark.literal import has_literal, left_out
    from sao.training.device import check_compiler, set_threads

    set_threads(config.train.threads)
    check_compiler(config.train, torch.device("cpu"))
    batch_of_a_step = measuring.random_batch(config, shape)
    inputs = batch_of_a_step.inputs
    ours = measuring.build(config, shape, samples)
    cycles = {"ours": measuring.Cycle(ours, batch_of_a_step)}
    if literal and has_literal(config):
        cycles["literal"] = measuring.Cycle(measuring.build(config, shape, samples, "literal"), batch_of_a_step)
    if other is not None:
        cycles["other"] = measuring.Cycle(measuring.build(other, shape, samples), measuring.random_batch(other, shape))
    if config.train.compile:
        cycles["uncompiled"] = measuring.Cycle(measuring.build(config, shape, samples, "uncompiled"), batch_of_a_step)
    started = time.perf_counter()
    ours.training_step(batch_of_a_step, 0)
    first = time.perf_counter() - started
    spreads = dict(zip(cycles, measuring.step_times(list(cycles.values()), steps), strict=True))
    seconds, batch = spreads["ours"], config.train.batch
    result: dict[str, Any] = {
        "preset": config.data.source,
        "batch": batch,
        "threads": torch.get_num_threads(),
        "steps": steps,
        "torch": torch.__version__,
        "processor": processor_name(),
        "seconds": asdict(seconds),
        "images_per_second": batch / seconds.median,
        "phases": {name: spent / ours.cycle for name, spent in measuring.phases(lambda: cycles["ours"](steps + 1)).items()},
        "peak_gb": measuring.peak_memory(config, shape, samples, "ours"),
    }
    ours.compiled = False  # operators inside a compiled network are not seen one by one
    result["tflop"] = measuring.flops(lambda: cycles["ours"](steps + 2)) / ours.cycle / 1e12
    if "literal" in cycles:
        memory = measuring.peak_memory(config, shape, samples, "literal")
        result["literal"] = {"seconds": asdict(spreads["literal"]), "peak_gb": memory, "without": left_out(config)}
        result["times_as_fast_as_literal"] = spreads["literal"].median / seconds.median
        result["memory_of_literal"] = result["peak_gb"] / memory
    elif literal:
        result["literal"] = None
    if other is not None:
        rate = other.train.batch / spreads["other"].median
        result["other"] = {"seconds": asdict(spreads["other"]), "batch": other.train.batch, "images_per_second": rate}
        result["times_as_fast_as_other"] = result["images_per_second"] / rate
    if config.train.compile:
        result["uncompiled"] = {"seconds": asdict(spreads["uncompiled"]), "first_compiled_step": first}
    if len(shape) == 3:
        rates = measuring.ceiling(ours, inputs[:ENOUGH])
        result["ceiling_gflops"] = {name: rate / 1e9 for name, rate in rates.items()}
        result["share_of_ceiling"] = result["tflop"] * 1e12 / seconds.fastest / max(rates.values())
    result["embedding"] = _embedding(ours, inputs[:ENOUGH], steps, shape)
    return result


def _embedding(method, inputs, steps: int, shape: tuple[int, ...]) -> dict[str, float]:
    """The hot path of `sao embed` against a bare forward pass over inputs that are ready."""
    import numpy as np
    import torch

    from sao.benchmark import measure as measuring
    from sao.data.dataset import Images, Vectors
    from sao.evaluation.extract import extract

    count, draws = 8 * len(inputs), np.random.default_rng(0)
    if len(shape) == 3:
        samples = Images(draws.integers(0, 256, (count, *shape[1:], shape[0]), dtype=np.uint8))
    else:
        samples = Vectors(draws.normal(size=(count, *shape)).astype(np.float32))
    ready = samples.inputs(slice(None))

    @torch.no_grad()
    def bare(turn: int) -> None:
        for part in ready.split(256):
            method.features(part)

    path, forward = measuring.in_turns([lambda turn: extract(method.features, samples, inputs.device), bare], steps)
    return {"images_per_second": count / path.median, "share_of_bare_forward": forward.median / path.median}


def for_data(config: "Config", by_hand: dict[str, str] | None = None) -> "tuple[Config, tuple[int, ...], int]":
    """The shape of a sample and how many there are; of own files, whose options are then chosen as `sao train` does."""
    from sao.cli.pricing import KNOWN

    source = config.data.source
    if source == "spirals":
        return config, *SPIRALS
    known = {"digits": DIGITS, **KNOWN}
    if source in known and by_hand is None:
        samples, size, channels, *_ = known[source]
        size = config.data.size or size
        return config, (channels, size, size), samples
    from sao.config.auto import choose_options
    from sao.training.run_data import open_config_data

    train = open_config_data(config).dataset.train
    if by_hand is not None:
        config, _ = choose_options(config, train, by_hand.keys())
    return config, tuple(train.shape), len(train)


def _as_text(m: dict[str, Any]) -> str:
    seconds = m["seconds"]
    lines = [
        f"{m['preset']}, batch {m['batch']}, {m['threads']} threads, torch {m['torch']}, {m['processor']}, {m['steps']} steps",
        f"step         {seconds['median']:.3f} s median ({seconds['fastest']:.3f} to {seconds['slowest']:.3f}), "
        f"{m['images_per_second']:.1f} images/s",
        f"memory       {m['peak_gb']:.2f} GB peak",
        f"arithmetic   {m['tflop']:.4f} TFLOP a step",
    ]
    if (literal := m.get("literal")) is not None:
        lines.append(
            f"literal      {literal['seconds']['median']:.3f} s, {literal['peak_gb']:.2f} GB: "
            f"ours is {m['times_as_fast_as_literal']:.2f} times as fast with {m['memory_of_literal']:.2f} of the memory"
        )
        if literal["without"]:
            chosen = ", ".join(f"{name} {value}" for name, value in literal["without"].items())
            lines.append(f"             the literal step is the paper's; ours is shorter by {chosen}")
    elif "literal" in m:
        lines.append("literal      none: it is there for structural with a penalty and one power iteration")
    if "other" in m:
        other = m["other"]
        lines.append(
            f"{other['name']}: {other['seconds']['median']:.3f} s for a batch of {other['batch']}, "
            f"{other['images_per_second']:.1f} images/s; {m['times_as_fast_as_other']:.2f} times as many here"
        )
    if "uncompiled" in m:
        plain = m["uncompiled"]["seconds"]["median"]
        lines.append(
            f"uncompiled   {plain:.3f} s: the compiled step is {plain / seconds['median']:.2f} times as fast; "
            f"the first one took {m['uncompiled']['first_compiled_step']:.0f} s"
        )
    if "share_of_ceiling" in m:
        best = max(m["ceiling_gflops"], key=m["ceiling_gflops"].get)
        lines.append(
            f"ceiling      {m['ceiling_gflops'][best]:.0f} GFLOP/s ({best}): "
            f"the fastest step reaches {100 * m['share_of_ceiling']:.0f} % of it"
        )
    embedding = m["embedding"]
    lines.append(
        f"embedding    {embedding['images_per_second']:.0f} images/s, "
        f"{100 * embedding['share_of_bare_forward']:.0f} % of a bare forward pass"
    )
    total = sum(m["phases"].values())
    lines += [f"  {name:24}{spent:8.3f} s {100 * spent / total:5.1f} %" for name, spent in m["phases"].items()]
    return "\n".join(lines)
