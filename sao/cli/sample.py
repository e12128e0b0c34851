"""sao sample: generated images or vectors, the same for the same seed."""

import math
from argparse import ArgumentParser, Namespace
from pathlib import Path

import numpy as np

from sao.cli.flags import add_overwrite, add_run, add_seed
from sao.cli.output import warn, writable, writable_folder
from sao.errors import InputError
from sao.runtime.files import written, written_folder

PICTURES = r"\d{6,}\.png"
STEPS = 10  # from one end of an interpolation to the other


def add_options(parser: ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("-n", type=int, default=64, help="how many, at least 1 (default: 64)")
    parser.add_argument("-o", "--output", required=True, help="a picture (.png), an array (.npy) or a folder of pictures")
    add_seed(parser)
    parser.add_argument("--interpolate", action="store_true", help="rows that go from one latent to another")
    add_overwrite(parser)


def run(arguments: Namespace) -> None:
    target = Path(arguments.output)
    if arguments.n < 1:
        raise InputError(f"-n must be at least 1, got {arguments.n}")
    as_folder = target.suffix == ""
    if as_folder:
        writable_folder(target, arguments.overwrite, PICTURES)
    else:
        writable(target, arguments.overwrite)
    import sao

    model = sao.load(arguments.run, report=warn)
    images = len(model.facts.shape) == 3
    allowed = (".png", ".npy") if images else (".npy", ".csv")
    if target.suffix not in (*allowed, *([""] if images else [])):
        kinds = f"{allowed[0]}, {allowed[1]}" + (", or a folder" if images else "")
        raise InputError(f"{target}: samples of this run can be written as {kinds}")
    n, seed = arguments.n, arguments.seed
    values = _interpolated(model, n, seed) if arguments.interpolate else model.sample(n, seed)
    if as_folder:
        from PIL import Image

        from sao.training.pictures import as_shown

        with written_folder(target, replace=arguments.overwrite) as temporary:
            for index, image in enumerate(as_shown(model.bytes_of(values))):
                Image.fromarray(image if image.shape[2] == 3 else image[..., 0]).save(temporary / f"{index:06d}.png")
    else:
        shown = model.bytes_of(values) if target.suffix == ".png" else values
        with written(target) as temporary:
            _write(temporary, shown, columns=STEPS if arguments.interpolate else None)
    print(f"{len(values)} samples of step {model.step}, seed {seed}, in {target}")


def _write(path: Path, values: np.ndarray, columns: int | None) -> None:
    match path.suffix:
        case ".npy":
            np.save(path, values, allow_pickle=False)
        case ".csv":
            np.savetxt(path, values, delimiter=",", fmt="%.9g")
        case _:
            from sao.training.pictures import grid

            grid(values, columns).save(path)


def _interpolated(model, lines: int, seed: int) -> np.ndarray:
    """`lines` rows of STEPS samples along great circles, where latents are as long as those that the generator knows."""
    import torch

    from sao.core.random import generator

    shape = model.latent_shape
    first, last = torch.randn(2, lines, math.prod(shape), generator=generator(seed, "samples"))
    share = torch.linspace(0, 1, STEPS)[None, :, None]
    angle = torch.arccos(torch.cosine_similarity(first, last).clamp(-1 + 1e-6, 1 - 1e-6))[:, None, None]
    weights = torch.sin((1 - share) * angle) / torch.sin(angle), torch.sin(share * angle) / torch.sin(angle)
    latents = weights[0] * first[:, None] + weights[1] * last[:, None]
    return model.decode(latents.reshape(-1, *shape))
