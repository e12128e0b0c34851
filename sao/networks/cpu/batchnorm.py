"""BatchNorm over the batch of all processes, with closed forms for its derivatives, and whole layers of it in chunks."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from sao.core import distributed
from sao.networks.cpu import Once, layout_of
from sao.networks.cpu.convolution import gradients
from sao.networks.moments import combined, moments, normalised, spread, update_running

# Values of the largest tensor of a chunk: 16 MB in float32. Larger chunks were no faster, and they fragment memory more.
AT_ONCE = 2**22


def batch_norm(
    x: Tensor, gain: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, count: Tensor | None, eps: float
) -> Tensor:
    """gain · x̂ + bias, where the moments are the batch's own if `count` says of how many values, and constants if not."""
    scale = (variance + eps).rsqrt()
    if count is None:
        return normalised(x, gain, bias, mean, scale)
    return _BatchNorm.apply(x, gain, bias, mean, scale, count, eps)  # pyright: ignore[reportReturnType]


def in_chunks(
    function: Callable[..., Tensor],
    weights: Sequence[Tensor],
    x: Tensor,
    gain: Tensor,
    bias: Tensor,
    mean: Tensor,
    scale: Tensor,
    count: Tensor | None,
) -> Tensor:
    """function(relu(gain · x̂ + bias), *weights) of independent samples, in chunks; only x is stored, the rest made again."""
    return _InChunks.apply(function, x, gain, bias, mean, scale, count, *weights)  # pyright: ignore[reportReturnType]


@torch.no_grad()
def update_moments(x: Tensor, running_mean: Tensor, running_var: Tensor, momentum: float) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, variance and count of the batch of all processes; the running ones follow them."""
    update = torch.ops.aten.batch_norm_update_stats  # ten times as fast as torch.var_mean in channels_last
    x = unpack_dual(x).primal
    count = x.new_full((1,), x.numel() // x.shape[1])
    if distributed.world_size() == 1:
        mean, variance = update(x, running_mean, running_var, momentum)
        return mean, variance, count
    mean, variance = update(x, None, None, momentum)
    found = combined(mean, variance, count)
    update_running(running_mean, running_var, momentum, *found)
    return found


class _BatchNorm(torch.autograd.Function):
    """y = gain · x̂ + bias, x̂ = scale (x − mean); dx = scale (g − mean(g) − x̂ mean(g x̂)), g = gain · dy, globally."""

    @staticmethod
    def forward(ctx, x: Tensor, gain: Tensor, bias: Tensor, mean: Tensor, scale: Tensor, count: Tensor, eps: float) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(x, gain, mean, scale, count)
        ctx.save_for_forward(x, gain, mean, scale, count)
        ctx.eps = eps
        return normalised(x, gain, bias, mean, scale)

    @staticmethod
    @torch.no_grad()
    def jvp(ctx, x_tangent: Tensor, gain_tangent: Tensor, bias_tangent: Tensor, *_) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, gain, mean, scale, count = ctx.saved_tensors
        of_one, of_x = (values.sum(0) for values in _sums(x_tangent, x))
        mean_v, mean_v_hat = distributed.total(torch.stack([of_one, scale * (of_x - mean * of_one)])) / count
        x_hat = normalised(x, torch.ones_like(gain), torch.zeros_like(gain), mean, scale)
        projected = x_tangent - spread(mean_v[None], x) - x_hat * spread(mean_v_hat[None], x)
        return projected * spread(gain * scale, x) + x_hat * spread(gain_tangent, x) + spread(bias_tangent, x)

    @staticmethod
    def backward(ctx, gradient: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        x, gain, mean, scale, count = ctx.saved_tensors
        if torch.is_grad_enabled():  # this pass is to be differentiated in its turn, and the moments depend on x
            mean, variance, _ = moments(x)
            scale = (variance + ctx.eps).rsqrt()
        return *_gradients(gradient, x, *_sums(gradient, x), gain, mean, scale, count), None, None, None, None


class _InChunks(torch.autograd.Function):
    """function(relu(y), *weights) with y as above, chunk by chunk; the gradient through the moments of the batch comes last."""

    @staticmethod
    def forward(ctx, function, x: Tensor, gain, bias, mean, scale, count, *weights: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        kind = x.device.type
        ctx.autocast = torch.autocast(kind, dtype=torch.get_autocast_dtype(kind), enabled=torch.is_autocast_enabled(kind))
        ctx.function = function
        ctx.save_for_backward(x, gain, bias, mean, scale, count, *weights)

        def image(rows: slice) -> Tensor:
            y = normalised(x[rows].to(mean.dtype), _rows(gain, rows), _rows(bias, rows), mean, scale)
            return function(y.relu_().to(x.dtype), *weights)

        first = image(slice(1))  # for its shape
        result = torch.empty_like(first.expand(len(x), *first.shape[1:]), memory_format=layout_of(first))
        ctx.chunks = chunks(len(x), max(x[0].numel(), first.numel()))
        for rows in ctx.chunks:
            result[rows] = image(rows)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        x, gain, bias, mean, scale, count, *weights = ctx.saved_tensors
        # What outlives a chunk is allocated before the first: small blocks amid large ones keep those from being used again.
        for_y = torch.empty_like(x, dtype=mean.dtype)
        of_bias, dot = mean.new_empty(2, *x.shape[:2])
        for_weights = [torch.zeros_like(weight) for weight in weights]
        for rows in ctx.chunks:
            chunk = x[rows].to(mean.dtype)
            y = normalised(chunk, _rows(gain, rows), _rows(bias, rows), mean, scale).requires_grad_()
            leaves = [weight.detach().requires_grad_() for weight in weights]
            with torch.enable_grad(), ctx.autocast:
                image = ctx.function(F.relu(y).to(x.dtype), *leaves)
            of_y, *of_weights = torch.autograd.grad(image, [y, *leaves], gradient[rows])
            for_y[rows] = of_y
            of_bias[rows], dot[rows] = _sums(of_y, chunk)
            for total, of_chunk in zip(for_weights, of_weights, strict=True):
                total += of_chunk
        for_x, *others = _gradients(for_y, x, of_bias, dot, gain, mean, scale, count, out=for_y)
        return None, for_x.to(x.dtype), *others, None, None, None, *for_weights


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
    slope = spread(gain * scale, x)
    if count is None:
        for_x = torch.mul(gradient, slope, out=out)
    else:
        sums = torch.stack([(gain * of_bias).sum(0), (gain * of_gain).sum(0)])
        mean_g, mean_g_hat = distributed.total(sums) / count
        of_x = -scale.square() * mean_g_hat
        for_x = torch.addcmul(spread((-scale * mean_g - of_x * mean)[None], x), gradient, slope, out=out)
        for_x.addcmul_(x, spread(of_x[None], x))
    return for_x, of_gain.sum_to_size(gain.shape), of_bias.sum_to_size(gain.shape)


def chunks(samples: int, values: int) -> list[slice]:
    """Of a batch whose samples have so many values each."""
    size = max(1, AT_ONCE // values)
    return [slice(start, start + size) for start in range(0, samples, size)]


def _rows(coefficients: Tensor, rows: slice) -> Tensor:
    """Of (n, c), or of (1, c) which is the same for all."""
    return coefficients if len(coefficients) == 1 else coefficients[rows]


def convolved_or_graph(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The convolution of a recomputed layer: values where gradients are off, and only the graph where they are on."""
    if torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu"):
        return Once.apply(_shape_of_convolution, _of_convolution, x, weight, bias)  # pyright: ignore[reportReturnType]
    return F.conv2d(x, weight, bias, padding=weight.shape[-1] // 2)


def _shape_of_convolution(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x.new_empty(()).expand(len(x), len(weight), *x.shape[2:])


def _of_convolution(gradient: Tensor, x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    return gradients(gradient, x, weight, [True, True, True], bias.shape)
