"""sao ship: a small copy of a run to give away, with what embed, cluster and sample read, and a model card."""

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sao.cli.flags import add_run
from sao.cli.output import warn
from sao.errors import InputError
from sao.runtime.files import written_folder

if TYPE_CHECKING:  # torch comes with it
    from sao.methods import Use
    from sao.training.model import Model

CHECKED = 64  # samples on which the copy must agree with the run
HALF_AGREES = 0.02  # of the largest value, where numbers are kept in half of the bits


def add_options(parser: ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("-o", "--output", required=True, help="a new folder; all but resume and report then take it for RUN")
    parser.add_argument("--half", action="store_true", help="keep weights in 16 bits, if features and samples stay the same")
    parser.add_argument("--licence", default="not stated", help="of the weights, for the model card (default: not stated)")


def run(arguments: Namespace) -> None:
    target = Path(arguments.output)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{target} exists and is not an empty folder: choose another -o")
    import sao
    from sao.export.card import card_of, needs
    from sao.export.ship import check_no_paths, shared_config, write_copy
    from sao.models import run_folder
    from sao.training.run_folder import Run

    run = Run.open(run_folder(arguments.run, warn))
    if run.is_copy:
        raise InputError(f"{run.folder} is such a copy already: copy the folder")
    model = sao.load(run.folder, device="cpu", report=warn)
    config = shared_config(model.config, model.facts.name)
    check_no_paths(config)
    partial = model.partial
    assert partial is not None
    card = card_of(run, model, config, arguments.licence)
    facts = replace(model.facts, place=None, glimpse=None)
    try:
        with written_folder(target) as temporary:
            kept = write_copy(temporary, partial, config, facts, model.step, arguments.half, card)
            difference = _checked(model, sao.load(temporary, device="cpu", report=warn), kept, arguments.half)
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror}; choose another -o") from None
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    print(f"step {model.step} of {run.folder} for {', '.join(kept)} in {target}, {size / 1e6:.2f} MB")
    print(f"agrees with the run on {CHECKED} samples: the largest difference is {difference:.1e} of the largest value")
    for line in needs(config):
        print(f"needs {line}")
    print(f"look at       {target / 'README.md'}")


def _checked(model: "Model", copy: "Model", kept: "list[Use]", half: bool) -> float:
    """The largest difference in anything that is kept, as a share of the largest value."""
    from sao.core.agreement import difference

    worst = 0.0
    for use in kept:
        ours = _used(model, use)  # refuses weights that are broken before they are copied
        try:
            worst = max(worst, difference(ours, _used(copy, use)))
        except InputError:  # numbers beyond what half of the bits can hold
            worst = float("inf")
    if worst > (HALF_AGREES if half else 0):
        advice = ": leave --half out" if half else ""
        raise InputError(f"the copy differs from the run by {worst:.1e} of the largest value, so it was not kept{advice}")
    return worst


def _used(model: "Model", use: "Use") -> np.ndarray:
    """What a use of a model makes of fixed draws."""
    import torch

    from sao.core.random import generator
    from sao.data.dataset import Images, PixelRange, Vectors

    draws = generator(0, "samples")
    if use == "decode":
        return model.bytes_of(model.decode(torch.randn(CHECKED, *model.latent_shape, generator=draws)))
    if len(model.facts.shape) == 1:
        return model.embed(Vectors((torch.rand(CHECKED, *model.facts.shape, generator=draws) * 2 - 1).numpy()), use)
    channels, height, width = model.facts.shape
    pixels = torch.randint(256, (CHECKED, height, width, channels), generator=draws).byte().numpy()
    if model.pixel_range is None:
        return model.embed(Images(pixels), use)
    levels = PixelRange.everywhere(0, 255, channels)
    return model.embed(Images(pixels.astype(np.uint16), levels=levels), use)
