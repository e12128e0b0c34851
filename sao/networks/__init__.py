"""Discriminators and generators, for images of any size from 8 to 256 and for vectors."""

from sao.networks.average import MovingAverage
from sao.networks.biggan import Generator
from sao.networks.biggan_discriminator import BigGANDiscriminator
from sao.networks.mlp import VectorDiscriminator, VectorGenerator
from sao.networks.resnet import Discriminator, discriminator_stages

__all__ = [
    "BigGANDiscriminator",
    "Discriminator",
    "Generator",
    "MovingAverage",
    "VectorDiscriminator",
    "VectorGenerator",
    "discriminator_stages",
]
