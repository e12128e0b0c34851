"""What networks share: checks of arguments, encoders and the heads behind them, the layout of images in memory.

The length of a batch is `x.shape[0]`: `len(x)` would be a constant of what is exported. The layout is channels_last on the CPU,
where convolutions are up to twice as fast so, and elsewhere contiguous, which every operator of torch supports.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sao.networks.cpu import use_cpu_operators


def check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")


def check_latents(latents: Tensor, latent_size: int) -> None:
    if latents.ndim != 2 or latents.shape[0] == 0 or latents.shape[1] != latent_size:
        raise ValueError(f"latents must have shape (n > 0, {latent_size}), got {tuple(latents.shape)}")


def halvings(size: int) -> int:
    """How often a side is halved until 4 to 7 pixels are left; at least once."""
    return max(1, (size // 4).bit_length() - 1)


def centre(images: Tensor, size: int) -> Tensor:
    """The middle of images that have grown larger than they are to be."""
    margin = (images.shape[-1] - size) // 2
    return images[..., margin : margin + size, margin : margin + size]


class Encoder(nn.Module, ABC):
    """Inputs → backbone features (n, feature_size), which are what is evaluated and what neighbours are found by."""

    feature_size: int

    @abstractmethod
    def forward(self, inputs: Tensor) -> Tensor: ...

    def blocks_of_maps(self) -> Iterable[nn.Module]:
        """The parts whose outputs are maps (n, c, h, w) of the image, in their order; none where there are no maps."""
        return ()

    def stage_widths(self) -> Sequence[int]:
        """Channels of the map at the end of each stage that `with_map` can give; none where it cannot."""
        return ()

    def with_map(self, inputs: Tensor, stage: int) -> tuple[Tensor, Tensor]:
        """The features and, from the same pass, the map (n, c, h, w) at the end of a stage."""
        raise NotImplementedError


class Discriminator(nn.Module):
    """Inputs → backbone features (n, b) and what the head makes of them: unnormalised embeddings (n, p) or scores (n, 1)."""

    def __init__(self, encoder: Encoder, head: nn.Module, local_head: nn.Module | None = None, local_stage: int = 0) -> None:
        """A `local_head` embeds the positions of the map at the end of the `local_stage`."""
        super().__init__()
        self.encoder, self.head, self.local_head, self.local_stage = encoder, head, local_head, local_stage

    def features(self, inputs: Tensor) -> Tensor:
        """The backbone features alone: the head is not run."""
        return self.encoder(inputs)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        features = self.encoder(inputs)
        return features, self.head(features)

    def with_local(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Also the local embeddings (n, positions, q)."""
        assert self.local_head is not None
        features, maps = self.encoder.with_map(inputs, self.local_stage)
        return features, self.head(features), self.local_head(maps)


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
