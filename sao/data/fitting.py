"""An image of any shape as a square of bytes: the recipe that all images of a data set follow.

Workers that decode import it, so it imports no torch.
"""

from dataclasses import dataclass

import numpy as np
from PIL import Image

PAD_VALUE = 127  # zero after scaling to [-1, 1], which is what a zero-padded convolution sees beyond the border

_TRANSPOSES = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
SIDEWAYS = (5, 6, 7, 8)  # width and height change places


@dataclass(frozen=True)
class Recipe:
    """What every image becomes: size x size pixels of this many channels, made square by "crop", "pad" or "centre".

    Where a `frame` is given, the whole image is kept too, squashed to a square of so many pixels a side.
    """

    size: int
    channels: int
    fit: str
    frame: int | None = None

    @property
    def short_side(self) -> int:
        """To which "centre" resizes an image before it is cut: 144 for 128."""
        return self.size * 9 // 8


def fit(image: Image.Image, recipe: Recipe, orientation: int = 1) -> np.ndarray:
    """The image (modes L, LA, RGB, RGBA) as a recipe's uint8 square (size, size, channels)."""
    if recipe.fit == "centre":
        return _finished(_centre(image, recipe), recipe.size, recipe.channels, orientation)
    width, height = image.size
    size = recipe.size
    inner, box = (size, size), (0, 0, width, height)
    if recipe.fit == "crop":
        side = min(width, height)
        left, top = (width - side) / 2, (height - side) / 2
        box = (left, top, left + side, top + side)
    else:
        scale = size / max(width, height)
        inner = max(1, round(width * scale)), max(1, round(height * scale))
    if image.size != inner:
        image = image.resize(inner, Image.Resampling.LANCZOS, box=box)
    return _finished(image, size, recipe.channels, orientation)


def squash(image: Image.Image, side: int, channels: int, orientation: int = 1) -> np.ndarray:
    """The whole image as a uint8 square (side, side, channels), whatever its shape is."""
    return _finished(image.resize((side, side), Image.Resampling.LANCZOS), side, channels, orientation)


def _centre(image: Image.Image, recipe: Recipe) -> Image.Image:
    """As torchvision's Resize and CenterCrop do it, to the pixel."""
    width, height = image.size
    short, size = recipe.short_side, recipe.size
    inner = (short, short * height // width) if width <= height else (short * width // height, short)
    image = image.resize(inner, Image.Resampling.BICUBIC)
    left, top = (round((side - size) / 2) for side in inner)
    return image.crop((left, top, left + size, top + size))


def _finished(image: Image.Image, size: int, channels: int, orientation: int) -> np.ndarray:
    """A resized image without transparency, in its channels, upright, and in the middle of its square."""
    image = _on_white(image)  # after resizing, so that only these few pixels are blended
    wanted = "L" if channels == 1 else "RGB"
    if image.mode != wanted:
        image = image.convert(wanted)
    # Turning the small image instead of the photograph gives the same pixels, because the crop is centred.
    if orientation in _TRANSPOSES:
        image = image.transpose(_TRANSPOSES[orientation])
    if image.size != (size, size):
        canvas = Image.new(wanted, (size, size), (PAD_VALUE,) * channels)
        canvas.paste(image, ((size - image.width) // 2, (size - image.height) // 2))
        image = canvas
    return np.asarray(image, dtype=np.uint8).reshape(size, size, channels)


def _on_white(image: Image.Image) -> Image.Image:
    if image.mode not in ("LA", "RGBA"):
        return image
    values = np.asarray(image).astype(np.float32)
    alpha = values[..., -1:] / 255
    blended = (values[..., :-1] * alpha + 255 * (1 - alpha) + 0.5).astype(np.uint8)
    return Image.fromarray(blended[..., 0] if image.mode == "LA" else blended)
