"""What an export says of its distance from sao is true of every image file that was looked at."""

from types import SimpleNamespace

import numpy as np
from torch import nn

from sao.data.files.decode import Recipe
from sao.export import measured
from sao.export.any_size import OfAnySize

COSINES = (1.0, 0.9, 0.99)
LEVELS = (0, 2, 7)


def test_every_number_is_of_the_files(monkeypatch):
    """The mean and the largest difference of pixels, the largest of features, and the least cosine."""
    images = [np.full((8, 8, 1), 10 * number, np.uint8) for number in range(3)]
    pictures = [(image, image + np.uint8(level)) for image, level in zip(images, LEVELS, strict=True)]
    ours = np.tile(np.array([2, 0], np.float32), (3, 1))
    theirs = np.stack([[2 * cosine, 2 * np.sqrt(1 - cosine**2)] for cosine in COSINES])
    monkeypatch.setattr(measured, "_pictures", lambda model, place: pictures)
    said = measured.against_sao(
        SimpleNamespace(embed=lambda pixels, feature: ours),  # pyright: ignore[reportArgumentType]
        "backbone",
        SimpleNamespace(module=OfAnySize(nn.Identity(), Recipe(8, 1, "crop"))),  # pyright: ignore[reportArgumentType]
        lambda image: theirs[image[:, 0, 0, 0] // 10],
        "",
    )
    assert said is not None
    assert said.startswith("on 3 image files of 1 size, ")
    assert "pixels differ by 3.00 of 255 on average and by 7 at most" in said
    largest = np.abs(ours - theirs).max() / 2
    assert f"features by {largest:.1e} of the largest value (cosine 0.90000 at least)" in said
