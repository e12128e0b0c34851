"""Which model that comes with sao is chosen for which images."""

import numpy as np
import pytest

from sao.data.dataset import Images
from sao.data.named import digits
from sao.search import suited
from sao.search.suited import patches_of, suited_model


def clothes(n: int = 20) -> np.ndarray:
    """Large bright shapes on a dark ground."""
    pixels = np.zeros((n, 28, 28, 1), np.uint8)
    pixels[:, 3:25, 5:23] = np.random.default_rng(0).integers(100, 256, (n, 22, 18, 1))
    return pixels


def strokes(n: int = 20) -> np.ndarray:
    pixels = np.zeros((n, 28, 28, 1), np.uint8)
    pixels[:, 4:24, 12:15] = 255
    return pixels


def test_digits_and_clothes_have_their_models():
    assert suited_model(Images(strokes())) == "mnist16"
    assert suited_model(Images(clothes())) == "fashion16"


def test_other_grey_images_have_none():
    assert suited_model(Images(255 - strokes())) is None
    assert suited_model(Images(strokes()), side=500) is None, "thumbnails of large files"


def test_photographs_have_a_model_where_there_is_one(monkeypatch):
    photographs = Images(np.zeros((3, 32, 32, 3), np.uint8))
    monkeypatch.setattr(suited, "model_names", lambda: ["mnist16"])
    assert suited_model(photographs) is None
    monkeypatch.setattr(suited, "model_names", lambda: ["mnist16", "photos32"])
    assert suited_model(photographs) == "photos32"


@pytest.mark.parametrize("n", [1, 3, 40])
def test_patches_need_no_model(n):
    samples = digits().test
    assert isinstance(samples, Images)
    found = patches_of(Images(np.asarray(samples.pixels[:n])))
    assert len(found) == n
    assert np.isfinite(found).all()
