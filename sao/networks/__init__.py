"""Encoders, heads and generators, for images of any size from 8 to 256 and for vectors."""

from sao.networks.base import Discriminator, Encoder
from sao.networks.biggan import BigGANEncoder, Generator
from sao.networks.ema import EMA, Teacher
from sao.networks.head import EmbeddingHead, LocalHead, ProjectionHead, Prototypes, ScoreHead
from sao.networks.mlp import VectorEncoder, VectorGenerator
from sao.networks.resnet import PlainResNet, ResNet, resnet_stages

__all__ = [
    "EMA",
    "BigGANEncoder",
    "Discriminator",
    "EmbeddingHead",
    "Encoder",
    "Generator",
    "LocalHead",
    "PlainResNet",
    "ProjectionHead",
    "Prototypes",
    "ResNet",
    "ScoreHead",
    "Teacher",
    "VectorEncoder",
    "VectorGenerator",
    "resnet_stages",
]
