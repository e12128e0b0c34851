"""DDPM: a network is trained to predict the noise in a noised image. It turns noise into images, and its maps are features."""

from functools import partial
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from sao.config.types import Decay, Int, PositiveFloat
from sao.core import distributed
from sao.core import random as randomness
from sao.data.augmentation import Augmentation
from sao.methods.base import Batch, Context, Generative, MethodOptions, Scalars, images_only, normal_rows, uniform_rows
from sao.methods.encoders import UNetOptions
from sao.methods.optimisers import AdamW
from sao.networks import EMA
from sao.networks.unet import UNet

TIMES = 1000
VARIANCES = (1e-4, 0.02)  # of the noise that the first step adds, and the last; in between they rise evenly

Variance = Literal["small", "large"]


class Diffusion(nn.Module):
    """x_t = √ᾱ_t x + √(1 − ᾱ_t) ε. Times are counted from 0; what is kept here follows from the constants above."""

    signal: Tensor
    deviation: Tensor

    def __init__(self) -> None:
        super().__init__()
        kept = (1 - torch.linspace(*VARIANCES, TIMES, dtype=torch.float64, device="cpu")).cumprod(0)
        self.kept = kept.tolist()  # ᾱ
        self.register_buffer("signal", kept.sqrt().float(), persistent=False)
        self.register_buffer("deviation", (1 - kept).sqrt().float(), persistent=False)

    def noised(self, images: Tensor, noise: Tensor, times: Tensor) -> Tensor:
        """Each image (n, c, h, w) as it is at its own time (n,)."""
        signal, deviation = (table[times][:, None, None, None] for table in (self.signal, self.deviation))
        return signal * images + deviation * noise

    def back(self, noised: Tensor, noise: Tensor, now: int, before: int | None, variance: Variance) -> tuple[Tensor, float]:
        """Mean and deviation of the images at an earlier time, given their noise; "small": of a way to a known image."""
        kept, kept_before = self.kept[now], 1.0 if before is None else self.kept[before]
        clean = ((noised - (1 - kept) ** 0.5 * noise) / kept**0.5).clamp(-1, 1)
        share = kept / kept_before
        mean = (kept_before**0.5 * (1 - share) * clean + share**0.5 * (1 - kept_before) * noised) / (1 - kept)
        if before is None:
            return mean, 0.0
        small = (1 - kept_before) / (1 - kept) * (1 - share)
        return mean, (small if variance == "small" else 1 - share) ** 0.5


def ways_back(steps: int) -> list[tuple[int, int | None]]:
    """(now, before) of so many steps from noise to an image, evenly spread over all times."""
    times = [round((TIMES - 1) * (1 - index / max(1, steps - 1))) for index in range(steps)]
    return list(zip(times, [*times[1:], None], strict=True))


class Optimiser(AdamW):
    betas: tuple[Decay, Decay] = Field(default=(0.9, 0.999), description="decay of the first and of the second moment")


class Options(MethodOptions):
    """A denoising diffusion model."""

    name: Literal["ddpm"] = "ddpm"
    encoders: ClassVar[tuple[str, ...] | None] = ("unet",)
    generates: ClassVar[bool] = True
    optimiser: Optimiser = Field(default=Optimiser(), description="how the network is updated")
    clip_grad_norm: PositiveFloat | None = Field(default=1.0, description="largest norm of a gradient; null: no clipping")
    ema_decay: Decay = Field(
        default=0.9999, description="decay of the EMA of the network, which gives features and samples; less in the first steps"
    )
    feature_time: Annotated[Int, Field(ge=1, le=TIMES)] = Field(
        default=11, description=f"by how many of the {TIMES} steps an image is noised before its features are taken"
    )
    sampling_steps: Annotated[Int, Field(ge=1, le=TIMES)] = Field(
        default=50, description=f"steps in which noise becomes an image, of the {TIMES} that are learnt"
    )
    sampling_variance: Variance = Field(
        default="small", description="of the noise in each of them: large is better with all of them, small with fewer"
    )
    augmentation: Augmentation = Field(default=Augmentation(flip=True), description="of the training images")

    def build(self, context: Context) -> "DDPM":
        images_only(context.shape, self.name)
        network = (context.encoder or UNetOptions()).build(context.shape)
        assert isinstance(network, UNet)
        return DDPM(network, self, context)


class DDPM(Generative):
    headline = ("network/noise",)
    features_with = ("ema_network", "diffusion", "feature_noise")
    decodes_with: ClassVar[tuple[str, ...]] = ("ema_network", "diffusion")
    feature_noise: Tensor

    def __init__(self, network: UNet, options: Options, context: Context) -> None:
        super().__init__()
        self.network, self.ema_network = network, EMA(network, options.ema_decay)
        self.diffusion = Diffusion()
        self.options, self.batch, self.seed = options, context.batch, context.seed
        self.augmentation, self.latent_shape = options.augmentation, context.shape
        self.max_grad_norm = options.clip_grad_norm
        self.optimisers = {"network": options.optimiser.build(network.parameters())}
        # One draw for all images, so that the features of an image depend on nothing but the image.
        generator = randomness.generator(context.seed, "feature noise")
        noise = torch.randn(1, *context.shape, generator=generator, device="cpu")
        self.register_buffer("feature_noise", noise, persistent=False)

    # --- training ----------------------------------------------------------------------------------------------------

    def step(self, batch: Batch, step: int) -> Scalars:
        images = self.augmentation(batch.inputs, self.seed, "ddpm", step, self.batch)
        times = (TIMES * self._uniform(images, step, "times", ())).long()
        noise = normal_rows(images.shape[1:], self.batch, self.seed, "diffusion/noise", step, images)
        noised = self.diffusion.noised(images, noise, times)
        with self.autocast(images) as called:
            network, draw = called(self.network.network), partial(self._uniform, images, step)
            predicted = self.network.predicted_noise(noised, times, draw, network).to(images.dtype)
        mine = (noise - predicted).square().flatten(1).mean(1)
        scalars = self.backward_and_update("network", {"noise": distributed.gather(mine, self.batch).mean()}, {})
        self.ema_network.decay = min(self.options.ema_decay, (1 + step) / (10 + step))
        self.ema_network.update(self.network)
        return scalars

    def compile_networks(self) -> None:
        super().compile_networks()
        self.network.leave_draws_uncompiled()

    def _uniform(self, images: Tensor, step: int, purpose: str, shape: tuple[int, ...]) -> Tensor:
        """Draws (n, *shape) in [0, 1) for the rows of this process."""
        return uniform_rows(shape, self.batch, self.seed, f"diffusion/{purpose}", step, images)

    # --- use ---------------------------------------------------------------------------------------------------------

    @property
    def _used(self) -> UNet:
        network = self.ema_network.network
        assert isinstance(network, UNet)
        return network

    def encoded(self, inputs: Tensor) -> Tensor:
        times = torch.full((inputs.shape[0],), self.options.feature_time - 1, device=inputs.device)
        noised = self.diffusion.noised(inputs, self.feature_noise, times)
        return self._used.features_at(noised, times)

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Ancestral sampling. The noise on the way is drawn for each latent by itself, whatever others it comes with."""
        names, images = randomness.names_of(latents), latents
        for now, before in ways_back(self.options.sampling_steps):
            times = torch.full((len(images),), now, device=images.device)
            noise = self._used.predicted_noise(images, times)
            images, deviation = self.diffusion.back(images, noise, now, before, self.options.sampling_variance)
            if before is not None:
                noise = randomness.normal_named(self.seed, "sampling", now, names, self.latent_shape)
                images = images + deviation * noise.to(images.dtype)
        return images
