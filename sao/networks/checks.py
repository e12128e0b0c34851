"""Errors that name the argument.

Here and in every forward pass the length of a batch is `x.shape[0]`: `len(x)` would make it a constant of what is exported.
"""

from torch import Tensor


def check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")


def check_latents(latents: Tensor, latent_size: int) -> None:
    if latents.ndim != 2 or latents.shape[0] == 0 or latents.shape[1] != latent_size:
        raise ValueError(f"latents must have shape (n > 0, {latent_size}), got {tuple(latents.shape)}")
