"""Encoders, heads and generators, for images of any size from 8 to 256 and for vectors."""

from sao.networks.biggan import Generator
from sao.networks.biggan_encoder import BigGANEncoder
from sao.networks.discriminator import Discriminator, Encoder
from sao.networks.ema import MovingAverage
from sao.networks.head import EmbeddingHead, LocalHead, ProjectionHead, Prototypes, ScoreHead
from sao.networks.mlp import VectorEncoder, VectorGenerator
from sao.networks.partner import Partner
from sao.networks.plain_resnet import PlainResNet
from sao.networks.resnet import ResNet, resnet_stages

__all__ = [
    "BigGANEncoder",
    "Discriminator",
    "EmbeddingHead",
    "Encoder",
    "Generator",
    "LocalHead",
    "MovingAverage",
    "Partner",
    "PlainResNet",
    "ProjectionHead",
    "Prototypes",
    "ResNet",
    "ScoreHead",
    "VectorEncoder",
    "VectorGenerator",
    "resnet_stages",
]
