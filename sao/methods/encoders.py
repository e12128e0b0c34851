"""Networks as options: which encoder reads the samples, and which generator makes them."""

import copy
import math
from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal, NamedTuple, Protocol, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from sao.config.types import Decay, Depth, Int, PositiveInt, Strict
from sao.core import distributed
from sao.core import random as randomness
from sao.core.jacobian import outputs_and_norms
from sao.errors import InputError
from sao.evaluation.patches import Patches, random_patches
from sao.methods.third_party import import_unet, timm_network, transformer_block
from sao.networks import (
    BigGANEncoder,
    Discriminator,
    EmbeddingHead,
    Encoder,
    Generator,
    LocalHead,
    PlainResNet,
    ResNet,
    VectorEncoder,
    VectorGenerator,
    resnet_stages,
)
from sao.networks.any_module import ModuleEncoder, mixing_layer, random_layer
from sao.networks.resnet import StagedEncoder
from sao.networks.spectral import normalise_spectrally
from sao.networks.unet import UNet
from sao.networks.vit import VisionTransformer

Shape = tuple[int, ...]


class AnyEncoderOptions(Strict, ABC):
    """The options of one encoder, which know how to build it."""

    name: str
    general: ClassVar[bool] = True  # whether a method may use it that asks for no encoder in particular

    @abstractmethod
    def build(self, shape: Shape) -> nn.Module:
        """The network for samples of a shape: (c, h, w) images or (d,) vectors; an `Encoder`, or any other module."""


class ResNetOptions(AnyEncoderOptions):
    """The paper's backbone for images, or with BatchNorm the ResNet that baselines are usually trained with."""

    name: Literal["resnet"] = "resnet"
    widths: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] | None = Field(
        default=None, description="channels of each stage; null: the paper's for the image size"
    )
    blocks: Depth = Field(default=2, description="residual blocks in each stage")
    norm: Literal["group", "batch"] = Field(
        default="group", description="group: the paper's; batch: torchvision's, with strides and a norm after each convolution"
    )
    patch: PositiveInt = Field(
        default=1, description="pixels a side that are one position of the first layer; 1: the paper's, 2: faster"
    )
    activation: Literal["elu", "relu"] | None = Field(default=None, description="null: elu with group, relu with batch")
    start: Literal["random", "patches"] = Field(
        default="random",
        description="filters of the first convolution before the first step; patches: whitened k-means patches of training "
        "images, scaled so that the responses deviate as much as those of random filters",
    )

    def build(self, shape: Shape) -> Encoder:
        encoder = self._built(shape)
        encoder.starts_from_patches = self.start == "patches"
        kernel = encoder.stem.kernel_size[0] * self.patch
        if encoder.starts_from_patches and kernel > shape[1]:
            raise InputError(f"encoder.start patches needs images of at least {kernel}x{kernel} pixels: set it to random")
        return encoder

    def _built(self, shape: Shape) -> ResNet | PlainResNet:
        channels, size = image_shape(shape, "resnet")
        check_patches(size, self.patch)
        size //= self.patch
        if self.norm == "batch":
            usual = self.widths or (64, 128, 256, 512)
            return PlainResNet(channels, usual, [self.blocks] * len(usual), size >= 64, self.activation or "relu", self.patch)
        widths, downsample = resnet_stages(size, self.widths)
        return ResNet(channels, widths, [self.blocks] * len(widths), downsample, self.activation or "elu", self.patch)


class PerceptronOptions(AnyEncoderOptions):
    """For vectors: a residual multi-layer perceptron."""

    name: Literal["perceptron"] = "perceptron"
    width: PositiveInt = Field(default=128, description="units of each layer")
    depth: Depth = Field(default=2, description="residual layers")

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


class ViTOptions(AnyEncoderOptions):
    """A vision transformer with fixed positions; its feature is the class token. The defaults are ViT-small."""

    name: Literal["vit"] = "vit"
    patch: PositiveInt | None = Field(
        default=None, description="pixels a side of a patch; null: 4 at 32x32, 8 at 128x128, and the like at other sizes"
    )
    width: PositiveInt = Field(default=384, description="numbers in a token, a multiple of 4")
    depth: Depth = Field(default=12, description="blocks")
    heads: PositiveInt = Field(default=12, description="of the attention in each block")

    @model_validator(mode="after")
    def _tokens_can_be_divided(self) -> Self:
        check_tokens(self.width, self.heads)
        return self

    def build(self, shape: Shape) -> VisionTransformer:
        channels, size = image_shape(shape, "vit")
        patch = self.patch or usual_patch(size)
        check_patches(size, patch)
        return VisionTransformer(channels, size, patch, self.width, self.depth, self.heads, transformer_block())


class UNetOptions(AnyEncoderOptions):
    """The network of a diffusion model. The defaults are those of the first of them, for 32x32 images."""

    name: Literal["unet"] = "unet"
    general: ClassVar[bool] = False
    channels: Annotated[Int, Field(ge=4)] = Field(default=128, description="of the first level")
    multipliers: Annotated[tuple[PositiveInt, ...], Field(min_length=2)] | None = Field(
        default=None, description="of the channels in each level; null: [1, 2, 2, 2], or fewer that end in a map of 4x4 or more"
    )
    blocks: Depth = Field(default=2, description="residual blocks in each level downwards; upwards there is one more")
    attention: tuple[PositiveInt, ...] = Field(
        default=(16,), description="sides of the maps that attend to themselves; that in the middle always does"
    )
    dropout: Decay = Field(default=0.1, description="share of activations that are left out of each block while learning")

    def build(self, shape: Shape) -> UNet:
        channels, size = image_shape(shape, "unet")
        multipliers = self.multipliers or usual_multipliers(size)
        levels = len(multipliers)
        if size % 2 ** (levels - 1):
            raise InputError(
                f"images of {size}x{size} cannot be halved {levels - 1} times: set --encoder.multipliers or --data.size"
            )
        attends = [size // 2**level in self.attention for level in range(levels)]
        network = import_unet()(
            sample_size=size,
            in_channels=channels,
            out_channels=channels,
            block_out_channels=[self.channels * multiplier for multiplier in multipliers],
            layers_per_block=self.blocks,
            down_block_types=["AttnDownBlock2D" if attend else "DownBlock2D" for attend in attends],
            up_block_types=["AttnUpBlock2D" if attend else "UpBlock2D" for attend in reversed(attends)],
            attention_head_dim=None,  # one head
            norm_num_groups=math.gcd(32, self.channels, max(1, self.channels // 4)),  # 32, or four channels and more in each
            norm_eps=1e-6,
            downsample_padding=0,
            flip_sin_to_cos=False,
            freq_shift=1,
            dropout=self.dropout,
        )
        return UNet(network)


class TimmOptions(AnyEncoderOptions):
    """A network of timm with fresh weights: --encoder timm:NAME."""

    name: Literal["timm"] = "timm"
    model: Annotated[str, Field(min_length=1)] = Field(
        default="convnext_atto", description="its name in timm.list_models(); weights are never downloaded"
    )

    def build(self, shape: Shape) -> nn.Module:
        channels, size = image_shape(shape, f"timm:{self.model}")
        return timm_network(self.model, channels, size)


EncoderOptions = Annotated[
    ResNetOptions
    | PerceptronOptions
    | BigGANOptions
    | ViTOptions
    | UNetOptions
    | TimmOptions,
    Field(discriminator="name"),
]  # fmt: skip


class GeneratorOptions(Strict):
    """BigGAN-deep without classes for images, a perceptron for vectors."""

    width: PositiveInt = Field(default=128, description="channels are multiples of it; for vectors the units of a layer")
    depth: Depth = Field(default=2, description="blocks at each resolution; for vectors the number of layers")
    latent_size: PositiveInt = Field(default=128, description="numbers in a latent vector")
    falling: bool = Field(default=False, description="halve the channels as images grow, below 64x64 too: faster; false: paper")

    def build(self, shape: Shape) -> nn.Module:
        if len(shape) == 1:
            if self.falling:
                raise InputError("method.generator.falling is for images, and this data is vectors: leave it out")
            return VectorGenerator(shape[0], self.width, self.depth, self.latent_size)
        channels, size = image_shape(shape, "generator")
        return Generator(size, channels, self.width, self.depth, self.latent_size, self.falling)


KNOWN = (ResNetOptions, PerceptronOptions, BigGANOptions, ViTOptions, UNetOptions)  # their networks need no trial


def encoder_for(options: AnyEncoderOptions | None, shape: Shape) -> Encoder:
    """The encoder that was asked for, or the usual one for samples of a shape."""
    options = options or encoder_for_shape(shape)
    network = options.build(shape)
    if isinstance(options, KNOWN):
        assert isinstance(network, Encoder)
        return network
    mixing = mixing_layer(network)
    if mixing is not None and distributed.world_size() > 1:
        raise InputError(f"{_called(options)} has {mixing}, whose moments would be of one process's rows: train in one process")
    try:
        return network if isinstance(network, Encoder) else ModuleEncoder(network, shape)
    except Exception as error:
        if is_meta(network):  # it cannot be tried without values: who builds it so builds it again
            raise
        sides = "x".join(map(str, shape))
        raise InputError(f"{_called(options)} does not take samples of {sides}: {str(error).splitlines()[0]}") from None


def _called(options: AnyEncoderOptions) -> str:
    return f"encoder timm:{options.model}" if isinstance(options, TimmOptions) else f"encoder {options.name}"


def is_meta(network: nn.Module) -> bool:
    return any(tensor.is_meta for tensor in network.parameters())


def check_discriminator(encoder: Encoder, options: AnyEncoderOptions, shape: Shape, jacobians: bool) -> None:
    """Refuse a network whose samples interact or that draws at random; with `jacobians`, one that lacks the derivatives."""
    refused = f"{_called(options)} cannot be the discriminator's"
    advice = "choose another encoder, or a --method without a discriminator"
    if (layer := mixing_layer(encoder)) is not None:
        raise InputError(
            f"{refused}: with {layer} samples of a batch interact, and each needs a Jacobian of its own; "
            f"use GroupNorm or LayerNorm (timm:convnext_atto has it), or {advice}"
        )
    if (layer := random_layer(encoder)) is not None:
        raise InputError(f"{refused}: {layer} draws at random, and a Jacobian is one of a fixed function; set it to 0")
    if is_meta(encoder):
        return
    network = copy.deepcopy(encoder).train()
    inputs = torch.randn(3, *shape, generator=randomness.generator(0, "trial"))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        together, alone = network(inputs)[:1], network(inputs[:1])
    if not (together - alone).abs().max() <= 1e-3 * together.abs().max().clamp_min(1e-3):  # NaN is no agreement
        raise InputError(f"{refused}: what it makes of a sample depends on the other samples, or on chance; {advice}")
    if not jacobians:
        return
    try:
        _, norms = outputs_and_norms.unchecked(network, inputs)
        norms.sum().backward()
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{refused}: the norm of its Jacobian cannot be differentiated ({reason}); {advice}") from None


def encoder_for_shape(shape: Shape) -> ResNetOptions | PerceptronOptions:
    return PerceptronOptions() if len(shape) == 1 else ResNetOptions()


class Local(NamedTuple):
    """What a discriminator has beside its head to embed positions of a middle stage."""

    stage: int | None  # None: the last but one
    size: int  # numbers in an embedding


def discriminator_for(
    options: AnyEncoderOptions | None,
    shape: Shape,
    embedding_size: int,
    spectral_normalisation: bool,
    local: Local | None = None,
    jacobians: bool = True,
) -> Discriminator:
    """A network from outside is tried first; `jacobians` says whether their norms will be asked for."""
    if isinstance(options, ResNetOptions) and options.norm == "batch":
        raise InputError("a discriminator's samples must not interact, and with encoder.norm batch they do: set it to group")
    if spectral_normalisation and isinstance(options, ResNetOptions) and options.start == "patches":
        raise InputError("method.spectral_normalisation rescales the filters of encoder.start patches: choose one of the two")
    encoder = encoder_for(options, shape)
    if options is not None and not isinstance(options, KNOWN):
        check_discriminator(encoder, options, shape, jacobians)
    head = EmbeddingHead(encoder.feature_size, embedding_size)
    discriminator = Discriminator(encoder, head)
    if local is not None:
        stage = _stage_of(encoder, local.stage)
        local_head = LocalHead(encoder.stage_widths()[stage], local.size)
        discriminator = Discriminator(encoder, head, local_head, stage)
    if spectral_normalisation:
        normalise_spectrally(discriminator)
    return discriminator


def _stage_of(encoder: Encoder, wanted: int | None) -> int:
    stages = len(encoder.stage_widths())
    if stages == 0:
        raise InputError(
            "local embeddings are for encoders that make maps of an image in stages: "
            "set --encoder resnet, or method.local_weight and method.local_cluster_weight to 0"
        )
    if wanted is not None and wanted >= stages:
        raise InputError(f"method.local_stage is {wanted}, and the encoder has stages 0 to {stages - 1}: choose one of them")
    return max(0, stages - 2) if wanted is None else wanted


def check_tokens(width: int, heads: int) -> None:
    if width % heads or width % 4:
        raise ValueError(f"width must be a multiple of 4 and of heads, got {width} with {heads} heads")


def check_patches(size: int, patch: int) -> None:
    if size % patch:
        raise InputError(
            f"patches of {patch}x{patch} do not divide images of {size}x{size}: set --encoder.patch or --data.size"
        )


def usual_patch(size: int) -> int:
    """The largest patch of the published ones that still leaves 7 a side; the smallest where none does."""
    return next((patch for patch in (8, 4, 2) if size % patch == 0 and size // patch >= 7), 2)


def usual_multipliers(size: int) -> tuple[int, ...]:
    halvings = [count for count in (1, 2, 3) if size % 2**count == 0 and size // 2**count >= 4]
    return (1, 2, 2, 2)[: 1 + max(halvings, default=1)]


def image_shape(shape: Shape, who: str) -> tuple[int, int]:
    """(channels, size) of square images that the networks can take."""
    if len(shape) == 1:
        raise InputError(f"encoder {who} is for images, and this data is vectors: set --encoder perceptron")
    channels, height, width = shape
    if height != width or not 8 <= height <= 256:
        raise InputError(f"images must be square with 8 to 256 pixels a side, got {height}x{width}: set --data.size")
    return channels, height


IMAGES = 2000  # of which patches are taken


class TrainingData(Protocol):
    """The training set, as `Method.refresh` may read it."""

    def __len__(self) -> int: ...

    def inputs(self, rows: Tensor) -> Tensor:
        """Network inputs on the method's device."""
        ...


@torch.no_grad()
def start_from_patches(network: nn.Module, data: TrainingData, seed: int) -> None:
    """Set the first convolution of every encoder inside that asks for it; copies of one encoder stay copies."""
    encoders = [part for part in network.modules() if isinstance(part, StagedEncoder) and part.starts_from_patches]
    if not encoders:
        return
    weight = encoders[0].stem.weight
    filters = torch.zeros_like(weight)
    if distributed.is_main():
        rows = torch.randperm(len(data), generator=randomness.generator(seed, "patches"))[:IMAGES]
        found = patch_filters(data.inputs(rows), weight, encoders[0].patch, randomness.derived_seed(seed, "patch filters"))
        filters.copy_(found)
    filters = distributed.from_main(filters)
    for encoder in encoders:
        encoder.stem.weight.copy_(filters)


def patch_filters(images: Tensor, weight: Tensor, patch: int, seed: int) -> Tensor:
    """Filters of the shape of `weight`, which holds random ones, from images (n, c, h, w) in [-1, 1].

    A filter is the whitened centroid seen from the pixels. The mean variance of their responses is that of the random ones.
    """
    pixels = images.add(1).mul(127.5).permute(0, 2, 3, 1).cpu().numpy()
    size = weight.shape[-1] * patch
    rows = np.arange(len(pixels))
    fitted = Patches.fit(pixels, rows, len(weight), seed, size)
    filters = fitted.centroids @ fitted.whitening
    filters = filters - filters.mean(dim=1, keepdim=True)  # of a patch without its mean
    random = F.pixel_shuffle(weight.cpu().float(), patch).flatten(1)
    patches = random_patches(pixels, rows, size, seed)
    before, after = ((patches @ rows.mT).var(dim=0).mean() for rows in (random, filters))
    scaled = filters * (before / after).sqrt()
    return F.pixel_unshuffle(scaled.unflatten(1, (-1, size, size)), patch)
