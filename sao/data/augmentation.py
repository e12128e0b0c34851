"""Random views of images: parameters of their own for each sample, on the device, through kornia.

The draws are a function of (seed, purpose, step), made for the global batch and sliced by process, so that a batch is augmented
alike however many processes share it.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from sao import distributed, randomness
from sao.options import Fraction, NonNegativeFloat, Probability, Strict

JITTERED = 0.8  # probability that the colours of an image are changed at all
BLUR_SIGMA = (0.1, 2.0)

_OF_THE_WHOLE_BATCH = ("forward_input_shape", "order")  # what kornia draws that is not one row a sample


class Augmentation(Strict):
    """What may be changed in an image. The default changes nothing; vectors are never changed."""

    crop: Fraction | None = Field(
        default=None, description="smallest share of the area that a random crop keeps; null: no crops"
    )
    jitter: tuple[NonNegativeFloat, NonNegativeFloat, NonNegativeFloat, Annotated[NonNegativeFloat, Field(le=0.5)]] | None = (
        Field(
            default=None, description="strength of brightness, contrast, saturation and hue, for example [0.8, 0.8, 0.8, 0.2]"
        )
    )
    grey: Probability = Field(default=0.0, description="probability of a picture without colour")
    blur: Probability = Field(default=0.0, description="probability of a Gaussian blur")
    solarise: Probability = Field(default=0.0, description="probability that bright pixels are inverted")
    flip: bool = Field(default=False, description="mirror half of the images")

    def __call__(self, images: Tensor, seed: int, purpose: str, step: int, global_batch: int) -> Tensor:
        """Augment this process's slice (n, c, h, w) in [-1, 1] of a global batch; vectors are returned as they are."""
        transforms = self._transforms(images) if images.ndim == 4 else []
        if not transforms:
            return images
        rows = distributed.local_slice(global_batch)
        shape = torch.Size((global_batch, *images.shape[1:]))
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            # kornia draws from the CPU's default generator, which the block restores; torch.manual_seed would seed GPUs too.
            torch.default_generator.manual_seed(randomness.derived_seed(seed, f"augmentation/{purpose}", step))
            for transform in transforms:
                drawn = transform.forward_parameters(shape)
                # Colour operations want [0, 1]; bicubic crops overshoot, so each result is cut back to the range.
                images = transform((images + 1) / 2, params=_sliced(drawn, rows)).clamp(0, 1) * 2 - 1
        return images

    def _transforms(self, images: Tensor) -> list:
        import kornia.augmentation as kornia  # slow to import and needed for images only

        size = (images.shape[2], images.shape[3])
        colour = images.shape[1] == 3
        transforms = []
        if self.crop is not None:
            crop = {"scale": (self.crop, 1.0), "resample": "bicubic", "cropping_mode": "resample", "align_corners": False}
            transforms.append(kornia.RandomResizedCrop(size, **crop))
        if self.jitter is not None:
            brightness, contrast, saturation, hue = self.jitter
            factors = (brightness, contrast, saturation, hue) if colour else (brightness, contrast, 0.0, 0.0)
            transforms.append(kornia.ColorJitter(*factors, p=JITTERED))  # torchvision's formulas; its ColorJiggle has others
        if self.grey > 0 and colour:
            transforms.append(kornia.RandomGrayscale(p=self.grey))
        if self.blur > 0:
            kernel = max(3, size[0] // 10 | 1)
            transforms.append(kornia.RandomGaussianBlur((kernel, kernel), BLUR_SIGMA, p=self.blur))
        if self.solarise > 0:
            transforms.append(kornia.RandomSolarize(thresholds=(0.5, 0.5), additions=(0.0, 0.0), p=self.solarise))
        if self.flip:
            transforms.append(kornia.RandomHorizontalFlip(p=0.5))
        return transforms


def _sliced(drawn: dict[str, Tensor], rows: slice) -> dict[str, Tensor]:
    """The parameters of these rows. By name, because a batch of 4 has as many rows as a shape has numbers."""
    return {name: value if name in _OF_THE_WHOLE_BATCH else value[rows] for name, value in drawn.items()}
