"""Images of any size inside the graph: cut, resized and rounded as Pillow does it for `sao`, in operators of every format.

Pillow resizes the columns, rounds to bytes, resizes the rows and rounds again. Each pass is a product with a matrix of filter
weights, which is computed from the size of the image in the graph itself.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from sao.config import Config
from sao.data.dataset import PixelRange
from sao.data.files.decode import PAD_VALUE, Recipe


def preparation(config: Config, shape: tuple[int, ...], pixel_range: PixelRange | None = None) -> str:
    """How an image file becomes an input of the network, exactly enough to do it again."""
    channels, size, _ = shape
    if pixel_range is not None:
        values = "their own values, clipped to the range of the run, of which the network sees -1 to 1"
        return f"{channels} channel{'' if channels == 1 else 's'} of {size}x{size} pixels in {values} ({pixel_range.said()})"
    if channels not in (1, 3):
        return f"{channels} channels of {size}x{size} pixels as bytes, then x / 127.5 - 1"
    recipe = Recipe(size, channels, config.data.fit)
    square = {
        "crop": f"the centre square, resized to {size}x{size} by Pillow's LANCZOS filter",
        "pad": f"the whole image, resized by Pillow's LANCZOS filter to {size} on its longer side, "
        f"in the middle of a square of {PAD_VALUE}",
        "centre": f"resized by Pillow's BICUBIC filter to {recipe.short_side} on its shorter side, of which the centre "
        f"{size}x{size}",
    }[recipe.fit]
    colours = "grey (Pillow's L)" if channels == 1 else "RGB"
    return f"upright, transparency on white, {square}; {colours} as bytes, then x / 127.5 - 1"


class OfAnySize(nn.Module):
    """uint8 images (n, h, w, c) of any one size → what the network makes of them."""

    def __init__(self, network: nn.Module, recipe: Recipe) -> None:
        super().__init__()
        self.network, self.recipe = network, recipe

    def forward(self, images: Tensor) -> Tensor:
        return self.network(self.prepared(images) / 127.5 - 1)

    def prepared(self, images: Tensor) -> Tensor:
        """The recipe's squares: whole numbers as float32 (n, c, size, size)."""
        pixels = images.permute(0, 3, 1, 2).to(torch.float32)
        down, across = (torch.arange(images.shape[axis], dtype=torch.float32, device=images.device) for axis in (1, 2))
        sides = down[-1] + 1, across[-1] + 1  # as tensors: they are known when the graph runs
        weights = {"crop": self._crop, "pad": self._pad, "centre": self._centre}[self.recipe.fit]
        vertical, horizontal = weights(down, sides[0], *sides), weights(across, sides[1], *sides)
        found = _bytes(vertical @ _bytes(pixels @ horizontal.mT))
        if self.recipe.fit != "pad":
            return found
        inside = (vertical.sum(1)[:, None] * horizontal.sum(1)) > 0.5  # a row of weights sums to 1, or to 0 beside the image
        return torch.where(inside, found, float(PAD_VALUE))

    def _crop(self, places: Tensor, side: Tensor, *sides: Tensor) -> Tensor:
        square = torch.minimum(*sides)
        middles = (side - square) / 2 + (self._outputs(places) + 0.5) * square / self.recipe.size
        return _weights(places, side, middles, square / self.recipe.size, _lanczos, 3)

    def _pad(self, places: Tensor, side: Tensor, *sides: Tensor) -> Tensor:
        inner = torch.round(side * (self.recipe.size / torch.maximum(*sides))).clamp(min=1)
        outputs = self._outputs(places) - torch.floor((self.recipe.size - inner) / 2)
        weights = _weights(places, side, (outputs + 0.5) * side / inner, side / inner, _lanczos, 3)
        return weights * ((outputs >= 0) & (outputs < inner)).to(weights.dtype)[:, None]

    def _centre(self, places: Tensor, side: Tensor, *sides: Tensor) -> Tensor:
        # A whole division, safe from rounding.
        inner = torch.floor((self.recipe.short_side * side + 0.5) / torch.minimum(*sides))
        outputs = self._outputs(places) + torch.round((inner - self.recipe.size) / 2)
        return _weights(places, side, (outputs + 0.5) * side / inner, side / inner, _cubic, 2)

    def _outputs(self, places: Tensor) -> Tensor:
        return torch.arange(self.recipe.size, dtype=places.dtype, device=places.device)


def _weights(
    places: Tensor, side: Tensor, middles: Tensor, scale: Tensor, kernel: Callable[[Tensor], Tensor], support: int
) -> Tensor:
    """(size, side): how much each input pixel counts in each output pixel, as in Pillow's precompute_coeffs."""
    stretch = scale.clamp(min=1)
    reach, middles = support * stretch, middles[:, None]
    inside = (places >= torch.floor(middles - reach + 0.5)) & (places < torch.floor(middles + reach + 0.5))
    weights = kernel((places - middles + 0.5) / stretch) * inside.to(places.dtype)
    return weights / weights.sum(1, keepdim=True)


def _lanczos(x: Tensor) -> Tensor:
    return _sinc(x) * _sinc(x / 3) * (x.abs() < 3).to(x.dtype)


def _sinc(x: Tensor) -> Tensor:
    turned = math.pi * torch.where(x == 0, 1.0, x)
    return torch.where(x == 0, 1.0, torch.sin(turned) / turned)


def _cubic(x: Tensor) -> Tensor:
    """With a = -0.5, as Pillow has it."""
    x = x.abs()
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, 0.0))


def _bytes(values: Tensor) -> Tensor:
    return torch.floor(values + 0.5).clamp(0, 255)
