"""Equal pixels are those that a person sees."""

import io

import numpy as np
import pytest
from PIL import Image

from sao.search.fingerprints import pixel_digest

UPRIGHT = Image.fromarray(np.random.default_rng(0).integers(0, 256, (9, 14, 3), dtype=np.uint8))
# How a camera stores an upright picture under an orientation: what the orientation undoes.
STORED = {3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270}


def encoded(image: Image.Image, orientation: int = 1, kind: str = "PNG") -> bytes:
    exif, stream = Image.Exif(), io.BytesIO()
    exif[0x0112] = orientation
    image.save(stream, kind, exif=exif)
    return stream.getvalue()


@pytest.mark.parametrize("orientation", STORED)
def test_a_turned_photograph_has_the_pixels_that_are_seen_and_not_those_that_are_stored(orientation):
    seen = pixel_digest(encoded(UPRIGHT))
    assert seen is not None
    assert pixel_digest(encoded(UPRIGHT.transpose(STORED[orientation]), orientation)) == seen
    assert pixel_digest(encoded(UPRIGHT, orientation)) != seen


def test_the_format_makes_no_difference_and_one_pixel_does():
    other = UPRIGHT.copy()
    other.putpixel((13, 8), (1, 2, 3))
    assert pixel_digest(encoded(UPRIGHT)) == pixel_digest(encoded(UPRIGHT, kind="TIFF"))
    assert pixel_digest(encoded(UPRIGHT)) != pixel_digest(encoded(other))
    assert pixel_digest(b"no image") is None


def test_pictures_of_one_colour_differ_by_their_sides():
    digests = [pixel_digest(encoded(Image.new("RGB", (width, 36 // width), "white"))) for width in (1, 4, 6, 9, 36)]
    assert len(set(digests)) == 5
