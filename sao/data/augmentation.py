"""Random views of images: parameters of their own for each sample, drawn for its row of the global batch on its device."""

import math
from typing import Annotated, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from sao import distributed, randomness
from sao.config.types import Fraction, Int, NonNegativeFloat, Probability, Strict
from sao.data import transforms

JITTERED = 0.8  # probability that the colours of an image are changed at all
BLUR_SIGMA = (0.1, 2.0)  # pixels
RATIOS = (3 / 4, 4 / 3)  # width over height of a crop
ATTEMPTS = 10  # windows that are drawn for a crop; the first that fits into the image is taken

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
            images = transforms.jitter(images, *jitter_parameters(draws["jitter"], self.jitter))
        if self.grey > 0 and colour:
            images = transforms.grey(images, draws["grey"][:, 0] < self.grey)
        if self.blur > 0:
            low, high = BLUR_SIGMA
            chosen, sigma = draws["blur"].unbind(1)
            images = transforms.blur(images, low + (high - low) * sigma, chosen < self.blur)
        if self.solarise > 0:
            images = transforms.solarise(images, draws["solarise"][:, 0] < self.solarise)
        if self.flip:
            images = transforms.flip(images, draws["flip"][:, 0] < 0.5)
        return images

    def _cropped(self, images: Tensor, draws: Tensor) -> Tensor:
        if self.crop is None:
            return images
        height, width = images.shape[2:]
        return transforms.crop(images, windows(draws, (self.crop, 1.0), height, width), (height, width))


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
        return transforms.crop(images, chosen, (self.size, self.size))


def windows(draws: Tensor, shares: tuple[float, float], height: int, width: int) -> Tensor:
    """(n, 4), as top, left, height and width of random windows with a share of the area; the whole image where none fits."""
    areas, ratios, places = draws.split([ATTEMPTS, ATTEMPTS, 2], dim=1)
    areas = height * width * (shares[0] + (shares[1] - shares[0]) * areas)
    low, high = (math.log(ratio) for ratio in RATIOS)
    ratios = (low + (high - low) * ratios).exp()
    heights, widths = (areas / ratios).sqrt().round(), (areas * ratios).sqrt().round()
    fits = (heights >= 1) & (heights <= height) & (widths >= 1) & (widths <= width)
    first = fits.int().argmax(1, keepdim=True)
    fit = fits.any(1)
    tall = torch.where(fit, heights.gather(1, first)[:, 0], height)
    wide = torch.where(fit, widths.gather(1, first)[:, 0], width)
    top, left = (places[:, 0] * (height - tall + 1)).floor(), (places[:, 1] * (width - wide + 1)).floor()
    return torch.stack([top, left, tall, wide], dim=1)


def jitter_parameters(draws: Tensor, strengths: tuple[float, float, float, float]) -> tuple[Tensor, Tensor, Tensor]:
    """Factors and turn of the hue, the order, and which samples are changed at all."""
    chosen, order, drawn = draws.split([1, 4, 4], dim=1)
    lowest = [*(max(0.0, 1 - strength) for strength in strengths[:3]), -strengths[3]]
    highest = [*(1 + strength for strength in strengths[:3]), strengths[3]]
    factors = [low + (high - low) * u for low, high, u in zip(lowest, highest, drawn.unbind(1), strict=True)]
    return torch.stack(factors, dim=1), order, chosen[:, 0] < JITTERED
