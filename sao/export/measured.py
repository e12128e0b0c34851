"""How far a file that prepares images itself is from `sao`, on image files as people have them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from sao.data.files.cache import Cache
from sao.data.files.decode import Picture, Recipe, decode, read, whole_image
from sao.data.files.open import image_files
from sao.errors import InputError
from sao.export.any_size import OfAnySize
from sao.export.whole import Whole
from sao.methods import FeatureName
from sao.training.model import Model

MEASURED = 32  # image files
RESIZED = 8  # images in each of several sizes
SIZES = ((1, 1), (1.5, 2), (3, 2.3), (0.8, 1.7))  # height and width, times those of the run


def in_several_sizes(images: np.ndarray) -> list[np.ndarray]:
    """The same images (n, h, w, c) enlarged and reduced, wide and tall."""
    height, width, channels = images.shape[1:]
    pictures = [Image.fromarray(image[..., 0] if channels == 1 else image) for image in images[:RESIZED]]
    sizes = [(max(2, round(wide * width)), max(2, round(tall * height))) for tall, wide in SIZES]
    return [np.stack([np.asarray(p.resize(s)).reshape(s[1], s[0], channels) for p in pictures]) for s in sizes]


def against_sao(
    model: Model, feature: FeatureName, whole: Whole, function: Callable[[np.ndarray], np.ndarray], place: str
) -> str | None:
    """Pixels and features of image files, by the file's own preparation and by that of `sao`; None where there are no files."""
    pictures = _pictures(model, place)
    if not pictures or not isinstance(whole.module, OfAnySize):
        return None
    ours = model.embed(np.stack([pixels for _, pixels in pictures]), feature)
    theirs = np.concatenate([function(image[None]) for image, _ in pictures])
    levels = [np.abs(_prepared(whole.module, image) - pixels.astype(np.float32)) for image, pixels in pictures]
    cosines = (ours * theirs).sum(1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(theirs, axis=1)
    sizes = len({image.shape for image, _ in pictures})
    return (
        f"on {len(pictures)} image files of {sizes} size{'' if sizes == 1 else 's'}, against sao's own preparation, "
        "which decodes large JPEG files at a smaller scale: pixels differ by "
        f"{np.mean(levels):.2f} of 255 on average and by {np.max(levels):.0f} at most, features by "
        f"{np.abs(ours - theirs).max() / np.abs(ours).max():.1e} of the largest value (cosine {cosines.min():.5f} at least)"
    )


def _pictures(model: Model, place: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Image files as they are and as `sao` prepares them, from all over a folder or a list of them."""
    channels, size, _ = model.facts.shape
    recipe = Recipe(size, channels, model.config.data.fit)
    try:
        files = list(image_files(Path(place), Cache().folder).values())
    except InputError:  # an archive, or arrays
        return []
    found = []
    for file in files[:: max(1, len(files) // MEASURED)][:MEASURED]:
        data, whole = read(file), whole_image(file, channels)
        picture = decode(data, recipe) if isinstance(data, bytes) else None
        if whole is not None and isinstance(picture, Picture):
            found.append((whole, picture.pixels))
    return found


def _prepared(module: OfAnySize, image: np.ndarray) -> np.ndarray:
    return module.prepared(torch.from_numpy(image[None]))[0].permute(1, 2, 0).numpy()
