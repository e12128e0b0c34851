"""BatchNorm whose moments are those of the global batch and whose gain and bias come from the latent."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

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
        normalised = self._normalise(x)
        gain = 1 + self.gain(condition) if isinstance(self.gain, nn.Linear) else self.gain
        bias = self.bias(condition) if isinstance(self.bias, nn.Linear) else self.bias
        extra = [1] * (x.ndim - 2)
        return torch.addcmul(bias.reshape(*bias.shape, *extra), normalised, gain.reshape(*gain.shape, *extra))

    def _normalise(self, x: Tensor) -> Tensor:
        if not self.training or distributed.world_size() == 1:
            if self.training and x.numel() == x.shape[1]:
                raise ValueError("x has 1 value for each channel: batch statistics need at least 2")
            return F.batch_norm(
                x, self.running_mean, self.running_var, training=self.training, momentum=self.momentum, eps=self.eps
            )
        dtype, x = x.dtype, x.to(self.running_mean.dtype)  # moments in half precision overflow
        axes = [0, *range(2, x.ndim)]
        count = torch.full((1,), x.numel() / x.shape[1], dtype=x.dtype, device=x.device)
        # The mean first and then the centred squares: a one-pass sum of squares loses digits.
        sums = distributed.total(torch.cat([x.sum(axes), count]))
        mean, count = sums[:-1] / sums[-1], sums[-1]
        centred = x - mean.reshape(1, -1, *[1] * (x.ndim - 2))
        variance = distributed.total(centred.square().sum(axes)) / count
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * count / (count - 1), self.momentum)
        return (centred * (variance + self.eps).rsqrt().reshape(1, -1, *[1] * (x.ndim - 2))).to(dtype)
