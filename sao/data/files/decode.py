"""One file, or its bytes, to one uint8 square; whatever the bytes are, the answer is a picture or a reason.

Decoding runs in worker processes, so this module imports no torch: a worker starts in a fifth of a second.
"""

import hashlib
import importlib
import importlib.util
import io
import logging
import os
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image, UnidentifiedImageError, features

from sao.errors import printable

# The list is closed on purpose: Pillow's other readers include ones that start programs (EPS) or fetch nothing we want.
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF")
ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".avif", ".heic", ".heif")
MAX_PIXELS = 100_000_000
MAX_FILE_BYTES = 256 * 2**20

_ORIENTATION_TAG = 0x0112
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


@cache
def formats() -> tuple[str, ...]:
    """Those above, AVIF where Pillow was built with it, and HEIF where its plug-in is installed."""
    found = FORMATS
    if features.check("avif"):
        found += ("AVIF",)
    if importlib.util.find_spec("pillow_heif") is not None:
        importlib.import_module("pillow_heif").register_heif_opener()
        found += ("HEIF",)
    return found


@dataclass(frozen=True)
class Failure:
    """Why an item is not used; a sentence fragment to print behind its name."""

    reason: str


@dataclass(frozen=True)
class Header:
    """What can be said of an image before its pixels are decoded (width and height as stored, before EXIF rotation)."""

    width: int
    height: int
    grey: bool
    transparent: bool
    deep: bool


@dataclass(frozen=True)
class Picture:
    header: Header
    pixels: np.ndarray
    frames: np.ndarray | None = None  # the whole image, where a recipe has a frame
    aspect: float = 1.0  # width over height of the whole image


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


Loaded = str | bytes | Failure  # a path still to be read, bytes already read, or the reason why there are none


def is_picture(path: Path) -> bool:
    """By its name or its content: a damaged picture is still meant to be one."""
    return path.suffix.lower() in ENDINGS or isinstance(inspect_chunk([os.path.realpath(path)])[0], Header)


def inspect_chunk(chunk: list[Loaded]) -> list[Header | Failure]:
    with quiet():
        return [_inspect(item) for item in chunk]


def decode_chunk(chunk: list[Loaded], recipe: Recipe) -> list[tuple[Picture | Failure, bytes]]:
    """Each item's picture (or failure) and the digest of the bytes it was made of, from one reading of the file."""
    results: list[tuple[Picture | Failure, bytes]] = []
    with quiet():
        for item in chunk:
            data = read(item)
            picture = data if isinstance(data, Failure) else decode(data, recipe)
            results.append((picture, digest(data)))
    return results


def digest_chunk(chunk: list[Loaded]) -> list[bytes]:
    return [digest(read(item)) for item in chunk]


def digest(data: bytes | Failure) -> bytes:
    content = b"unread " + data.reason.encode(errors="replace") if isinstance(data, Failure) else b"bytes " + data
    return hashlib.blake2b(content, digest_size=16).digest()


def read(item: Loaded) -> bytes | Failure:
    if not isinstance(item, str):
        return item
    opened = _open_regular(item)
    if isinstance(opened, Failure):
        return opened
    with opened:
        try:
            # One byte more than allowed, because a file can grow between its listing and this line.
            data = opened.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            return Failure(f"cannot be read: {error.strerror}")
    return data if len(data) <= MAX_FILE_BYTES else Failure(_too_long())


def decode(data: bytes, recipe: Recipe) -> Picture | Failure:
    if not data:
        return Failure("the file is empty")
    try:
        with Image.open(io.BytesIO(data), formats=formats()) as image:
            header = _header(image)
            if isinstance(header, Failure):
                return header
            if image.format == "JPEG":
                # Lets libjpeg decode a large photograph at 1/2, 1/4 or 1/8, never below twice what is needed.
                needed = 2 * (recipe.frame or recipe.size)
                image.draft(None, (needed, needed))
            loaded = eight_bits(image)
            # Asked only now: Pillow turns a TIFF itself while loading it, and then takes the tag away.
            orientation = _orientation(image)
            pixels = fit(loaded, recipe, orientation)
            if recipe.frame is None:
                return Picture(header, pixels)
            width, height = loaded.size[::-1] if orientation in SIDEWAYS else loaded.size
            return Picture(header, pixels, squash(loaded, recipe.frame, recipe.channels, orientation), width / height)
    except Exception as error:  # Pillow raises nearly every kind on damaged files
        return _damage(error, data[:12])


def whole_image(path: str, channels: int) -> np.ndarray | None:
    """An image file in its own size, upright, as uint8 (h, w, channels); None where it is none."""
    data = read(path)
    if isinstance(data, Failure):
        return None
    try:
        with quiet(), Image.open(io.BytesIO(data), formats=formats()) as image:
            if isinstance(_header(image), Failure):
                return None
            loaded = _on_white(eight_bits(image)).convert("L" if channels == 1 else "RGB")
            turn = _TRANSPOSES.get(_orientation(image))
            pixels = np.array(loaded if turn is None else loaded.transpose(turn))  # a copy: torch wants to write to it
    except Exception:  # Pillow raises nearly every kind on damaged files
        return None
    return pixels.reshape(*pixels.shape[:2], channels)


def eight_bits(image: Image.Image) -> Image.Image:
    """The image in one of the modes L, LA, RGB, RGBA."""
    if image.mode == "F" or image.mode.startswith("I"):
        return Image.fromarray(_scaled_to_bytes(np.asarray(image)))
    if image.has_transparency_data:
        return image.convert("LA" if image.mode in ("L", "LA", "La") else "RGBA")
    if image.mode in ("L", "RGB"):
        image.load()
        return image
    return image.convert("L" if image.mode == "1" else "RGB")


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Pillow's warnings and log lines from the user: what matters in them becomes a Failure."""
    logger = logging.getLogger("PIL")
    level = logger.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logger.setLevel(logging.CRITICAL + 1)
        try:
            yield
        finally:
            logger.setLevel(level)


def _inspect(item: Loaded) -> Header | Failure:
    if isinstance(item, Failure):
        return item
    opened = _open_regular(item) if isinstance(item, str) else io.BytesIO(item)
    if isinstance(opened, Failure):
        return opened
    with opened:
        try:
            with Image.open(opened, formats=formats()) as image:
                return _header(image)
        except Exception as error:
            opened.seek(0)
            return _damage(error, opened.read(12))


def _open_regular(path: str) -> BinaryIO | Failure:
    """Open without following a last-moment link and without waiting for a pipe's other end; regular files only."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except (OSError, ValueError) as error:
        return Failure(f"cannot be read: {getattr(error, 'strerror', None) or error}")
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE_BYTES:
        os.close(descriptor)
        return Failure(_too_long() if stat.S_ISREG(status.st_mode) else "not a regular file")
    return os.fdopen(descriptor, "rb")


def _header(image: Image.Image) -> Header | Failure:
    width, height = image.size
    if width < 1 or height < 1:
        return Failure("the image has no pixels")
    if width * height > MAX_PIXELS:
        return Failure(f"{width}x{height} is more than {MAX_PIXELS // 1_000_000} million pixels")
    deep = image.mode == "F" or image.mode.startswith("I")
    grey = deep or image.mode in ("1", "L", "LA", "La") or _has_grey_palette(image)
    return Header(width, height, grey, image.has_transparency_data, deep)


def _has_grey_palette(image: Image.Image) -> bool:
    palette = image.palette
    if image.mode != "P" or palette is None or palette.mode != "RGB" or palette.rawmode not in (None, "RGB"):
        return False
    entries = np.frombuffer(bytes(palette.palette), np.uint8)
    entries = entries[: len(entries) // 3 * 3].reshape(-1, 3)
    return bool((entries == entries[:, :1]).all())


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(_ORIENTATION_TAG, 1))
    except Exception:  # a picture with damaged EXIF is still a picture
        return 1


def _scaled_to_bytes(values: np.ndarray) -> np.ndarray:
    """16-bit integers by their full range; floats by [0, 1] or [0, 255], whichever they lie in."""
    if values.dtype.kind in "iu":
        return (np.clip(values, 0, 65535) / 257 + 0.5).astype(np.uint8)
    low, high = float(values.min()), float(values.max())
    if not (low >= 0 and high <= 255):
        raise ValueError("floating-point pixels outside 0..255")
    return (values * (255 if high <= 1 else 1) + 0.5).astype(np.uint8)


def _damage(error: Exception, start: bytes) -> Failure:
    if isinstance(error, UnidentifiedImageError):
        if start[4:12] in (b"ftypavif", b"ftypavis"):
            return Failure("an AVIF picture, which this build of Pillow cannot read: pip install -U pillow")
        if start[4:8] == b"ftyp" and start[8:12] in (b"heic", b"heix", b"hevc", b"mif1", b"msf1"):
            return Failure("a HEIC picture: pip install 'sao[heic]' to read it")
        return Failure("not an image in a known format (PNG, JPEG, WebP, BMP, TIFF, GIF)")
    if isinstance(error, Image.DecompressionBombError):
        return Failure(f"more than {MAX_PIXELS // 1_000_000} million pixels")
    return Failure(f"damaged: {printable(str(error))[:100] or type(error).__name__}")


def _too_long() -> str:
    return f"larger than {MAX_FILE_BYTES // 2**20} MB"


# --- an image of any shape as a square of bytes --------------------------------------------------------------------------


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
