"""Learners with one interface, and the one place where a configuration becomes a learner."""

import torch
from torch import Tensor

from sao.config import Config, Optimiser
from sao.config import Discriminator as DiscriminatorOptions
from sao.data.augmentation import Augmentation
from sao.errors import InputError
from sao.methods.controls import Random, Supervised
from sao.methods.method import Method, NonFiniteError
from sao.methods.simclr import SimCLR
from sao.methods.structural import Networks, Structural
from sao.networks import (
    BigGANEncoder,
    Discriminator,
    EmbeddingHead,
    Generator,
    ResNet,
    ScoreHead,
    VectorEncoder,
    VectorGenerator,
    resnet_stages,
)
from sao.randomness import derived_seed

__all__ = ["Method", "NonFiniteError", "Random", "SimCLR", "Structural", "Supervised", "build_method", "build_networks"]


def build_method(
    config: Config, shape: tuple[int, ...], samples: int, classes: int | None = None, labels: Tensor | None = None
) -> Method:
    """A learner at step 0 for `samples` training samples of a shape; the same configuration always gives the same weights.

    Labels are looked at by the supervised method alone, and only while it trains.
    """
    if config.train.micro_batch is not None and config.method in ("simclr", "supervised"):
        raise InputError(f"method {config.method} takes its whole batch at once: set --train.micro_batch null")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(config.seed, "weights"))
        networks = build_networks(config, shape)
        augmentation = Augmentation(config.data.flip, config.data.crop, config.data.jitter, config.seed)
        match config.method:
            case "structural":
                return Structural(
                    networks,
                    config.objective,
                    augmentation,
                    batch=config.train.batch,
                    dataset_size=samples,
                    optimisers={
                        "discriminator": _arguments(config.train.discriminator),
                        "generator": _arguments(config.train.generator),
                    },
                    ema=config.train.ema,
                    micro_batch=config.train.micro_batch,
                    seed=config.seed,
                )
            case "simclr":
                return SimCLR(
                    networks.discriminator,
                    networks.backbone_size,
                    config.contrast,
                    augmentation,
                    batch=config.train.batch,
                    optimiser=config.train.discriminator,
                    ema=config.train.ema,
                )
            case "supervised":
                if classes is None:
                    raise InputError("method supervised needs labels, and this data has none")
                return Supervised(
                    networks.discriminator,
                    networks.backbone_size,
                    classes,
                    labels,
                    augmentation,
                    batch=config.train.batch,
                    optimiser=_arguments(config.train.discriminator),
                    ema=config.train.ema,
                    seed=config.seed,
                )
            case "random":
                return Random(networks.discriminator)


def build_networks(config: Config, shape: tuple[int, ...]) -> Networks:
    """The pair for samples of a shape: (c, h, w) images or (d,) vectors."""
    embedding_size = 1 if config.objective.distance == "hinge" else config.discriminator.embedding_size
    latent_size = config.generator.latent_size
    if len(shape) == 1:
        discriminator = _vector_discriminator(config.discriminator, shape[0], embedding_size)
        generator = VectorGenerator(shape[0], config.generator.width, config.generator.depth, latent_size)
        return Networks(discriminator, generator, latent_size, discriminator.feature_size, embedding_size)
    channels, height, width = shape
    if height != width or not 8 <= height <= 256:
        raise InputError(f"images must be square with 8 to 256 pixels a side, got {height}x{width}: set --data.size")
    match config.discriminator.kind:
        case "resnet":
            discriminator = _discriminator(config.discriminator, channels, height, embedding_size)
        case "biggan":
            if config.method == "structural" and config.objective.distance != "hinge":
                raise InputError("discriminator.kind biggan gives an image one score: set --objective.distance hinge")
            discriminator = _biggan_discriminator(config.discriminator, channels, height)
    generator = Generator(height, channels, config.generator.width, config.generator.depth, latent_size)
    return Networks(discriminator, generator, latent_size, discriminator.feature_size, embedding_size)


def _vector_discriminator(options: DiscriminatorOptions, inputs: int, embedding_size: int) -> Discriminator:
    if options.kind != "resnet":
        raise InputError(f"discriminator.kind {options.kind} is for images, and this data is vectors: leave it out")
    width = (options.widths or (128,))[-1]
    encoder = VectorEncoder(inputs, width, options.blocks, options.spectral_normalisation)
    return Discriminator(encoder, EmbeddingHead(width, embedding_size, options.spectral_normalisation))


def _discriminator(options: DiscriminatorOptions, channels: int, size: int, embedding_size: int) -> Discriminator:
    widths, downsample = resnet_stages(size, options.widths)
    blocks = [options.blocks] * len(widths)
    encoder = ResNet(channels, widths, blocks, downsample, options.spectral_normalisation)
    return Discriminator(encoder, EmbeddingHead(widths[-1], embedding_size, options.spectral_normalisation))


def _biggan_discriminator(options: DiscriminatorOptions, channels: int, size: int) -> Discriminator:
    if size >= 64:
        raise InputError(f"discriminator.kind biggan is BigGAN's for small images, got {size}x{size}: set --data.size 32")
    encoder = BigGANEncoder(channels, (options.widths or (256,))[-1])
    return Discriminator(encoder, ScoreHead(encoder.feature_size))


def _arguments(optimiser: Optimiser) -> dict:
    if optimiser.kind != "adamw":
        raise InputError(f"only method simclr can be trained with {optimiser.kind}: set train.*.kind to adamw")
    return {"lr": optimiser.learning_rate, "betas": optimiser.betas, "weight_decay": optimiser.weight_decay}
