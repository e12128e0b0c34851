"""BatchNorm whose moments are those of the global batch and whose gain and bias come from the latent."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from sao import distributed

# Values of the largest tensor of a part, where a layer works in parts: 16 MB in float32. Larger parts were no faster, and the
# holes that they leave between what is kept grow with them.
AT_ONCE = 2**22


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
        coefficients = self._coefficients(x, condition)
        return _Normalised.apply(x.to(self.running_mean.dtype), *coefficients).to(x.dtype)  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]

    def then(self, function: Callable[..., Tensor], weights: Sequence[Tensor], x: Tensor, condition: Tensor | None) -> Tensor:
        """function(relu(self(x, condition)), *weights), made of a few samples at a time, with only x remembered.

        The function must treat its samples independently. In the backward pass it is called again, with gradients enabled, for
        its graph alone.
        """
        return _InParts.apply(function, x, *self._coefficients(x, condition), *weights)  # pyright: ignore[reportReturnType]

    def _coefficients(self, x: Tensor, condition: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
        """Gain, bias, mean, scale, and of how many values mean and scale were taken, where they are the batch's own."""
        channels = len(self.running_mean)
        if x.ndim < 2 or x.shape[1] != channels or x.numel() == 0:
            raise ValueError(f"x must be a non-empty batch (n, {channels}, …), got shape {tuple(x.shape)}")
        gain = 1 + self.gain(condition) if isinstance(self.gain, nn.Linear) else self.gain[None]
        bias = self.bias(condition) if isinstance(self.bias, nn.Linear) else self.bias[None]
        dtype = self.running_mean.dtype  # moments in half precision overflow
        mean, variance, count = self._moments(x.detach().to(dtype))
        return gain.to(dtype), bias.to(dtype), mean, (variance + self.eps).rsqrt(), count

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
        return _normalised(x, gain, bias, mean, scale)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        x, gain, mean, scale, count = ctx.saved_tensors
        sums = _sums(gradient, x)
        return *_gradients(gradient, x, *sums, gain, mean, scale, count), None, None, None


class _InParts(torch.autograd.Function):
    """function(relu(y), *weights) with y as above, from one part of the samples after the other.

    Nothing but x is remembered: in the backward pass each part of y is made again. What the moments of the batch have to do
    with it comes last, once the sums over all parts are known.
    """

    @staticmethod
    def forward(ctx, function, x: Tensor, gain, bias, mean, scale, count, *weights: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        kind = x.device.type
        ctx.passes = torch.autocast(kind, dtype=torch.get_autocast_dtype(kind), enabled=torch.is_autocast_enabled(kind))
        ctx.function = function
        ctx.save_for_backward(x, gain, bias, mean, scale, count, *weights)

        def image(rows: slice) -> Tensor:
            y = _normalised(x[rows].to(mean.dtype), _rows(gain, rows), _rows(bias, rows), mean, scale)
            return function(y.relu_().to(x.dtype), *weights)

        first = image(slice(1))  # for its shape
        result = torch.empty_like(first.expand(len(x), *first.shape[1:]), memory_format=_layout(first))
        ctx.parts = parts(len(x), max(x[0].numel(), first.numel()))
        for rows in ctx.parts:
            result[rows] = image(rows)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        x, gain, bias, mean, scale, count, *weights = ctx.saved_tensors
        # What outlives a part is allocated before the first: small blocks amid large ones keep those from being used again.
        for_y = torch.empty_like(x, dtype=mean.dtype)
        of_bias, dot = mean.new_empty(2, *x.shape[:2])
        for_weights = [torch.zeros_like(weight) for weight in weights]
        for rows in ctx.parts:
            part = x[rows].to(mean.dtype)
            y = _normalised(part, _rows(gain, rows), _rows(bias, rows), mean, scale).requires_grad_()
            leaves = [weight.detach().requires_grad_() for weight in weights]
            with torch.enable_grad(), ctx.passes:
                image = ctx.function(F.relu(y).to(x.dtype), *leaves)
            of_y, *of_weights = torch.autograd.grad(image, [y, *leaves], gradient[rows])
            for_y[rows] = of_y
            of_bias[rows], dot[rows] = _sums(of_y, part)
            for total, of_part in zip(for_weights, of_weights, strict=True):
                total += of_part
        for_x, *others = _gradients(for_y, x, of_bias, dot, gain, mean, scale, count, out=for_y)
        return None, for_x.to(x.dtype), *others, None, None, None, *for_weights


def _normalised(x: Tensor, gain: Tensor, bias: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    slope = gain * scale
    return torch.addcmul(_spread(bias - slope * mean, x), x, _spread(slope, x))


def _sums(gradient: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Σ dy and Σ dy x of each sample and channel."""
    if x.ndim == 2:
        return gradient, gradient * x
    return gradient.flatten(2).sum(2), (gradient * x).flatten(2).sum(2)


def _gradients(
    gradient: Tensor,
    x: Tensor,
    of_bias: Tensor,
    dot: Tensor,
    gain: Tensor,
    mean: Tensor,
    scale: Tensor,
    count: Tensor | None,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Of x, gain and bias, from the gradient of y and its `_sums`; that of x in the memory of `out`."""
    of_gain = scale * (dot - mean * of_bias)  # Σ dy x̂ of each sample and channel
    slope = _spread(gain * scale, x)
    if count is None:
        for_x = torch.mul(gradient, slope, out=out)
    else:
        sums = torch.stack([(gain * of_bias).sum(0), (gain * of_gain).sum(0)])
        mean_g, mean_g_hat = distributed.total(sums) / count
        of_x = -scale.square() * mean_g_hat
        for_x = torch.addcmul(_spread((-scale * mean_g - of_x * mean)[None], x), gradient, slope, out=out)
        for_x.addcmul_(x, _spread(of_x[None], x))
    return for_x, of_gain.sum_to_size(gain.shape), of_bias.sum_to_size(gain.shape)


def parts(samples: int, values: int) -> list[slice]:
    """Of a batch whose samples have so many values each."""
    size = max(1, AT_ONCE // values)
    return [slice(start, start + size) for start in range(0, samples, size)]


def _rows(coefficients: Tensor, rows: slice) -> Tensor:
    """Of (n, c), or of (1, c) which is the same for all."""
    return coefficients if len(coefficients) == 1 else coefficients[rows]


def _layout(images: Tensor) -> torch.memory_format:
    return torch.channels_last if images.is_contiguous(memory_format=torch.channels_last) else torch.contiguous_format


def _spread(values: Tensor, like: Tensor) -> Tensor:
    """(n or 1, c) → (n or 1, c, 1, …)."""
    return values.reshape(*values.shape, *[1] * (like.ndim - 2))
