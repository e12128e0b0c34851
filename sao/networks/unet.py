"""The network of a diffusion model, which comes from outside, as an encoder: a map on its way up again, averaged."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sao.networks.base import Encoder

Draw = Callable[[str, tuple[int, ...]], Tensor]  # (name, shape of a sample) → uniform numbers (n, *shape) in [0, 1)


class UNet(Encoder):
    """`network` is diffusers' UNet2DModel, or has its parts."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network: Any = network
        self.dropouts = replace_dropouts(network)
        replace_upsamplers(network)
        self.feature_size = self.network.up_blocks[1].resnets[-1].out_channels

    def forward(self, inputs: Tensor) -> Tensor:
        """Features of images as they are, which is nearly what the first time is for."""
        return self.features_at(inputs, torch.zeros(inputs.shape[0], dtype=torch.long, device=inputs.device))

    def predicted_noise(
        self, images: Tensor, times: Tensor, draw: Draw | None = None, network: Callable[..., Any] | None = None
    ) -> Tensor:
        """The noise in images at times (n,), from 0; `draw` gives the numbers for dropout, `network` stands in for the UNet."""
        for dropout in self.dropouts:
            dropout.draw = draw
        try:
            return (self.network if network is None else network)(images, times).sample
        finally:
            for dropout in self.dropouts:
                dropout.draw = None

    def leave_draws_uncompiled(self) -> None:
        """They are others in each step, for which a compiler would have to begin anew."""
        for dropout in self.dropouts:
            dropout.forward = torch.compiler.disable(dropout.forward)  # pyright: ignore[reportAttributeAccessIssue]

    def features_at(self, images: Tensor, times: Tensor) -> Tensor:
        """(n, feature_size): what leaves the last residual block of the second level upwards. What comes after is not run."""
        network = self.network
        moment = network.time_embedding(network.time_proj(times).to(images.dtype))
        maps = network.conv_in(images)
        passed_on = [maps]
        for level in network.down_blocks:
            maps, more = level(maps, moment)
            passed_on += more
        maps = network.mid_block(maps, moment)
        first, second = network.up_blocks[:2]
        blocks = len(first.resnets)
        maps = first(maps, tuple(passed_on[-blocks:]), moment)
        passed_on = passed_on[:-blocks]
        attentions = dict(second.named_children()).get("attentions")  # not every level has them
        for index, block in enumerate(second.resnets):
            if index > 0 and attentions is not None:
                maps = attentions[index - 1](maps)
            maps = block(torch.cat([maps, passed_on.pop()], dim=1), moment)
        return maps.mean((2, 3))


class DrawnDropout(nn.Module):
    """Dropout by numbers that it is given, so that they can be those of the same rows in any process and after a resume."""

    def __init__(self, name: str, share: float) -> None:
        super().__init__()
        self.name, self.share = name, share
        self.draw: Draw | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        if self.draw is None:
            return inputs
        kept = self.draw(self.name, tuple(inputs.shape[1:])) >= self.share
        return inputs * kept.to(inputs.dtype) / (1 - self.share)


class Upsampler(nn.Module):
    """Twice the size, then a convolution. That of diffusers asks how long the batch is, and so fixes it in what is exported."""

    def __init__(self, convolution: nn.Module) -> None:
        super().__init__()
        self.conv = convolution

    def forward(self, maps: Tensor, size: tuple[int, int] | None = None) -> Tensor:
        assert size is None, "every level is twice as large as the one below"
        return self.conv(F.interpolate(maps, scale_factor=2.0, mode="nearest"))


def replace_upsamplers(network: nn.Module) -> None:
    for name, layer in list(network.named_modules()):
        if name.rpartition(".")[0].endswith("upsamplers"):
            network.set_submodule(name, Upsampler(layer.get_submodule("conv")))


def replace_dropouts(network: nn.Module) -> list[DrawnDropout]:
    """Every layer that drops anything, by one that draws nothing itself."""
    found = {name: layer.p for name, layer in network.named_modules() if isinstance(layer, nn.Dropout) and layer.p > 0}
    replaced = {name: DrawnDropout(name, share) for name, share in found.items()}
    for name, dropout in replaced.items():
        network.set_submodule(name, dropout)
    return list(replaced.values())
