"""What BigBiGAN adds to a generator: an encoder of latents, and a discriminator of images, of latents and of their pairs."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sao.networks.base import Encoder, check_sizes, halvings
from sao.networks.biggan import ATTENTION_RESOLUTION, EncoderBlock, SelfAttention, SummedBlocks
from sao.networks.spectral import normalise_spectrally

WIDEST = 16  # channels, in units of the width


class ImageTower(SummedBlocks):
    """The body of BigGAN's discriminator for any size: blocks halve the image to 4 to 7 pixels and double the channels."""

    def __init__(self, size: int, channels: int = 3, width: int = 64) -> None:
        super().__init__()
        check_sizes(size=size, channels=channels, width=width)
        halved_times = halvings(size)
        self.channels, self.reduction = channels, 2**halved_times
        self.blocks = nn.Sequential()
        inputs, side = channels, size
        for index in range(halved_times + 1):
            outputs, halved = width * min(2**index, WIDEST), index < halved_times
            self.blocks.append(EncoderBlock(inputs, outputs, pooled=halved, first=index == 0))
            inputs, side = outputs, side // 2 if halved else side
            if halved and side <= ATTENTION_RESOLUTION < 2 * side:
                self.blocks.append(SelfAttention(outputs))
        self.feature_size = inputs
        self.initialise()


class ResidualPerceptron(nn.Module):
    """(n, inputs) → (n, width): a linear layer, then residual ones."""

    def __init__(self, inputs: int, width: int, depth: int) -> None:
        super().__init__()
        check_sizes(inputs=inputs, width=width, depth=depth)
        self.first = nn.Linear(inputs, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth - 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = x + layer(F.relu(x))
        return x


class JointDiscriminator(nn.Module):
    """Images x and latents z → scores (n, 3): of x alone, of z alone, and of the pair. Every layer is normalised spectrally."""

    def __init__(self, tower: ImageTower, latent_size: int, width: int, depth: int) -> None:
        super().__init__()
        self.tower = tower  # F
        self.of_latents = ResidualPerceptron(latent_size, width, depth)  # H
        self.of_pairs = ResidualPerceptron(tower.feature_size + width, width, depth)  # J
        sizes = tower.feature_size, width, width
        self.scores = nn.ModuleList(nn.Linear(size, 1) for size in sizes)
        normalise_spectrally(self)

    def forward(self, images: Tensor, latents: Tensor) -> Tensor:
        f, h = self.tower(images), self.of_latents(latents)
        parts = f, h, self.of_pairs(torch.cat([f, h], dim=1))
        return torch.cat([score(part) for score, part in zip(self.scores, parts, strict=True)], dim=1)


class LatentEncoder(nn.Module):
    """Images → mean and deviation (n, latent_size) of the latents that they may have come from."""

    def __init__(self, backbone: Encoder, latent_size: int, width: int, depth: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.hidden = ResidualPerceptron(backbone.feature_size, width, depth)
        self.output = nn.Linear(width, 2 * latent_size)

    def features(self, images: Tensor) -> Tensor:
        return self.backbone(images)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        mean, deviation = self.output(F.relu(self.hidden(self.backbone(images)))).chunk(2, dim=1)
        return mean, F.softplus(deviation)
