"""What identifies one image file. It runs in worker processes, so this module imports no torch."""

import hashlib
import io
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageOps

from sao.data.files.decode import Failure, Header, Loaded, Recipe, decode, digest, formats, quiet, read

SIDE = 32  # pixels of a thumbnail
_RECIPE = Recipe(size=8, channels=3, fit="crop", frame=SIDE)  # the frame is the whole image


@dataclass(frozen=True)
class Fingerprint:
    file_digest: bytes
    thumbnail: np.ndarray  # uint8 (SIDE, SIDE, 3) of the whole image, whatever its shape is
    header: Header


def fingerprint_chunk(chunk: list[Loaded]) -> list[Fingerprint | Failure]:
    with quiet():
        return [_fingerprint(item) for item in chunk]


def _fingerprint(item: Loaded) -> Fingerprint | Failure:
    data = read(item)
    picture = decode(data, _RECIPE)
    if isinstance(picture, Failure):
        return picture
    assert picture.frames is not None
    return Fingerprint(digest(data), picture.frames, picture.header)


def pixel_digest(item: Loaded) -> bytes | None:
    """Of the upright image at its full size, the same for every format without loss; None where it cannot be read."""
    data = read(item)
    if isinstance(data, Failure):
        return None
    try:
        with quiet(), Image.open(io.BytesIO(data), formats=formats()) as image:
            upright = ImageOps.exif_transpose(image).convert("RGBA")
            return hashlib.blake2b(repr(upright.size).encode() + upright.tobytes(), digest_size=16).digest()
    except Exception:  # Pillow raises nearly every kind on damaged files
        return None
