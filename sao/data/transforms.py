"""Changes of images (n, c, h, w) in [0, 1] with parameters of their own for each sample, (n,) or (n, k).

Plain operators on whole batches: nothing is selected by a mask or read back, so that any device can make them. The formulas are
those of torchvision, by which the published baselines were trained.
"""

import torch
from torch import Tensor

GREY = (0.299, 0.587, 0.114)  # how much red, green and blue add to brightness
BLUR_REACH = 6  # pixels: three standard deviations of the widest blur


def flip(images: Tensor, chosen: Tensor) -> Tensor:
    """The mirror image of those samples that are chosen."""
    return torch.where(_each(chosen), images.flip(3), images)


def solarise(images: Tensor, chosen: Tensor) -> Tensor:
    """Pixels in the upper half of the range are inverted."""
    return torch.where(_each(chosen) & (images >= 0.5), 1 - images, images)


# --- crops and blurs: rows and columns are mixed by a matrix of each sample ---------------------------------------------------


def crop(images: Tensor, windows: Tensor, size: tuple[int, int]) -> Tensor:
    """Windows (n, 4), as top, left, height and width in pixels, resized bicubically, with smoothing where they shrink."""
    top, left, height, width = windows.to(images.dtype).unbind(1)
    rows = _resampling(top, height, images.shape[2], size[0])
    columns = _resampling(left, width, images.shape[3], size[1])
    return _mixed(images, rows, columns).clamp_(0, 1)  # a bicubic curve overshoots


def blur(images: Tensor, sigma: Tensor, chosen: Tensor) -> Tensor:
    """A Gaussian of this standard deviation in pixels; images go on as in a mirror behind their border."""
    sigma = sigma.to(images.dtype)
    rows, columns = (_blurring(sigma, size) for size in images.shape[2:])
    return torch.where(_each(chosen), _mixed(images, rows, columns), images)


def _mixed(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """rows @ image @ columnsᵀ for each sample and channel."""
    return rows[:, None] @ (images @ columns.mT[:, None])


def _resampling(start: Tensor, length: Tensor, size: int, out: int) -> Tensor:
    """Weights (n, out, size) of a line's pixels in each pixel of its stretch of a length that begins at `start`."""
    start, length = start[:, None, None], length[:, None, None]
    pixels = torch.arange(size, dtype=start.dtype, device=start.device) - start
    scale = length / out
    centres = (torch.arange(out, dtype=start.dtype, device=start.device)[:, None] + 0.5) * scale
    weights = _bicubic((pixels + 0.5 - centres) / scale.clamp(min=1))
    inside = (pixels + 0.5 >= 0) & (pixels + 0.5 <= length)  # by its centre: a window may begin within a pixel
    weights = torch.where(inside, weights, 0)
    return weights / weights.sum(2, keepdim=True)


def _bicubic(x: Tensor) -> Tensor:
    """Keys's curve with a = -1/2."""
    x = x.abs()
    near, far = (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, 0))


def _blurring(sigma: Tensor, size: int) -> Tensor:
    """Weights (n, size, size) of a line's pixels in each of them."""
    reach = min(BLUR_REACH, size - 1)
    taps = torch.arange(-reach, reach + 1, device=sigma.device)
    weights = (-0.5 * (taps / sigma[:, None]).square()).softmax(1)
    pixels = torch.arange(size, device=sigma.device)
    sources = (pixels[:, None] + taps).abs()
    sources = size - 1 - (size - 1 - sources).abs()  # (size, taps)
    is_source = (sources[:, :, None] == pixels).to(sigma.dtype)
    return torch.einsum("nt,itj->nij", weights, is_source)


# --- colours -------------------------------------------------------------------------------------------------------------


def grey(images: Tensor, chosen: Tensor) -> Tensor:
    """Brightness alone in all three channels."""
    return torch.where(_each(chosen), _brightness(images), images)


def jitter(images: Tensor, factors: Tensor, order: Tensor, chosen: Tensor) -> Tensor:
    """Change brightness, contrast and saturation by factors and turn the hue, in an order of its own for each sample.

    `factors` (n, 4) has the three and the turn as a share of the circle; `order` (n, 4) has numbers, and the smallest comes
    first. Images of one channel have neither saturation nor hue.
    """
    colour = images.shape[1] == 3
    blends = 3 if colour else 2
    factors = factors.to(images.dtype)
    sequence = order[:, :blends].argsort(1)
    if not colour:
        return torch.where(_each(chosen), _blended(images, sequence, factors), images)
    # The turn of the hue is the dearest: it is made once, between the changes that come before it and those that come after.
    before = (order[:, :3] < order[:, 3:]).to(images.dtype)
    changed = _blended(images, sequence, 1 + before * (factors[:, :3] - 1))
    changed = _turned(changed, factors[:, 3])
    changed = _blended(changed, sequence, 1 + (1 - before) * (factors[:, :3] - 1))
    return torch.where(_each(chosen), changed, images)


def _blended(images: Tensor, sequence: Tensor, factors: Tensor) -> Tensor:
    """Away from black (0), the image's mean brightness (1) or its own brightness (2) by a factor, one after the other."""
    for which in sequence.unbind(1):
        brightness = _brightness(images)
        mean = brightness.mean((2, 3), keepdim=True)
        towards = torch.where(_each(which == 0), 0, torch.where(_each(which == 1), mean, brightness))
        factor = factors.gather(1, which[:, None])
        images = torch.lerp(towards, images, _each(factor[:, 0])).clamp_(0, 1)
    return images


def _turned(images: Tensor, turn: Tensor) -> Tensor:
    """Hue, saturation and value with another hue, as colours again."""
    red, green, blue = images.unbind(1)
    value = images.amax(1)
    chroma = value - images.amin(1)
    divisor = torch.where(chroma > 0, chroma, 1)
    sixths = torch.where(green == value, 2 + (blue - red) / divisor, 4 + (red - green) / divisor)
    sixths = torch.where(red == value, (green - blue) / divisor, sixths) + 6 * turn[:, None, None]
    places = [(sixths + offset).remainder(6) for offset in (5, 3, 1)]
    return torch.stack([value - chroma * torch.minimum(place, 4 - place).clamp(0, 1) for place in places], dim=1)


def _brightness(images: Tensor) -> Tensor:
    """(n, 1, h, w)."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.split(1, dim=1)
    return GREY[0] * red + GREY[1] * green + GREY[2] * blue


def _each(values: Tensor) -> Tensor:
    """(n,) → (n, 1, 1, 1)."""
    return values[:, None, None, None]
