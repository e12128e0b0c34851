"""Which model that comes with sao suits images that nothing was trained on, and features for those that none suits."""

import numpy as np

from sao.data.dataset import Images
from sao.evaluation.patches import CENTROIDS, patch_features
from sao.models import model_names

DIGITS, CLOTHES, PHOTOGRAPHS = "mnist16", "fashion16", "photos32"
LARGEST = 64  # pixels a side of images that models of small grey ones were made for
DARK, BRIGHT = 32, 64  # of 255: the ground of digits and clothes, and what is drawn on it
MOST_INK = 0.3  # share of bright pixels in digits; clothes have about a half
LOOKED_AT = 1000
FEWEST_CENTROIDS = 16


def suited_model(images: Images, side: int | None = None) -> str | None:
    """The name of the model for such images; None where none suits. `side` is that of the files, if these are thumbnails."""
    name = _kind(images, side)
    return name if name in model_names() else None


def _kind(images: Images, side: int | None) -> str | None:
    if images.shape[0] not in (1, 3) or images.levels is not None:
        return None
    if images.shape[0] == 3:
        return PHOTOGRAPHS
    if (side or images.shape[1]) > LARGEST:
        return None
    some = np.asarray(images.pixels[:: -(-len(images) // LOOKED_AT)])[..., 0]
    border = np.concatenate([some[:, 0], some[:, -1], some[:, :, 0], some[:, :, -1]], axis=1)
    if np.median(border.mean(axis=1)) > DARK:
        return None
    return DIGITS if np.mean(some > BRIGHT) < MOST_INK else CLOTHES


def patches_of(images: Images, seed: int = 0) -> np.ndarray:
    """Features (n, d) that need no model: codes of patches, whose centroids are found in these images, in seconds."""
    rows = np.arange(len(images))
    centroids = min(CENTROIDS[0], max(FEWEST_CENTROIDS, len(rows) // 4))
    return patch_features([(images.intensities, rows)], centroids, seed)[0][0].numpy()
