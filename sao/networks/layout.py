"""What networks of images share: the layout in memory of their weights and activations."""

import torch
from torch import Tensor, nn

from sao.networks.discriminator import Encoder


class ImageNetwork(nn.Module):
    layout: torch.memory_format

    def use_layout(self, layout: torch.memory_format) -> None:
        """Keep weights and activations in a layout; in channels_last convolutions are up to twice as fast."""
        self.layout = layout
        self.to(memory_format=layout)  # pyright: ignore[reportCallIssue]


class ImageEncoder(ImageNetwork, Encoder):
    channels: int
    reduction: int  # from the side of an image to that of its last feature map

    def arranged(self, images: Tensor) -> Tensor:
        """The images in this network's layout, if it can take them."""
        shape = images.shape
        if images.ndim != 4 or shape[0] == 0 or shape[1] != self.channels or min(shape[2:]) < self.reduction:
            raise ValueError(
                f"images must have shape (n > 0, {self.channels}, h, w) with h and w at least {self.reduction}, "
                f"got {tuple(shape)}"
            )
        return images.contiguous(memory_format=self.layout)
