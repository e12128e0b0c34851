"""The pair of the self-conditioned GAN: plain convolutions, with the number of a cluster as the generator's second input."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sao.networks.base import ImageEncoder, centre, check_latents, check_sizes, halvings
from sao.networks.layers import BatchNorm

SLOPE = 0.1  # of a leaky rectifier below 0
WIDEST = 8  # channels, in units of the width


class ConvolutionalEncoder(ImageEncoder):
    """(n, c, h, w) in [-1, 1] → the last feature map, flat; no norm, so that samples do not interact.

    A 3x3 convolution and a 4x4 one that halves the image, until it is 4 to 7 pixels wide, then one more 3x3.
    """

    def __init__(self, size: int = 32, channels: int = 3, width: int = 64) -> None:
        super().__init__()
        check_sizes(size=size, channels=channels, width=width)
        doublings = halvings(size)
        self.channels, self.reduction = channels, 2**doublings
        self.convolutions = nn.ModuleList()
        inputs = channels
        for index in range(doublings):
            outputs = _channels(width, index)
            self.convolutions.append(nn.Conv2d(inputs, outputs, 3, padding=1))
            self.convolutions.append(nn.Conv2d(outputs, outputs, 4, stride=2, padding=1))
            inputs = outputs
        self.convolutions.append(nn.Conv2d(inputs, _channels(width, doublings), 3, padding=1))
        self.feature_size = _channels(width, doublings) * (size // self.reduction) ** 2
        self.arrange_weights()

    def forward(self, inputs: Tensor) -> Tensor:
        x = self.arranged(inputs)
        for convolution in self.convolutions:
            x = F.leaky_relu(convolution(x), SLOPE)
        return x.flatten(1)


class ClusterGenerator(nn.Module):
    """Latents (n, latent_size) and clusters (n,), each a unit embedding → images (n, channels, size, size) in [-1, 1]."""

    def __init__(
        self,
        clusters: int,
        size: int = 32,
        channels: int = 3,
        width: int = 64,
        latent_size: int = 128,
        embedding_size: int = 256,
    ) -> None:
        super().__init__()
        check_sizes(clusters=clusters, size=size, channels=channels, width=width, latent_size=latent_size)
        doublings = halvings(size)
        self.size, self.latent_size = size, latent_size
        self.start = -(-size // 2**doublings)
        self.embedding = nn.Embedding(clusters, embedding_size)
        widths = [_channels(width, index) for index in range(doublings, -1, -1)]
        self.first = nn.Linear(latent_size + embedding_size, widths[0] * self.start**2)
        pairs = zip(widths, [*widths[1:]], strict=False)
        self.convolutions = nn.ModuleList(nn.ConvTranspose2d(i, o, 4, stride=2, padding=1) for i, o in pairs)
        self.norms = nn.ModuleList(BatchNorm(outputs) for outputs in widths[1:])
        self.last = nn.Conv2d(widths[-1], channels, 3, padding=1)

    def forward(self, latents: Tensor, clusters: Tensor) -> Tensor:
        check_latents(latents, self.latent_size)
        condition = F.normalize(self.embedding(clusters))
        x = self.first(torch.cat([latents, condition], dim=1)).unflatten(1, (-1, self.start, self.start))
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = F.relu(norm(convolution(x)))
        images = torch.tanh(self.last(x))
        return centre(images, self.size)


def _channels(width: int, doublings: int) -> int:
    return width * min(2**doublings, WIDEST)
