"""BatchNorm whose moments are those of the global batch and whose gain and bias may come from a condition."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from sao.core import distributed
from sao.networks.cpu import batchnorm as cpu
from sao.networks.cpu import use_cpu_operators
from sao.networks.moments import moments, normalised, spread, update_running


class BatchNorm(nn.Module):
    """Normalise each channel over the batch of all processes, then scale and shift it: by parameters, or by linear maps of a
    condition.
    """

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
        """function(relu(self(x, condition)), *weights), with activation checkpointing: only x is stored.

        The backward pass calls the function again. It must treat its samples independently: on the CPU it gets chunks.
        """
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
