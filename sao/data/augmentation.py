"""Random flips, crops and colour jitter: parameters of their own for each sample, on the device, through kornia.

The draws are a function of (seed, purpose, step), made for the global batch and sliced by process, so that a batch is augmented
alike however many processes share it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sao import distributed, randomness

_OF_THE_WHOLE_BATCH = ("forward_input_shape", "order")  # what kornia draws that is not one row a sample


@dataclass(frozen=True)
class Augmentation:
    flip: bool = False
    crop: float | None = None  # smallest area of the crop, which is resized back to the full size
    jitter: float = 0.0
    seed: int = 0

    def __call__(self, images: Tensor, purpose: str, step: int, global_batch: int) -> Tensor:
        """Augment this process's slice (n, c, h, w) in [-1, 1] of a global batch; vectors are returned as they are."""
        transforms = self._transforms(images) if images.ndim == 4 else []
        if not transforms:
            return images
        rows = distributed.local_slice(global_batch)
        shape = torch.Size((global_batch, *images.shape[1:]))
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            # kornia draws from the CPU's default generator, which the block restores; torch.manual_seed would seed GPUs too.
            torch.default_generator.manual_seed(randomness.derived_seed(self.seed, f"augmentation/{purpose}", step))
            for transform in transforms:
                drawn = transform.forward_parameters(shape)
                # Colour operations want [0, 1]; bicubic crops overshoot, so each result is cut back to the range.
                images = transform((images + 1) / 2, params=_sliced(drawn, rows)).clamp(0, 1) * 2 - 1
        return images

    def _transforms(self, images: Tensor) -> list:
        import kornia.augmentation as kornia  # slow to import and needed for images only

        size = (images.shape[2], images.shape[3])
        transforms = []
        if self.flip:
            transforms.append(kornia.RandomHorizontalFlip(p=0.5))
        if self.crop is not None:
            crop = {"scale": (self.crop, 1.0), "resample": "bicubic", "cropping_mode": "resample", "align_corners": False}
            transforms.append(kornia.RandomResizedCrop(size, **crop))
        if self.jitter > 0:
            light, hue = 0.4 * self.jitter, 0.1 * self.jitter
            colour = images.shape[1] == 3
            factors = (light, light, light, hue) if colour else (light, light, 0.0, 0.0)
            transforms.append(kornia.ColorJitter(*factors, p=0.8))  # torchvision's formulas; its ColorJiggle has others
            if colour:
                transforms.append(kornia.RandomGrayscale(p=0.2))
        return transforms


def _sliced(drawn: dict[str, Tensor], rows: slice) -> dict[str, Tensor]:
    """The parameters of these rows. By name, because a batch of 4 has as many rows as a shape has numbers."""
    return {name: value if name in _OF_THE_WHOLE_BATCH else value[rows] for name, value in drawn.items()}
