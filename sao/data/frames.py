"""Random crops of whole pictures, made on the device: torchvision's RandomResizedCrop in the coordinates of each picture.

Pictures are kept squashed to squares, so that all of them are one array; the resampling that resizes a crop undoes that.
"""

import math

import torch
from torch import Tensor

from sao import randomness
from sao.data import transforms
from sao.data.augmentation import ATTEMPTS, RATIOS


def random_crops(
    frames: Tensor, aspects: Tensor, share: float, size: tuple[int, int], seed: int, step: int, places: slice
) -> Tensor:
    """Float32 (n, c, *size) in [-1, 1] of frames uint8 (n, s, s, c); each keeps at least this share of its picture's area.

    A crop is a function of (seed, step) and of the place of its row in the global batch.
    """
    draws = randomness.uniform(seed, "crop", step, places, (2 * ATTEMPTS + 2,), frames.device)
    images = frames.permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format).div_(255)
    windows = frame_windows(draws, share, aspects) * frames.shape[1]
    return transforms.crop(images, windows, size).mul_(2).sub_(1)


def frame_windows(draws: Tensor, share: float, aspects: Tensor) -> Tensor:
    """(n, 4): top, left, height and width of random windows as parts of pictures with these widths over heights.

    Where no attempt fits into a picture, the largest window of an allowed shape is taken from its middle.
    """
    areas, ratios, places = draws.split([ATTEMPTS, ATTEMPTS, 2], dim=1)
    areas = share + (1 - share) * areas
    low, high = (math.log(ratio) for ratio in RATIOS)
    ratios = (low + (high - low) * ratios).exp() / aspects[:, None]  # in a picture that is a square
    heights, widths = (areas / ratios).sqrt(), (areas * ratios).sqrt()
    fits = (heights <= 1) & (widths <= 1)
    first, fit = fits.int().argmax(1, keepdim=True), fits.any(1)
    tall = torch.where(fit, heights.gather(1, first)[:, 0], (aspects / RATIOS[0]).clamp(max=1))
    wide = torch.where(fit, widths.gather(1, first)[:, 0], (RATIOS[1] / aspects).clamp(max=1))
    top, left = (
        torch.where(fit, place, 0.5) * (1 - length) for place, length in zip(places.unbind(1), (tall, wide), strict=True)
    )
    return torch.stack([top, left, tall, wide], dim=1)
