"""sao export: the encoder of a run, or its generator, as a file for those who do not have sao."""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sao import __version__
from sao.cli.flags import add_feature, add_overwrite, add_run
from sao.cli.output import warn, writable, writable_folder
from sao.errors import InputError

if TYPE_CHECKING:  # torch comes with it
    from sao.training.model import Model

CHECKED = 64  # samples on which the file must agree with the run
SECONDS = 1.0  # for which each is timed


def add_options(parser: ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("-o", "--output", required=True, help="NAME.onnx, NAME.pt2 (torch.export), or a folder")
    parser.add_argument("--generator", action="store_true", help="the generator instead of the encoder")
    add_feature(parser, "backbone")
    parser.add_argument("--any-size", action="store_true", help="take uint8 images of any size, and prepare them in the file")
    parser.add_argument("--data", help="what to check the file on (default: held-out samples of the run)")
    add_overwrite(parser)


def run(arguments: Namespace) -> None:
    target, feature = Path(arguments.output), arguments.feature
    from sao import export

    export.check_can_write(target, arguments.any_size)
    if arguments.any_size and arguments.generator:
        raise InputError("--any-size is for the encoder: a generator takes no images")
    if target.suffix == "":
        writable_folder(target, arguments.overwrite, export.PLAIN_FILES)
    else:
        writable(target, arguments.overwrite)
    import sao

    model = sao.load(arguments.run, device="cpu", report=warn)
    if arguments.generator:
        whole, inputs = export.whole_generator(model), _latents(model)
        said = f"{CHECKED} latents"
    else:
        whole = export.whole_encoder(model, feature, arguments.any_size)
        inputs, said = _samples(model, arguments.run, arguments.data)
    what = "generator" if arguments.generator else "encoder"
    described = f"The {what} of a {model.config.method.name} run at step {model.step}, written by sao {__version__}."
    if whole.preparation:
        described += f"\n\nHow an image file becomes its input: {whole.preparation}."
    given = export.in_several_sizes(inputs) if arguments.any_size else inputs
    difference, function = export.write(target, whole, given, described, arguments.overwrite)
    sizes = "hw" if arguments.any_size else ()
    form = "x".join(["n", *sizes, *map(str, whole.example.shape[1 + len(sizes) :])])
    print(f"{whole.kind} of step {model.step} in {target}: {whole.input_name} ({form}, {inputs.dtype}) → {whole.output_name}")
    said += f" in {len(given)} sizes" if arguments.any_size else ""
    print(f"agrees with the run on {said}: the largest difference is {difference:.1e} of the largest value")
    if whole.preparation:
        print(f"{'it prepares images' if arguments.any_size else 'prepare images'} so: {whole.preparation}")
    place = arguments.data or (None if model.facts.place is None else model.facts.place[0])
    if arguments.any_size and place is not None and (found := export.against_sao(model, feature, whole, function, place)):
        print(found)
    there, here = _speed(function, inputs), _speed(whole.expected, inputs)
    print(f"speed here: the file {there:.0f} samples/s, sao {here:.0f} samples/s")


def _latents(model: "Model") -> np.ndarray:
    import torch

    from sao.core.random import generator

    return torch.randn(CHECKED, *model.latent_shape, generator=generator(0, "samples")).numpy()


def _samples(model: "Model", given: str, data: str | None) -> tuple[np.ndarray, str]:
    """Held-out samples of the run, or samples of other data, as `Model.embed` takes them; else random ones."""
    from sao.cli.inputs import open_for
    from sao.data.dataset import Images
    from sao.models import run_folder
    from sao.training.run_data import open_run_data
    from sao.training.run_folder import Run

    run = Run.open(run_folder(given))
    if data is not None:
        samples = open_for(model, data)
    elif run.is_copy:
        return _random(model), f"{CHECKED} random samples"
    else:
        try:
            samples = open_run_data(run)[1].dataset.test
        except InputError as error:
            warn(f"checked on random samples instead of the run's own: {error}")
            return _random(model), f"{CHECKED} random samples"
    rows = np.arange(min(CHECKED, len(samples)))
    if isinstance(samples, Images):
        if model.pixel_range is not None:
            return model.pixel_range.values(samples.inputs(rows)).numpy(), f"{len(rows)} images"
        return np.ascontiguousarray(samples.pixels[rows]), f"{len(rows)} images"
    return _original(model, np.asarray(samples.rows[rows])), f"{len(rows)} rows"


def _original(model: "Model", rows: np.ndarray) -> np.ndarray:
    """Rows as they were before the run's standardiser, which left out columns that never varied."""
    from sao.data.dataset import Standardiser

    if model.facts.standardiser is None:
        return rows.astype(np.float64)
    standardiser = Standardiser.from_dict(model.facts.standardiser)
    whole = np.zeros((len(rows), standardiser.width))
    whole[:, list(standardiser.kept)] = standardiser.invert(rows)
    return whole


def _random(model: "Model") -> np.ndarray:
    draws, shape = np.random.default_rng(0), model.facts.shape
    if len(shape) == 3:
        pixels = draws.integers(0, 256, (CHECKED, *shape[1:], shape[0]), dtype=np.uint8)
        if (known := model.pixel_range) is None:
            return pixels
        return (pixels / 255 * np.array(known.widths) + np.array(known.low)).astype(np.float32)
    return _original(model, draws.normal(size=(CHECKED, *shape)).astype(np.float32))


def _speed(function: Callable[[np.ndarray], np.ndarray], inputs: np.ndarray) -> float:
    """Samples a second."""
    function(inputs)
    started, done = time.perf_counter(), 0
    while (seconds := time.perf_counter() - started) < SECONDS:
        function(inputs)
        done += len(inputs)
    return done / seconds
