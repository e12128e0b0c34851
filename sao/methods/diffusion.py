"""The way from an image to noise in a thousand small steps, and the way back for those who can tell the noise."""

from typing import Literal

import torch
from torch import Tensor, nn

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
        """Mean and deviation of the images at an earlier time, or of the images themselves, given the noise in them now.

        "large" is the variance of the noise that was added on the way, "small" that of a way which ends in a known image.
        """
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
