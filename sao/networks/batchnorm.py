"""BatchNorm whose moments are those of the global batch and whose gain and bias come from the latent."""

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from sao import distributed


class ConditionalBatchNorm(nn.Module):
    """Normalise each channel over the batch (of all processes), then scale and shift it by linear maps of a condition."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, condition_size: int | None, momentum: float = 0.1, eps: float = 1e-5) -> None:
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
        channels = len(self.running_mean)
        if x.ndim < 2 or x.shape[1] != channels or x.numel() == 0:
            raise ValueError(f"x must be a non-empty batch (n, {channels}, …), got shape {tuple(x.shape)}")
        gain = 1 + self.gain(condition) if isinstance(self.gain, nn.Linear) else self.gain[None]
        bias = self.bias(condition) if isinstance(self.bias, nn.Linear) else self.bias[None]
        dtype = self.running_mean.dtype  # moments in half precision overflow
        mean, variance, count = self._moments(x.detach().to(dtype))
        scale = (variance + self.eps).rsqrt()
        return _Normalised.apply(x.to(dtype), gain.to(dtype), bias.to(dtype), mean, scale, count).to(x.dtype)  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]

    @torch.no_grad()
    def _moments(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Mean and variance to normalise with, and of how many values, where they are the batch's own."""
        if not self.training:
            return self.running_mean, self.running_var, None
        axes, values = [0, *range(2, x.ndim)], x.numel() // x.shape[1]
        if distributed.world_size() == 1:
            if values == 1:
                raise ValueError("x has 1 value for each channel: batch statistics need at least 2")
            update = torch.ops.aten.batch_norm_update_stats  # ten times as fast as torch.var_mean in channels_last
            mean, variance = update(x, self.running_mean, self.running_var, self.momentum)
            return mean, variance, x.new_tensor(values)
        # The mean first and then the centred squares: a one-pass sum of squares loses digits.
        sums = distributed.total(torch.cat([x.sum(axes), x.new_full((1,), values)]))
        mean, count = sums[:-1] / sums[-1], sums[-1]
        centred = x - mean.reshape(1, -1, *[1] * (x.ndim - 2))
        variance = distributed.total(centred.square_().sum(axes)) / count
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(variance * count / (count - 1), self.momentum)
        return mean, variance, count


class _Normalised(torch.autograd.Function):
    """y = gain · x̂ + bias with x̂ = scale (x − mean), as one multiplication and one addition for each value.

    Where the moments are the batch's own (`count`), they are functions of x too: dx = scale (g − mean(g) − x̂ mean(g x̂)) with
    g = gain · dy, the means over the global batch.
    """

    @staticmethod
    def forward(ctx, x: Tensor, gain: Tensor, bias: Tensor, mean: Tensor, scale: Tensor, count: Tensor | None) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(x, gain, mean, scale, count)
        slope = gain * scale
        return torch.addcmul(_spread(bias - slope * mean, x), x, _spread(slope, x))

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        x, gain, mean, scale, count = ctx.saved_tensors
        if x.ndim == 2:
            of_bias, dot = gradient, gradient * x
        else:
            of_bias, dot = gradient.flatten(2).sum(2), (gradient * x).flatten(2).sum(2)
        of_gain = scale * (dot - mean * of_bias)  # Σ dy x̂ of each sample and channel
        slope = _spread(gain * scale, x)
        if count is None:
            for_x = gradient * slope
        else:
            sums = torch.stack([(gain * of_bias).sum(0), (gain * of_gain).sum(0)])
            mean_g, mean_g_hat = distributed.total(sums) / count
            of_x = -scale.square() * mean_g_hat
            for_x = torch.addcmul(_spread((-scale * mean_g - of_x * mean)[None], x), gradient, slope)
            for_x.addcmul_(x, _spread(of_x[None], x))
        return for_x, of_gain.sum_to_size(gain.shape), of_bias.sum_to_size(gain.shape), None, None, None


def _spread(values: Tensor, like: Tensor) -> Tensor:
    """(n or 1, c) → (n or 1, c, 1, …)."""
    return values.reshape(*values.shape, *[1] * (like.ndim - 2))
