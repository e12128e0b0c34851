"""One file, or its bytes, to squares of 8 or 16 bits; whatever the bytes are, the answer is pictures or a reason.

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from PIL import Image, UnidentifiedImageError, features

from sao.data.files.stacks import DICOM, FULL, START_BYTES, TIFF_STARTS, Stack, StackError, has_tifffile, open_stack
from sao.errors import printable

# The list is closed on purpose: Pillow's other readers include ones that start programs (EPS) or fetch nothing we want.
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF")
ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".avif", ".heic", ".heif", ".dcm")
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

Pages = Literal["auto", "channels", "images"]
Values = Literal["bytes", "integers", "floats"]  # of an image: 8 bits, more, or numbers with a point


def readers() -> list[str]:
    """Libraries that read what could not be read without them."""
    return [name for name in ("pillow_heif", "tifffile", "pydicom") if importlib.util.find_spec(name) is not None]


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
    """What can be said of an image before its pixels are decoded (width and height as stored, before EXIF rotation).

    A stack has `pages` of so many `channels` each; where pages are channels, `together` make an image, as the file itself may
    have `told`.
    """

    width: int
    height: int
    grey: bool
    transparent: bool
    values: Values = "bytes"
    channels: int = 3
    pages: int = 1
    together: int = 1
    told: bool = False
    more_pages: bool = False  # which cannot be read here

    @property
    def deep(self) -> bool:
        return self.values != "bytes"


@dataclass(frozen=True)
class Picture:
    header: Header
    pixels: np.ndarray
    frames: np.ndarray | None = None  # the whole image, where a recipe has a frame
    aspect: float = 1.0  # width over height of the whole image


@dataclass(frozen=True)
class Recipe:
    """What every image becomes: size x size pixels of this many channels, made square by "crop", "pad" or "centre".

    Where a `frame` is given, the whole image is kept too, squashed to a square of so many pixels a side. With 16 `bits` values
    stay what they are, or are counted from 0 to 65535 within a `span`, low and high of each channel.
    """

    size: int
    channels: int
    fit: str
    frame: int | None = None
    bits: int = 8
    span: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    pages: Pages = "auto"

    @property
    def short_side(self) -> int:
        """To which "centre" resizes an image before it is cut: 144 for 128."""
        return self.size * 9 // 8

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.size, self.size, self.channels

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.uint8 if self.bits == 8 else np.uint16)


Loaded = str | bytes | Failure  # a path still to be read, bytes already read, or the reason why there are none


def is_picture(path: Path) -> bool:
    """By its name or its content: a damaged picture is still meant to be one."""
    return path.suffix.lower() in ENDINGS or isinstance(inspect_chunk([os.path.realpath(path)])[0], Header)


def inspect_chunk(chunk: list[Loaded]) -> list[Header | Failure]:
    with quiet():
        return [_inspect(item) for item in chunk]


def decode_chunk(chunk: list[Loaded], recipe: Recipe) -> list[tuple[list[Picture] | Failure, bytes]]:
    """Each item's pictures (or failure) and the digest of the bytes it was made of, from one reading of the file."""
    with quiet():
        return [(decode_all(data, recipe), digest(data)) for data in map(read, chunk)]


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


def decode(data: bytes | Failure, recipe: Recipe) -> Picture | Failure:
    """The image of a file, of a stack the first."""
    pictures = decode_all(data, recipe, most=1)
    return pictures if isinstance(pictures, Failure) else pictures[0]


def decode_all(data: bytes | Failure, recipe: Recipe, most: int | None = None) -> list[Picture] | Failure:
    """Every image of a file: one, unless it is a stack whose pages are images."""
    if isinstance(data, Failure) or not data:
        return data or Failure("the file is empty")
    try:
        stack = _stack(io.BytesIO(data), data[:START_BYTES])
        if stack is not None:
            return _pictures_of(stack, recipe, most)
        with Image.open(io.BytesIO(data), formats=formats()) as image:
            header = _header(image)
            if isinstance(header, Failure):
                return header
            if image.format == "JPEG":
                # Lets libjpeg decode a large photograph at 1/2, 1/4 or 1/8, never below twice what is needed.
                needed = 2 * (recipe.frame or recipe.size)
                image.draft(None, (needed, needed))
            if recipe.bits > 8 or recipe.channels not in (1, 3) or (recipe.span is not None and header.deep):
                return [_picture_of(_plane_of(image, header), header, recipe, _orientation(image))]
            loaded = eight_bits(image)
            # Asked only now: Pillow turns a TIFF itself while loading it, and then takes the tag away.
            return [_picture(loaded, header, recipe, _orientation(image))]
    except Exception as error:  # Pillow, tifffile and pydicom raise nearly every kind on damaged files
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
            pixels = np.array(_turned(loaded, _orientation(image)))  # a copy: torch wants to write to it
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
    """Keep the libraries' warnings and log lines from the user: what matters in them becomes a Failure."""
    loggers = [logging.getLogger(name) for name in ("PIL", "tifffile", "pydicom")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def _inspect(item: Loaded) -> Header | Failure:
    if isinstance(item, Failure):
        return item
    opened = _open_regular(item) if isinstance(item, str) else io.BytesIO(item)
    if isinstance(opened, Failure):
        return opened
    with opened:
        try:
            start = opened.read(START_BYTES)
            opened.seek(0)
            stack = _stack(opened, start)
            if stack is not None:
                return _stack_header(stack)
            opened.seek(0)
            with Image.open(opened, formats=formats()) as image:
                return _header(image)
        except Exception as error:
            opened.seek(0)
            return _damage(error, opened.read(12))


def _stack(stream: BinaryIO, start: bytes) -> Stack | None:
    """What Pillow does not read, or only in part."""
    return open_stack(stream, start) if start.startswith(TIFF_STARTS) or start[128:132] == DICOM else None


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
    values: Values = "floats" if image.mode == "F" else "integers" if image.mode.startswith("I") else "bytes"
    grey = values != "bytes" or image.mode in ("1", "L", "LA", "La") or _has_grey_palette(image)
    more = image.format == "TIFF" and not has_tifffile() and _has_second_page(image)
    return Header(width, height, grey, image.has_transparency_data, values, 1 if grey else 3, more_pages=more)


def _has_second_page(image: Image.Image) -> bool:
    try:
        image.seek(1)
    except EOFError:
        return False
    image.seek(0)
    return True


def _stack_header(stack: Stack) -> Header:
    values: Values = "floats" if stack.dtype.kind == "f" else "integers" if stack.dtype.itemsize > 1 else "bytes"
    grey, together = stack.samples == 1, len(stack.grid[0])
    return Header(stack.width, stack.height, grey, False, values, stack.samples, stack.pages, together, stack.told)


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
    if isinstance(error, StackError):
        return Failure(printable(str(error)))
    if isinstance(error, UnidentifiedImageError):
        if start[4:12] in (b"ftypavif", b"ftypavis"):
            return Failure("an AVIF picture, which this build of Pillow cannot read: pip install -U pillow")
        if start[4:8] == b"ftyp" and start[8:12] in (b"heic", b"heix", b"hevc", b"mif1", b"msf1"):
            return Failure("a HEIC picture: pip install 'sao[heic]' to read it")
        if start.startswith(TIFF_STARTS) and not has_tifffile():
            return Failure("a TIFF that Pillow cannot read: pip install 'sao[tiff]' to read it")
        return Failure("not an image in a known format (PNG, JPEG, WebP, BMP, TIFF, GIF, DICOM)")
    if isinstance(error, Image.DecompressionBombError):
        return Failure(f"more than {MAX_PIXELS // 1_000_000} million pixels")
    return Failure(f"damaged: {printable(str(error))[:100] or type(error).__name__}")


def _too_long() -> str:
    return f"larger than {MAX_FILE_BYTES // 2**20} MB"


# --- an image of any shape as a square of bytes --------------------------------------------------------------------------


def fit(image: Image.Image, recipe: Recipe, orientation: int = 1) -> np.ndarray:
    """The image (modes L, LA, RGB, RGBA) as a recipe's uint8 square (size, size, channels)."""
    return _finished(_resized(image, recipe), recipe.shape, orientation)


def _resized(image: Image.Image, recipe: Recipe) -> Image.Image:
    if recipe.fit == "centre":
        return _centre(image, recipe)
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
    return image if image.size == inner else image.resize(inner, Image.Resampling.LANCZOS, box=box)


def _picture(image: Image.Image, header: Header, recipe: Recipe, orientation: int) -> Picture:
    width, height = image.size[::-1] if orientation in SIDEWAYS else image.size
    frame = None
    if recipe.frame is not None:
        whole = image.resize((recipe.frame, recipe.frame), Image.Resampling.LANCZOS)
        frame = _finished(whole, (recipe.frame, recipe.frame, recipe.channels), orientation)
    return Picture(header, fit(image, recipe, orientation), frame, width / height)


def _centre(image: Image.Image, recipe: Recipe) -> Image.Image:
    """As torchvision's Resize and CenterCrop do it, to the pixel."""
    width, height = image.size
    short, size = recipe.short_side, recipe.size
    inner = (short, short * height // width) if width <= height else (short * width // height, short)
    image = image.resize(inner, Image.Resampling.BICUBIC)
    left, top = (round((side - size) / 2) for side in inner)
    return image.crop((left, top, left + size, top + size))


def _finished(image: Image.Image, shape: tuple[int, int, int], orientation: int) -> np.ndarray:
    """A resized image without transparency, in its channels, upright, and in the middle of its square."""
    image = _on_white(image)  # after resizing, so that only these few pixels are blended
    upright = _turned(image.convert("L" if shape[2] == 1 else "RGB"), orientation)
    return np.asarray(_centred(upright, shape[0], (PAD_VALUE,) * shape[2]), dtype=np.uint8).reshape(shape)


def _turned(image: Image.Image, orientation: int) -> Image.Image:
    """Turning the small image instead of the photograph gives the same pixels, because the crop is centred."""
    return image.transpose(_TRANSPOSES[orientation]) if orientation in _TRANSPOSES else image


def _centred(image: Image.Image, size: int, around: float | tuple[int, ...]) -> Image.Image:
    if image.size == (size, size):
        return image
    canvas = Image.new(image.mode, (size, size), around)
    canvas.paste(image, ((size - image.width) // 2, (size - image.height) // 2))
    return canvas


def _on_white(image: Image.Image) -> Image.Image:
    if image.mode not in ("LA", "RGBA"):
        return image
    values = np.asarray(image).astype(np.float32)
    alpha = values[..., -1:] / 255
    blended = (values[..., :-1] * alpha + 255 * (1 - alpha) + 0.5).astype(np.uint8)
    return Image.fromarray(blended[..., 0] if image.mode == "LA" else blended)


# --- planes of any number of channels and bits ---------------------------------------------------------------------------


def fit_planes(planes: np.ndarray, recipe: Recipe, orientation: int = 1) -> np.ndarray:
    """An image (h, w, c) of bytes or 16 bits as a recipe's square of the same type, each channel by itself."""

    def square(plane: Image.Image) -> Image.Image:
        around: Any = PAD_VALUE
        if recipe.fit == "pad" and planes.dtype != np.uint8:
            around = np.mean(plane.getextrema())
        return _centred(_turned(_resized(plane, recipe), orientation), recipe.size, around)

    return _by_plane(planes, square)


def _squashed_planes(planes: np.ndarray, side: int, orientation: int) -> np.ndarray:
    return _by_plane(planes, lambda plane: _turned(plane.resize((side, side), Image.Resampling.LANCZOS), orientation))


def _by_plane(planes: np.ndarray, change: Callable[[Image.Image], Image.Image]) -> np.ndarray:
    pictures = (Image.fromarray(np.ascontiguousarray(planes[..., c], np.float32)) for c in range(planes.shape[-1]))
    changed = np.stack([np.asarray(change(picture)) for picture in pictures], axis=-1)
    return np.rint(changed).clip(0, np.iinfo(planes.dtype).max).astype(planes.dtype)


def _plane_of(image: Image.Image, header: Header) -> np.ndarray:
    if header.deep:
        values = np.asarray(image)
    else:
        values = np.asarray(_on_white(eight_bits(image)).convert("L" if header.grey else "RGB"))
    return values[..., None] if values.ndim == 2 else values


def _pictures_of(stack: Stack, recipe: Recipe, most: int | None) -> list[Picture]:
    header = _stack_header(stack)
    whole = header.channels * header.together
    as_channels = recipe.pages == "channels" or (recipe.pages == "auto" and whole == recipe.channels != header.channels)
    return [_picture_of(planes, header, recipe) for planes in islice(stack.images(as_channels), most)]


def _picture_of(planes: np.ndarray, header: Header, recipe: Recipe, orientation: int = 1) -> Picture:
    channels, eight = planes.shape[-1], recipe.bits == 8
    alike = eight and {channels, recipe.channels} <= {1, 3}
    if channels != recipe.channels and not alike:
        raise StackError(f"it has {counted(channels)}, not {counted(recipe.channels)}")
    if not eight and not header.deep:
        raise StackError("it has 8 bits a pixel, where 16 are expected")
    values = in_bits(planes, recipe)
    if alike:  # as all other images of bytes, whose colours may change
        return _picture(Image.fromarray(values[..., 0] if channels == 1 else values), header, recipe, orientation)
    frame = None if recipe.frame is None else _squashed_planes(values, recipe.frame, orientation)
    width, height = (planes.shape[i] for i in ((0, 1) if orientation in SIDEWAYS else (1, 0)))
    return Picture(header, fit_planes(values, recipe, orientation), frame, width / height)


def in_bits(values: np.ndarray, recipe: Recipe) -> np.ndarray:
    """Values (…, c) of any kind as the recipe's uint8 or uint16."""
    full = 255 if recipe.bits == 8 else FULL
    if values.dtype == np.uint8 and recipe.bits == 8:
        return values
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise StackError("a pixel is not a finite number")
    if recipe.span is not None:
        wide = np.float32 if values.dtype.kind == "u" and values.dtype.itemsize <= 2 else np.float64
        low, high = (np.asarray(of, wide) for of in recipe.span)
        parts = (values.astype(wide) - low) / np.where(high > low, high - low, wide(1))
        return np.rint(parts.clip(0, 1) * wide(full)).astype(recipe.dtype)
    if recipe.bits == 8:
        return _scaled_to_bytes(values)
    least, most = float(values.min()), float(values.max())
    if values.dtype.kind == "f" and least >= 0 and most <= 1:
        return np.rint(values * np.float64(full)).astype(np.uint16)
    if values.dtype.kind != "f" and least >= 0 and most <= full:
        return values.astype(np.uint16, copy=False)
    raise StackError(f"its values go from {least:g} to {most:g}: say what range they are in by --data.range")


def counted(channels: int) -> str:
    return "1 channel" if channels == 1 else f"{channels} channels"
