"""Networks as options: which encoder reads the samples, and which generator makes them."""

from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import nn

from sao.errors import InputError
from sao.networks import (
    BigGANEncoder,
    Discriminator,
    EmbeddingHead,
    Encoder,
    Generator,
    PlainResNet,
    ResNet,
    VectorEncoder,
    VectorGenerator,
    resnet_stages,
)
from sao.networks.spectral import normalise_spectrally
from sao.options import PositiveInt, Strict

Shape = tuple[int, ...]


class AnyEncoderOptions(Strict, ABC):
    """The options of one encoder, which know how to build it."""

    name: str
    general: ClassVar[bool] = True  # whether a method may use it that asks for no encoder in particular

    @abstractmethod
    def build(self, shape: Shape) -> Encoder:
        """The encoder for samples of a shape: (c, h, w) images or (d,) vectors."""


class ResNetOptions(AnyEncoderOptions):
    """The paper's backbone for images, or with BatchNorm the ResNet that baselines are usually trained with."""

    name: Literal["resnet"] = "resnet"
    widths: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] | None = Field(
        default=None, description="channels of each stage; null: the paper's for the image size"
    )
    blocks: PositiveInt = Field(default=2, description="residual blocks in each stage")
    norm: Literal["group", "batch"] = Field(
        default="group", description="group: the paper's; batch: torchvision's, with strides and a norm after each convolution"
    )
    activation: Literal["elu", "relu"] | None = Field(default=None, description="null: elu with group, relu with batch")

    def build(self, shape: Shape) -> Encoder:
        channels, size = image_shape(shape, "resnet")
        if self.norm == "batch":
            usual = self.widths or (64, 128, 256, 512)
            return PlainResNet(channels, usual, [self.blocks] * len(usual), size >= 64, self.activation or "relu")
        widths, downsample = resnet_stages(size, self.widths)
        return ResNet(channels, widths, [self.blocks] * len(widths), downsample, self.activation or "elu")


class PerceptronOptions(AnyEncoderOptions):
    """For vectors: a residual multi-layer perceptron."""

    name: Literal["perceptron"] = "perceptron"
    width: PositiveInt = Field(default=128, description="units of each layer")
    depth: PositiveInt = Field(default=2, description="residual layers")

    def build(self, shape: Shape) -> Encoder:
        if len(shape) != 1:
            raise InputError("encoder perceptron is for vectors, and this data is images: set --encoder resnet")
        return VectorEncoder(shape[0], self.width, self.depth)


class BigGANOptions(AnyEncoderOptions):
    """The body of BigGAN's own discriminator for small images."""

    name: Literal["biggan"] = "biggan"
    general: ClassVar[bool] = False
    width: PositiveInt = Field(default=256, description="channels of every block")

    def build(self, shape: Shape) -> Encoder:
        channels, size = image_shape(shape, "biggan")
        if size >= 64:
            raise InputError(f"encoder biggan is for small images, got {size}x{size}: set --data.size 32")
        return BigGANEncoder(channels, self.width)


EncoderOptions = Annotated[
    ResNetOptions
    | PerceptronOptions
    | BigGANOptions,
    Field(discriminator="name"),
]  # fmt: skip


class GeneratorOptions(Strict):
    """BigGAN-deep without classes for images, a perceptron for vectors."""

    width: PositiveInt = Field(default=128, description="channels are multiples of it; for vectors the units of a layer")
    depth: PositiveInt = Field(default=2, description="blocks at each resolution; for vectors the number of layers")
    latent_size: PositiveInt = Field(default=128, description="numbers in a latent vector")

    def build(self, shape: Shape) -> nn.Module:
        if len(shape) == 1:
            return VectorGenerator(shape[0], self.width, self.depth, self.latent_size)
        channels, size = image_shape(shape, "generator")
        return Generator(size, channels, self.width, self.depth, self.latent_size)


def encoder_for(options: EncoderOptions | None, shape: Shape) -> Encoder:
    """The encoder that was asked for, or the usual one for samples of a shape."""
    return (options or encoder_for_shape(shape)).build(shape)


def encoder_for_shape(shape: Shape) -> ResNetOptions | PerceptronOptions:
    return PerceptronOptions() if len(shape) == 1 else ResNetOptions()


def discriminator_for(
    options: EncoderOptions | None, shape: Shape, embedding_size: int, spectral_normalisation: bool
) -> Discriminator:
    if isinstance(options, ResNetOptions) and options.norm == "batch":
        raise InputError("a discriminator's samples must not interact, and with encoder.norm batch they do: set it to group")
    encoder = encoder_for(options, shape)
    discriminator = Discriminator(encoder, EmbeddingHead(encoder.feature_size, embedding_size))
    if spectral_normalisation:
        normalise_spectrally(discriminator)
    return discriminator


def image_shape(shape: Shape, who: str) -> tuple[int, int]:
    """(channels, size) of square images that the networks can take."""
    if len(shape) == 1:
        raise InputError(f"encoder {who} is for images, and this data is vectors: set --encoder perceptron")
    channels, height, width = shape
    if height != width or not 8 <= height <= 256:
        raise InputError(f"images must be square with 8 to 256 pixels a side, got {height}x{width}: set --data.size")
    return channels, height
