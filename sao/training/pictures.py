"""Grids of generated samples, and of any images."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from sao.core.agreement import check_finite
from sao.core.random import generator
from sao.data.dataset import Images, Samples
from sao.evaluation.extract import BROKEN
from sao.methods import Generative, Method, generative
from sao.runtime.files import written

if TYPE_CHECKING:
    import PIL.Image

MADE_AT_ONCE = 2**18  # pixels
DRAWN = 64  # samples of a picture
TITLE_WIDTH = 120  # pixels beside a row of a grid


def decoded(maker: Generative, latents: Tensor, shape: Sequence[int], device: torch.device) -> Tensor:
    """What a generator makes of latents, few at a time where they are large (33 MB an image at 128x128), and finite."""
    most = MADE_AT_ONCE // math.prod(shape[1:])  # vectors are as small as one pixel
    found = torch.cat([maker.decode(part.to(device)) for part in latents.split(max(1, min(256, most)))])
    check_finite("the generated values", found, BROKEN)
    return found


def save_samples(path: Path, method: Method, like: Samples, seed: int, inside: Path | None = None) -> None:
    """A picture of samples from fixed latents, so that pictures of different steps can be compared, where any are made."""
    maker = generative(method)
    if maker is None:
        return
    latents = torch.randn(DRAWN, *maker.latent_shape, generator=generator(seed, "samples"))
    drawn = decoded(maker, latents, like.shape, next(method.parameters()).device)
    with written(path, inside) as temporary:
        if isinstance(like, Images):
            grid(to_pixels(drawn)).save(temporary)
        else:
            save_scatter(temporary, drawn.cpu().numpy(), like.inputs(slice(0, 4 * DRAWN)).numpy())


def to_pixels(inputs: Tensor) -> np.ndarray:
    return pixels_of(inputs).cpu().numpy()


def pixels_of(inputs: Tensor) -> Tensor:
    """(n, c, h, w) in [-1, 1] → uint8 (n, h, w, c)."""
    return ((inputs + 1) * 127.5).round().clamp(0, 255).byte().permute(0, 2, 3, 1)


def as_shown(pixels: np.ndarray, channels: Sequence[int] | None = None) -> np.ndarray:
    """Images (…, c) in three channels, the chosen ones (from 0), or the first three; in one, grey, where there are fewer."""
    if channels is not None:
        return pixels[..., list(channels)]
    return pixels[..., :3] if pixels.shape[-1] >= 3 else pixels[..., :1]


def grid(
    pixels: np.ndarray, columns: int | None = None, smallest: int = 32, titles: Sequence[str] | None = None
) -> "PIL.Image.Image":
    """Images (n, h, w, c) in a grid with thin gaps, enlarged to at least `smallest` pixels; `titles` stand left of the rows."""
    from PIL import Image, ImageDraw

    pixels = as_shown(pixels)
    n, height, width, _ = pixels.shape
    columns = columns or int(np.ceil(np.sqrt(n)))
    lines = -(-n // columns)
    factor = max(1, -(-smallest // height))
    pixels = pixels.repeat(factor, axis=1).repeat(factor, axis=2)
    height, width, gap = height * factor, width * factor, 2
    margin = TITLE_WIDTH if titles is not None else 0
    canvas = np.full((lines * (height + gap) + gap, margin + columns * (width + gap) + gap, 3), 255, np.uint8)
    for index, image in enumerate(pixels):
        top, left = gap + index // columns * (height + gap), margin + gap + index % columns * (width + gap)
        canvas[top : top + height, left : left + width] = image
    picture = Image.fromarray(canvas)
    for line, title in enumerate(titles or ()):
        middle = gap + line * (height + gap) + height // 2
        ImageDraw.Draw(picture).text((4, middle), title, fill="black", anchor="lm")
    return picture


def save_scatter(path: Path, drawn: np.ndarray, real: np.ndarray) -> None:
    """The first two coordinates of generated vectors over real ones."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4, 4), layout="constrained")
    axes = figure.subplots()
    second = 1 if real.shape[1] > 1 else 0
    axes.scatter(real[:, 0], real[:, second], s=4, color="0.75", label="real")
    axes.scatter(drawn[:, 0], drawn[:, second], s=6, color="C3", label="generated")
    axes.legend(loc="upper right", fontsize=8)
    figure.savefig(path, dpi=120)
