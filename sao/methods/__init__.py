"""Learners with one interface, and the one place where a configuration becomes a learner."""

import torch
from torch import Tensor

from sao.config import Config, Optimiser
from sao.data.augmentation import Augmentation
from sao.errors import InputError
from sao.methods.controls import Random, Supervised
from sao.methods.method import Method, NonFiniteError
from sao.methods.structural import Networks, Structural
from sao.networks import Discriminator, Generator, VectorDiscriminator, VectorGenerator, discriminator_stages
from sao.randomness import derived_seed

__all__ = ["Method", "NonFiniteError", "Random", "Structural", "Supervised", "build_method", "build_networks"]


def build_method(
    config: Config, shape: tuple[int, ...], samples: int, classes: int | None = None, labels: Tensor | None = None
) -> Method:
    """A learner at step 0 for `samples` training samples of a shape; the same configuration always gives the same weights.

    Labels are looked at by the supervised method alone, and only while it trains.
    """
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
    spectral, latent_size = config.discriminator.spectral_normalisation, config.generator.latent_size
    if len(shape) == 1:
        width = (config.discriminator.widths or (128,))[-1]
        discriminator = VectorDiscriminator(shape[0], width, config.discriminator.blocks, embedding_size, spectral)
        generator = VectorGenerator(shape[0], config.generator.width, config.generator.depth, latent_size)
        return Networks(discriminator, generator, latent_size, width, embedding_size)
    channels, height, width = shape
    if height != width or not 8 <= height <= 256:
        raise InputError(f"images must be square with 8 to 256 pixels a side, got {height}x{width}: set --data.size")
    widths, downsample = discriminator_stages(height, config.discriminator.widths)
    blocks = [config.discriminator.blocks] * len(widths)
    discriminator = Discriminator(channels, widths, blocks, downsample, embedding_size, spectral)
    generator = Generator(height, channels, config.generator.width, config.generator.depth, latent_size)
    return Networks(discriminator, generator, latent_size, widths[-1], embedding_size)


def _arguments(optimiser: Optimiser) -> dict:
    return {"lr": optimiser.learning_rate, "betas": optimiser.betas, "weight_decay": optimiser.weight_decay}
