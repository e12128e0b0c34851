"""A small one of every network, with a batch that it takes; the tests of all networks go through them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sao.networks import (
    BigGANEncoder,
    Discriminator,
    EmbeddingHead,
    Encoder,
    Generator,
    PlainResNet,
    ProjectionHead,
    ResNet,
    ScoreHead,
    VectorEncoder,
    VectorGenerator,
)
from sao.networks.self_conditioned import ClusterGenerator, ConvolutionalEncoder
from sao.networks.spectral import normalise_spectrally


@dataclass(frozen=True)
class Example:
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]  # of one input

    def network(self) -> nn.Module:
        """In float64, with weights away from where they begin: no gain is 1 and no bias 0."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            network = self.build().double()
            with torch.no_grad():
                for parameter in network.parameters():
                    parameter += 0.1 * torch.randn_like(parameter)
        return network

    def batch(self, n: int = 4) -> Tensor:
        return torch.randn(n, *self.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def discriminator(encoder: Encoder, spectral: bool = False) -> Discriminator:
    network = Discriminator(encoder, EmbeddingHead(encoder.feature_size, 5))
    if spectral:
        normalise_spectrally(network)
    return network


def resnet() -> ResNet:
    """With 8x8, 4x4 and 2x2 feature maps: each size has a convolution of its own on the CPU."""
    return ResNet(3, (16, 32, 32), (1, 1, 1), (False, True, True))


DISCRIMINATORS = {
    "resnet": Example(lambda: discriminator(resnet()), (3, 8, 8)),
    "resnet, spectral": Example(lambda: discriminator(resnet(), spectral=True), (3, 8, 8)),
    "biggan": Example(lambda: Discriminator(BigGANEncoder(3, 8), ScoreHead(8)), (3, 8, 8)),
    "vectors": Example(lambda: discriminator(VectorEncoder(6, 32, 2)), (6,)),
    "vectors, spectral": Example(lambda: discriminator(VectorEncoder(6, 32, 2), spectral=True), (6,)),
}


class OfClusters(nn.Module):
    """A generator that is also told clusters."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = ClusterGenerator(3, 8, 3, 4, 6, 5)

    def forward(self, latents: Tensor) -> Tensor:
        return self.generator(latents, torch.arange(len(latents), device=latents.device) % 3)


OTHERS = {
    "resnet, relu": Example(lambda: ResNet(3, (8, 16), (1, 1), (False, True), activation="relu"), (3, 8, 8)),
    "resnet, patches": Example(lambda: ResNet(3, (8, 16), (1, 1), (False, True), patch=2), (3, 8, 8)),
    "plain resnet": Example(lambda: PlainResNet(3, (8, 16), (1, 1)), (3, 8, 8)),
    "plain resnet, large, elu": Example(lambda: PlainResNet(3, (8, 16), (1, 1), large=True, activation="elu"), (3, 16, 16)),
    "convolutions": Example(lambda: ConvolutionalEncoder(8, 3, 4), (3, 8, 8)),
    "projection": Example(lambda: ProjectionHead([6, 8, 8], last_norm=True), (6,)),
}
GENERATORS = {
    "generator": Example(lambda: Generator(8, 3, 4, 2, 6), (6,)),
    "generator, falling": Example(lambda: Generator(16, 3, 4, 1, 6, falling=True), (6,)),
    "generator of clusters": Example(OfClusters, (6,)),
    "generator of vectors": Example(lambda: VectorGenerator(3, 16, 2, 6), (6,)),
}
NETWORKS = DISCRIMINATORS | OTHERS | GENERATORS
ATTENTION = {"generator with attention": Example(lambda: Generator(128, 1, 1, 1, 6), (6,))}  # too large for every test
