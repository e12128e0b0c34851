"""Encoders, heads and generators, for images of any size from 8 to 256 and for vectors."""

from sao.networks.biggan import Generator
from sao.networks.biggan_encoder import BigGANEncoder
from sao.networks.discriminator import Discriminator, Encoder
from sao.networks.ema import EMA
from sao.networks.head import EmbeddingHead, LocalHead, ProjectionHead, Prototypes, ScoreHead
from sao.networks.mlp import VectorEncoder, VectorGenerator
from sao.networks.plain_resnet import PlainResNet
from sao.networks.resnet import ResNet, resnet_stages
from sao.networks.teacher import Teacher

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
