"""Random views of images: parameters of their own for each sample, drawn for its row of the global batch on its device.

The changes themselves are plain operators on whole batches (n, c, h, w) in [0, 1] with parameters (n,) or (n, k): nothing is
selected by a mask or read back, so that any device can make them. The formulas are those of torchvision, by which the
published baselines were trained.
"""

import math
from typing import Annotated, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from sao.config.types import Fraction, Int, NonNegativeFloat, Probability, Strict
from sao.core import distributed
from sao.core import random as randomness
from sao.data.dataset import Scaling, pixels_to_inputs
from sao.errors import InputError

JITTERED = 0.8  # probability that the colours of an image are changed at all
BLUR_SIGMA = (0.1, 2.0)  # pixels
RATIOS = (3 / 4, 4 / 3)  # width over height of a crop
ATTEMPTS = 10  # windows that are drawn for a crop; the first that fits into the image is taken
GREY = (0.299, 0.587, 0.114)  # how much red, green and blue add to brightness
BLUR_REACH = 6  # pixels: three standard deviations of the widest blur

# How many numbers each change draws for an image. All are drawn, so that one change does not depend on which others are made.
_DRAWS = {"crop": 2 * ATTEMPTS + 2, "jitter": 9, "grey": 1, "blur": 2, "solarise": 1, "flip": 1}


Jitter = tuple[NonNegativeFloat, NonNegativeFloat, NonNegativeFloat, Annotated[NonNegativeFloat, Field(le=0.5)]]


class Augmentation(Strict):
    """What may be changed in an image. The default changes nothing; vectors are never changed."""

    crop: Fraction | None = Field(
        default=None, description="smallest share of the area that a random crop keeps; null: no crops"
    )
    jitter: Jitter | None = Field(
        default=None, description="strength of brightness, contrast, saturation and hue, for example [0.8, 0.8, 0.8, 0.2]"
    )
    grey: Probability = Field(default=0.0, description="probability of a picture without colour")
    blur: Probability = Field(default=0.0, description="probability of a Gaussian blur")
    solarise: Probability = Field(default=0.0, description="probability that bright pixels are inverted")
    flip: bool = Field(default=False, description="mirror half of the images")

    def check_channels(self, channels: int, name: str) -> None:
        """Refuse what needs colours for images that have none: neither one channel nor three."""
        if channels in (1, 3):
            return
        changes = []
        if self.jitter is not None and (self.jitter[2] > 0 or self.jitter[3] > 0):
            changes.append(f"--{name}.jitter '[{self.jitter[0]:g},{self.jitter[1]:g},0,0]'")
        if self.grey > 0:
            changes.append(f"--{name}.grey 0")
        if changes:
            raise InputError(
                f"saturation, hue and grey of {name} need colours, and there are {channels} channels: set {' '.join(changes)}"
            )

    def __call__(self, images: Tensor, seed: int, purpose: str, step: int, global_batch: int) -> Tensor:
        """Augment this process's slice (n, c, h, w) in [-1, 1] of a global batch; vectors are returned as they are.

        Gradients pass through it.
        """
        if images.ndim != 4 or self == Augmentation():
            return images
        rows, widths = distributed.local_slice(global_batch), list(_DRAWS.values())
        drawn = randomness.uniform(seed, f"augmentation/{purpose}", step, rows, (sum(widths),), images.device)
        draws = dict(zip(_DRAWS, drawn.split(widths, dim=1), strict=True))
        return self._changed((images + 1) / 2, draws) * 2 - 1

    def _changed(self, images: Tensor, draws: dict[str, Tensor]) -> Tensor:
        """In the order in which the published baselines do it."""
        colour = images.shape[1] == 3
        images = self._cropped(images, draws["crop"])
        if self.jitter is not None:
            images = jitter(images, *jitter_parameters(draws["jitter"], self.jitter))
        if self.grey > 0 and colour:
            images = grey(images, draws["grey"][:, 0] < self.grey)
        if self.blur > 0:
            low, high = BLUR_SIGMA
            chosen, sigma = draws["blur"].unbind(1)
            images = blur(images, low + (high - low) * sigma, chosen < self.blur)
        if self.solarise > 0:
            images = solarise(images, draws["solarise"][:, 0] < self.solarise)
        if self.flip:
            images = flip(images, draws["flip"][:, 0] < 0.5)
        return images

    def _cropped(self, images: Tensor, draws: Tensor) -> Tensor:
        if self.crop is None:
            return images
        height, width = images.shape[2:]
        return crop(images, windows(draws, (self.crop, 1.0), height, width), (height, width))


class SmallAugmentation(Augmentation):
    """Of views that show a small part of an image at a smaller size; the defaults are those for 32x32 images."""

    crop: Fraction = Field(default=0.08, description="smallest share of the area that a random crop keeps")
    largest: Fraction = Field(default=0.5, description="largest share of the area that a random crop keeps")
    size: Annotated[Int, Field(ge=8, le=256)] = Field(default=18, description="pixels a side")
    jitter: Jitter | None = Field(
        default=(0.8, 0.8, 0.8, 0.2), description="strength of brightness, contrast, saturation and hue"
    )
    grey: Probability = Field(default=0.2, description="probability of a picture without colour")
    blur: Probability = Field(default=0.1, description="probability of a Gaussian blur")
    solarise: Probability = Field(default=0.1, description="probability that bright pixels are inverted")
    flip: bool = Field(default=True, description="mirror half of the images")

    @model_validator(mode="after")
    def _smallest_before_largest(self) -> Self:
        if self.crop > self.largest:
            raise ValueError(f"crop {self.crop} is larger than largest {self.largest}")
        return self

    def _cropped(self, images: Tensor, draws: Tensor) -> Tensor:
        chosen = windows(draws, (self.crop, self.largest), *images.shape[2:])
        return crop(images, chosen, (self.size, self.size))


def windows(draws: Tensor, shares: tuple[float, float], height: int, width: int) -> Tensor:
    """(n, 4), as top, left, height and width of random windows with a share of the area; the whole image where none fits."""
    areas, ratios, places = _drawn(draws, shares)
    areas = height * width * areas
    heights, widths = (areas / ratios).sqrt().round(), (areas * ratios).sqrt().round()
    fits = (heights >= 1) & (heights <= height) & (widths >= 1) & (widths <= width)
    tall, wide = _first_that_fits(fits, heights, height), _first_that_fits(fits, widths, width)
    top, left = (places[:, 0] * (height - tall + 1)).floor(), (places[:, 1] * (width - wide + 1)).floor()
    return torch.stack([top, left, tall, wide], dim=1)


def _drawn(draws: Tensor, shares: tuple[float, float]) -> tuple[Tensor, Tensor, Tensor]:
    """Share of the area and width over height of each attempt, and two numbers for its place."""
    areas, ratios, places = draws.split([ATTEMPTS, ATTEMPTS, 2], dim=1)
    low, high = (math.log(ratio) for ratio in RATIOS)
    return shares[0] + (shares[1] - shares[0]) * areas, (low + (high - low) * ratios).exp(), places


def _first_that_fits(fits: Tensor, lengths: Tensor, otherwise: Tensor | float) -> Tensor:
    first = fits.int().argmax(1, keepdim=True)
    return torch.where(fits.any(1), lengths.gather(1, first)[:, 0], otherwise)


def jitter_parameters(draws: Tensor, strengths: tuple[float, float, float, float]) -> tuple[Tensor, Tensor, Tensor]:
    """Factors and turn of the hue, the order, and which samples are changed at all."""
    chosen, order, drawn = draws.split([1, 4, 4], dim=1)
    lowest = [*(max(0.0, 1 - strength) for strength in strengths[:3]), -strengths[3]]
    highest = [*(1 + strength for strength in strengths[:3]), strengths[3]]
    factors = [low + (high - low) * u for low, high, u in zip(lowest, highest, drawn.unbind(1), strict=True)]
    return torch.stack(factors, dim=1), order, chosen[:, 0] < JITTERED


# --- crops of whole pictures ------------------------------------------------------------------------------------------


def random_crops(
    frames: Tensor,
    aspects: Tensor,
    share: float,
    size: tuple[int, int],
    seed: int,
    step: int,
    places: slice,
    scaling: Scaling | None = None,
) -> Tensor:
    """Float32 (n, c, *size) in [-1, 1] of frames (n, s, s, c); each keeps at least this share of its picture's area.

    Torchvision's RandomResizedCrop in the coordinates of each picture: frames are squashed to squares, so that all of them are
    one array, and the resampling that resizes a crop undoes that. A crop is a function of (seed, step) and of the place of its
    row in the global batch.
    """
    draws = randomness.uniform(seed, "crop", step, places, (2 * ATTEMPTS + 2,), frames.device)
    if scaling is None:
        images = frames.permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format).div_(255)
    else:
        images = (pixels_to_inputs(frames, scaling) + 1) / 2
    windows = frame_windows(draws, share, aspects) * frames.shape[1]
    return crop(images, windows, size).mul_(2).sub_(1)


def frame_windows(draws: Tensor, share: float, aspects: Tensor) -> Tensor:
    """(n, 4): top, left, height and width of random windows as parts of pictures with these widths over heights.

    Where no attempt fits into a picture, the largest window of an allowed shape is taken from its middle.
    """
    areas, ratios, places = _drawn(draws, (share, 1.0))
    ratios = ratios / aspects[:, None]  # in a picture that is a square
    heights, widths = (areas / ratios).sqrt(), (areas * ratios).sqrt()
    fits = (heights <= 1) & (widths <= 1)
    tall = _first_that_fits(fits, heights, (aspects / RATIOS[0]).clamp(max=1))
    wide = _first_that_fits(fits, widths, (RATIOS[1] / aspects).clamp(max=1))
    places = torch.where(fits.any(1)[:, None], places, 0.5)
    top, left = places[:, 0] * (1 - tall), places[:, 1] * (1 - wide)
    return torch.stack([top, left, tall, wide], dim=1)


# --- the changes ------------------------------------------------------------------------------------------------------


def flip(images: Tensor, chosen: Tensor) -> Tensor:
    """The mirror image of those samples that are chosen."""
    return torch.where(_each(chosen), images.flip(3), images)


def solarise(images: Tensor, chosen: Tensor) -> Tensor:
    """Pixels in the upper half of the range are inverted."""
    return torch.where(_each(chosen) & (images >= 0.5), 1 - images, images)


# --- crops and blurs: rows and columns are mixed by a matrix of each sample ---------------------------------------------------


def crop(images: Tensor, windows: Tensor, size: tuple[int, int]) -> Tensor:
    """Windows (n, 4), as top, left, height and width in pixels, resized bicubically, with smoothing where they shrink."""
    top, left, height, width = windows.to(images.dtype).unbind(1)
    rows = _resampling(top, height, images.shape[2], size[0])
    columns = _resampling(left, width, images.shape[3], size[1])
    return _mixed(images, rows, columns).clamp_(0, 1)  # a bicubic curve overshoots


def blur(images: Tensor, sigma: Tensor, chosen: Tensor) -> Tensor:
    """A Gaussian of this standard deviation in pixels; images go on as in a mirror behind their border."""
    sigma = sigma.to(images.dtype)
    rows, columns = (_blurring(sigma, size) for size in images.shape[2:])
    return torch.where(_each(chosen), _mixed(images, rows, columns), images)


def _mixed(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """rows @ image @ columnsᵀ for each sample and channel."""
    return rows[:, None] @ (images @ columns.mT[:, None])


def _resampling(start: Tensor, length: Tensor, size: int, out: int) -> Tensor:
    """Weights (n, out, size) of a line's pixels in each pixel of its stretch of a length that begins at `start`."""
    start, length = start[:, None, None], length[:, None, None]
    pixels = torch.arange(size, dtype=start.dtype, device=start.device) - start
    scale = length / out
    centres = (torch.arange(out, dtype=start.dtype, device=start.device)[:, None] + 0.5) * scale
    weights = _bicubic((pixels + 0.5 - centres) / scale.clamp(min=1))
    inside = (pixels + 0.5 >= 0) & (pixels + 0.5 <= length)  # by its centre: a window may begin within a pixel
    weights = torch.where(inside, weights, 0)
    return weights / weights.sum(2, keepdim=True)


def _bicubic(x: Tensor) -> Tensor:
    """Keys's curve with a = -1/2."""
    x = x.abs()
    near, far = (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, 0))


def _blurring(sigma: Tensor, size: int) -> Tensor:
    """Weights (n, size, size) of a line's pixels in each of them."""
    reach = min(BLUR_REACH, size - 1)
    taps = torch.arange(-reach, reach + 1, device=sigma.device)
    weights = (-0.5 * (taps / sigma[:, None]).square()).softmax(1)
    pixels = torch.arange(size, device=sigma.device)
    sources = (pixels[:, None] + taps).abs()
    sources = size - 1 - (size - 1 - sources).abs()  # (size, taps)
    is_source = (sources[:, :, None] == pixels).to(sigma.dtype)
    return torch.einsum("nt,itj->nij", weights, is_source)


# --- colours -------------------------------------------------------------------------------------------------------------


def grey(images: Tensor, chosen: Tensor) -> Tensor:
    """Brightness alone in all three channels."""
    return torch.where(_each(chosen), _brightness(images), images)


def jitter(images: Tensor, factors: Tensor, order: Tensor, chosen: Tensor) -> Tensor:
    """Change brightness, contrast and saturation by factors and turn the hue, in an order of its own for each sample.

    `factors` (n, 4) has the three and the turn as a share of the circle; `order` (n, 4) has numbers, and the smallest comes
    first. Only three channels have saturation and hue.
    """
    colour = images.shape[1] == 3
    blends = 3 if colour else 2
    factors = factors.to(images.dtype)
    sequence = order[:, :blends].argsort(1)
    if not colour:
        return torch.where(_each(chosen), _blended(images, sequence, factors), images)
    # The turn of the hue is the dearest: it is made once, between the changes that come before it and those that come after.
    before = (order[:, :3] < order[:, 3:]).to(images.dtype)
    changed = _blended(images, sequence, 1 + before * (factors[:, :3] - 1))
    changed = _turned(changed, factors[:, 3])
    changed = _blended(changed, sequence, 1 + (1 - before) * (factors[:, :3] - 1))
    return torch.where(_each(chosen), changed, images)


def _blended(images: Tensor, sequence: Tensor, factors: Tensor) -> Tensor:
    """Away from black (0), the image's mean brightness (1) or its own brightness (2) by a factor, one after the other."""
    for which in sequence.unbind(1):
        brightness = _brightness(images)
        mean = brightness.mean((2, 3), keepdim=True)
        towards = torch.where(_each(which == 0), 0, torch.where(_each(which == 1), mean, brightness))
        factor = factors.gather(1, which[:, None])
        images = torch.lerp(towards, images, _each(factor[:, 0])).clamp_(0, 1)
    return images


def _turned(images: Tensor, turn: Tensor) -> Tensor:
    """Hue, saturation and value with another hue, as colours again."""
    red, green, blue = images.unbind(1)
    value = images.amax(1)
    chroma = value - images.amin(1)
    divisor = torch.where(chroma > 0, chroma, 1)
    sixths = torch.where(green == value, 2 + (blue - red) / divisor, 4 + (red - green) / divisor)
    sixths = torch.where(red == value, (green - blue) / divisor, sixths) + 6 * turn[:, None, None]
    places = [(sixths + offset).remainder(6) for offset in (5, 3, 1)]
    return torch.stack([value - chroma * torch.minimum(place, 4 - place).clamp(0, 1) for place in places], dim=1)


def _brightness(images: Tensor) -> Tensor:
    """(n, 1, h, w): of colours as the eye weighs them, of other channels their mean."""
    if images.shape[1] != 3:
        return images if images.shape[1] == 1 else images.mean(1, keepdim=True)
    red, green, blue = images.split(1, dim=1)
    return GREY[0] * red + GREY[1] * green + GREY[2] * blue


def _each(values: Tensor) -> Tensor:
    """(n,) → (n, 1, 1, 1)."""
    return values[:, None, None, None]
