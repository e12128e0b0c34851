"""Torch's own layers, which on the CPU run by the operators of `sao.networks.cpu`, and BatchNorm of the global batch."""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from sao.core import distributed
from sao.networks.cpu import batchnorm as cpu
from sao.networks.cpu import use_cpu_operators
from sao.networks.cpu.activation import elu
from sao.networks.cpu.convolution import convolution
from sao.networks.cpu.groupnorm import group_norm
from sao.networks.moments import moments, normalised, spread, update_running

CHANNELS_PER_GROUP = 16
Activation = Literal["elu", "relu"]


class Convolution(nn.Conv2d):
    """Stride 1, zero padding that keeps the size, no bias."""

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__(inputs, outputs, kernel, padding=kernel // 2, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        return convolution(input, self.weight) if use_cpu_operators(input) else super().forward(input)


class GroupNorm(nn.GroupNorm):
    """16 channels a group, or somewhat more where the width is no multiple of 16."""

    def __init__(self, channels: int) -> None:
        most = max(1, channels // CHANNELS_PER_GROUP)
        super().__init__(next(groups for groups in range(most, 0, -1) if channels % groups == 0), channels)

    def forward(self, input: Tensor) -> Tensor:
        # Autocast gives bfloat16 to weights in float32; the moments are then taken in float32.
        wide = input.to(self.weight.dtype)
        if use_cpu_operators(wide):
            return group_norm(wide, self.num_groups, self.weight, self.bias, self.eps)
        # Torch's own has no forward mode in channels_last, and on GPUs has refused or copied it.
        return super().forward(wide.contiguous())


class ELU(nn.Module):
    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        """elu(x), or elu(x + other)."""
        if use_cpu_operators(x):
            return elu(x, other)
        return F.elu(x if other is None else x + other)


class ReLU(nn.Module):
    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        """relu(x), or relu(x + other)."""
        return F.relu(x if other is None else x + other)


def activation_named(name: Activation) -> nn.Module:
    return ELU() if name == "elu" else ReLU()


class BatchNorm(nn.Module):
    """Normalise channels over the batch of all processes; scale and shift them by parameters or linear maps of a condition."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, condition_size: int | None = None, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.momentum, self.eps = momentum, eps
        if condition_size is None:
            self.gain, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        else:
            self.gain = nn.Linear(condition_size, channels, bias=False)
            self.bias = nn.Linear(condition_size, channels, bias=False)
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor, condition: Tensor | None = None) -> Tensor:
        self._check(x)
        gain, bias = self._gain_and_bias(condition)
        wide = x.to(gain.dtype)
        if use_cpu_operators(x):
            result = cpu.batch_norm(wide, gain, bias, *self._moments(wide), self.eps)
        elif self.training and distributed.world_size() > 1:
            mean, variance, _ = self._moments(wide)
            result = normalised(wide, gain, bias, mean, (variance + self.eps).rsqrt())
        else:
            running = self.running_mean, self.running_var
            standard = F.batch_norm(wide, *running, training=self.training, momentum=self.momentum, eps=self.eps)
            result = standard * spread(gain, x) + spread(bias, x)
        return result.to(x.dtype)

    def then(self, function: Callable[..., Tensor], weights: Sequence[Tensor], x: Tensor, condition: Tensor | None) -> Tensor:
        """function(relu(self(x, condition)), *weights) of independent samples; only x is stored, the rest made again."""
        self._check(x)
        gain, bias = self._gain_and_bias(condition)
        mean, variance, count = self._moments(x.to(gain.dtype))
        scale = (variance + self.eps).rsqrt()
        if use_cpu_operators(x):
            return cpu.in_chunks(function, weights, x, gain, bias, mean, scale, count)

        def layer(x: Tensor, gain: Tensor, bias: Tensor, mean: Tensor, scale: Tensor, *weights: Tensor) -> Tensor:
            return function(F.relu(normalised(x.to(gain.dtype), gain, bias, mean, scale)).to(x.dtype), *weights)

        return checkpoint(layer, x, gain, bias, mean, scale, *weights, use_reentrant=False, preserve_rng_state=False)  # pyright: ignore[reportReturnType]

    def _check(self, x: Tensor) -> None:
        channels = len(self.running_mean)
        if x.ndim < 2 or x.shape[1] != channels or x.numel() == 0:
            raise ValueError(f"x must be a non-empty batch (n, {channels}, …), got shape {tuple(x.shape)}")
        if self.training and distributed.world_size() == 1 and x.numel() == channels:
            raise ValueError("x has 1 value for each channel: batch statistics need at least 2")

    def _gain_and_bias(self, condition: Tensor | None) -> tuple[Tensor, Tensor]:
        """(n or 1, c) each, in the precision of the statistics: moments in half precision overflow."""
        gain = 1 + self.gain(condition) if isinstance(self.gain, nn.Linear) else self.gain[None]
        bias = self.bias(condition) if isinstance(self.bias, nn.Linear) else self.bias[None]
        return gain.to(self.running_mean.dtype), bias.to(self.running_mean.dtype)

    def _moments(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Mean and variance to normalise with, and of how many values, where they are the batch's own."""
        if not self.training:
            return self.running_mean, self.running_var, None
        if use_cpu_operators(x):
            return cpu.update_moments(x, self.running_mean, self.running_var, self.momentum)
        found = moments(x)
        update_running(self.running_mean, self.running_var, self.momentum, *found)
        return found
