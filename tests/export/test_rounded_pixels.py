"""Pixels of an exported generator may be rounded the other way here and there, and nothing more."""

from types import SimpleNamespace

import numpy as np
import pytest

from sao.errors import InputError
from sao.export.check import ROUNDED, check

LATENTS = np.arange(10, dtype=np.float32)[:, None]


def checked(wrong: int, by: int, side: int = 20) -> float:
    """Of a file in whose images so many pixels of each are off."""
    images = np.random.default_rng(0).integers(1, 255, (10, side, side, 1), dtype=np.uint8)
    found = images.copy()
    found.reshape(10, -1)[:, :wrong] += np.uint8(by)
    whole = SimpleNamespace(expected=lambda latents: images[latents[:, 0].astype(int)], kind="generator", free_axes=(0,))
    return check(whole, lambda latents: found[latents[:, 0].astype(int)], LATENTS)  # pyright: ignore[reportArgumentType]


def test_equal_images_agree():
    assert checked(0, 1) == 0


def test_a_few_pixels_off_by_one_are_rounding():
    assert int(ROUNDED * 40 * 40) == 1
    assert checked(1, 1, side=40) == 0


@pytest.mark.parametrize(("wrong", "by"), [(400, 1), (4, 1), (1, 2)])
def test_more_is_refused(wrong, by):
    with pytest.raises(InputError, match="the exported generator differs from the run"):
        checked(wrong, by)
