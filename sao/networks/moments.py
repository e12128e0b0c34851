"""The mean and the variance of each channel over the batch of all processes, and what BatchNorm makes of them."""

import torch
from torch import Tensor

from sao.core import distributed


def moments(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, variance, and the number of values that they were taken of; differentiable."""
    variance, mean = torch.var_mean(x, [0, *range(2, x.ndim)], correction=0)
    return combined(mean, variance, x.new_full((1,), x.numel() // x.shape[1]))


def combined(mean: Tensor, variance: Tensor, count: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The moments of the whole batch from those of each process: squares around the mean, where no digits are lost."""
    if distributed.world_size() == 1:
        return mean, variance, count
    sums = distributed.total(torch.cat([count * mean, count]))
    whole_mean, whole_count = sums[:-1] / sums[-1:], sums[-1:]
    squares = distributed.total(count * (variance + (mean - whole_mean).square()))
    return whole_mean, squares / whole_count, whole_count


@torch.no_grad()
def update_running(
    running_mean: Tensor, running_var: Tensor, momentum: float, mean: Tensor, variance: Tensor, count: Tensor
) -> None:
    """Move the running statistics towards the moments of a batch."""
    running_mean.lerp_(mean, momentum)
    running_var.lerp_(variance * count / (count - 1), momentum)


def normalised(x: Tensor, gain: Tensor, bias: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """gain · scale (x − mean) + bias, as one multiplication and one addition for each value."""
    slope = gain * scale
    return torch.addcmul(spread(bias - slope * mean, x), x, spread(slope, x))


def spread(values: Tensor, like: Tensor) -> Tensor:
    """(n or 1, c) → (n or 1, c, 1, …)."""
    return values.reshape(*values.shape, *[1] * (like.ndim - 2))
