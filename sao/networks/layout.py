"""What networks of images share: the layout in memory of their weights and activations.

On the CPU that is channels_last, in which convolutions are up to twice as fast; where torch's own operators run it is the
contiguous one, which all of them support on every device.
"""

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sao.networks.cpu import use_cpu_operators
from sao.networks.discriminator import Encoder


def arranged(images: Tensor) -> Tensor:
    return images.contiguous(memory_format=_layout(images))


class ImageNetwork(nn.Module):
    def arrange_weights(self) -> None:
        self._apply(lambda tensor: tensor)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """What `to`, `double` and their like call; the weights take the layout that goes with the device they come to."""
        return super()._apply(lambda tensor: _weight_arranged(fn(tensor)), recurse)


class ImageEncoder(ImageNetwork, Encoder):
    channels: int
    reduction: int  # from the side of an image to that of its last feature map
    patch = 1  # pixels a side that become the channels of one position before the first convolution
    starts_from_patches = False  # whether the first convolution is set to patches of the training images before the first step

    def arranged(self, images: Tensor) -> Tensor:
        """The images as the first convolution takes them, in the layout of the weights, if this network can take them."""
        shape = images.shape
        if images.ndim != 4 or shape[0] == 0 or shape[1] != self.channels or min(shape[2:]) < self.reduction:
            raise ValueError(
                f"images must have shape (n > 0, {self.channels}, h, w) with h and w at least {self.reduction}, "
                f"got {tuple(shape)}"
            )
        if self.patch == 1:
            return arranged(images)
        if shape[2] % self.patch or shape[3] % self.patch:
            raise ValueError(f"patches of {self.patch}x{self.patch} do not divide images of {shape[2]}x{shape[3]}")
        return arranged(F.pixel_unshuffle(images, self.patch))


def _weight_arranged(tensor: Tensor) -> Tensor:
    return tensor.to(memory_format=_layout(tensor)) if tensor.ndim == 4 else tensor


def _layout(tensor: Tensor) -> torch.memory_format:
    return torch.channels_last if use_cpu_operators(tensor) else torch.contiguous_format
