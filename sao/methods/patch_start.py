"""A first layer that starts where the cheap baseline stands: whitened k-means patches of the training images as filters."""

from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sao.core import distributed
from sao.core import random as randomness
from sao.evaluation.patches import Patches, random_patches
from sao.networks.resnet import StagedEncoder

IMAGES = 2000  # of which patches are taken


class TrainingData(Protocol):
    """The training set, as `Method.refresh` may read it."""

    def __len__(self) -> int: ...

    def inputs(self, rows: Tensor) -> Tensor:
        """Network inputs on the method's device."""
        ...


@torch.no_grad()
def start_from_patches(network: nn.Module, data: TrainingData, seed: int) -> None:
    """Set the first convolution of every encoder inside that asks for it; copies of one encoder stay copies."""
    encoders = [part for part in network.modules() if isinstance(part, StagedEncoder) and part.starts_from_patches]
    if not encoders:
        return
    weight = encoders[0].stem.weight
    filters = torch.zeros_like(weight)
    if distributed.is_main():
        rows = torch.randperm(len(data), generator=randomness.generator(seed, "patches"))[:IMAGES]
        found = patch_filters(data.inputs(rows), weight, encoders[0].patch, randomness.derived_seed(seed, "patch filters"))
        filters.copy_(found)
    filters = distributed.from_main(filters)
    for encoder in encoders:
        encoder.stem.weight.copy_(filters)


def patch_filters(images: Tensor, weight: Tensor, patch: int, seed: int) -> Tensor:
    """Filters of the shape of `weight`, from images (n, c, h, w) in [-1, 1]; random filters are what `weight` holds.

    A filter is the whitened centroid seen from the pixels: its response is the product of the centroid and the whitened
    patch, but for the patch's contrast. All filters have one scale: the mean variance of their responses to patches is that
    of the random ones.
    """
    pixels = images.add(1).mul(127.5).permute(0, 2, 3, 1).cpu().numpy()
    size = weight.shape[-1] * patch
    rows = np.arange(len(pixels))
    fitted = Patches.fit(pixels, rows, len(weight), seed, size)
    filters = fitted.centroids @ fitted.whitening
    filters = filters - filters.mean(dim=1, keepdim=True)  # of a patch without its mean
    random = F.pixel_shuffle(weight.cpu().float(), patch).flatten(1)
    patches = random_patches(pixels, rows, size, seed)
    before, after = ((patches @ rows.mT).var(dim=0).mean() for rows in (random, filters))
    scaled = filters * (before / after).sqrt()
    return F.pixel_unshuffle(scaled.unflatten(1, (-1, size, size)), patch)
