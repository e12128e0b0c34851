"""GroupNorm with fast derivatives of every kind that the Jacobian penalty takes.

Torch's own has no forward mode in channels_last, and its double backward pass is a long chain of small operations. Its kernels
do the forward and the first backward pass here; the others are closed forms.

In each group of M values, with x̂ = r (x − μ) and the projection P(v) = v − mean(v) − x̂ mean(v x̂):

    y = w x̂ + b        forward mode: dy = w r P(dx)        backward: dx = r P(g), g = w dy

Differentiating L = ⟨v, r P(g)⟩ once more gives r P(v) for g, and −(r L / M) x̂ − r² (mean(g x̂) P(v) + mean(v x̂) P(g)) for x:
sums of x, v and dy with coefficients for each sample and channel.
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sao.networks.cpu import layout_of


def group_norm(x: Tensor, groups: int, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    images = x if x.ndim > 2 else x[..., None]
    return _GroupNorm.apply(images, weight, bias, groups, eps).view(x.shape)  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]


class _GroupNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        n, c = x.shape[:2]
        y, mean, scale = torch.native_group_norm(x, weight, bias, n, c, x[0, 0].numel(), groups, eps)
        ctx.save_for_backward(x, mean, scale, weight)
        ctx.save_for_forward(x, mean, scale, weight)
        return y

    @staticmethod
    @torch.no_grad()
    def jvp(ctx, x_tangent: Tensor, weight_tangent, bias_tangent, *_) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, mean, scale, weight = ctx.saved_tensors
        group = _Group(x, mean, scale)
        weight, weight_tangent, bias_tangent = map(group.channels, (weight, weight_tangent, bias_tangent))
        slope, slope_tangent = weight * group.scale, weight_tangent * group.scale
        _, of_x, constant = group.projected(*group.sums(x_tangent))
        return group.combined(
            (x_tangent, slope),
            (x, slope * of_x + slope_tangent),
            constant=slope * constant + bias_tangent - slope_tangent * group.mean,
        )

    @staticmethod
    def backward(ctx, gradient: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        x, mean, scale, weight = ctx.saved_tensors
        return *_Backward.apply(gradient, x, mean, scale, weight), None, None  # pyright: ignore[reportGeneralTypeIssues]


class _Backward(torch.autograd.Function):
    """The first backward pass by torch's kernel, and its own backward pass in closed form."""

    @staticmethod
    def forward(ctx, gradient: Tensor, x: Tensor, mean: Tensor, scale: Tensor, weight: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(gradient, x, mean, scale, weight)
        n, c = x.shape[:2]
        positions, groups = x[0, 0].numel(), mean.shape[1]
        if not gradient.is_contiguous(memory_format=layout_of(x)):  # the kernel reads both in one layout
            gradient = gradient.contiguous(memory_format=layout_of(x))
        return torch.ops.aten.native_group_norm_backward(
            gradient, x, mean, scale, weight, n, c, positions, groups, [True, True, True]
        )

    @staticmethod
    @once_differentiable
    def backward(ctx, v: Tensor, weight_cotangent: Tensor, bias_cotangent: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        gradient, x, mean, scale, weight = ctx.saved_tensors
        group = _Group(x, mean, scale)
        r, mean, size = group.scale, group.mean, group.size
        weight, weight_cotangent, bias_cotangent = map(group.channels, (weight, weight_cotangent, bias_cotangent))
        v_sum, v_dot = group.sums(v)
        dy_sum, dy_dot = group.sums(gradient)
        g_sum, g_dot = weight * dy_sum, weight * dy_dot
        product = group.channels((v * gradient).flatten(2).sum(2))
        v_hat, v_x, v_one = group.projected(v_sum, v_dot)
        g_hat, g_x, g_one = group.projected(g_sum, g_dot)
        means = _total(v_sum) * _total(g_sum) / size + size * v_hat * g_hat
        radial = r.square() * (means - _total(weight * product)) / size
        # The weights' own gradient is Σ dy x̂, so a cotangent k of it acts like P on k dy; that of the bias is Σ dy.
        _, k_x, k_one = group.projected(weight_cotangent * dy_sum, weight_cotangent * dy_dot)
        v_slope, g_slope = r.square() * g_hat, r.square() * v_hat
        slope, cotangent = weight * r, weight_cotangent * r
        for_x = group.combined(
            (v, -v_slope),
            (gradient, cotangent - g_slope * weight),
            (x, r * (radial + k_x) - v_slope * v_x - g_slope * g_x),
            constant=r * (k_one - radial * mean) - v_slope * v_one - g_slope * g_one,
        )
        for_gradient = group.combined(
            (v, slope), (x, slope * v_x + cotangent), constant=slope * v_one - cotangent * mean + bias_cotangent
        )
        for_weight = (r * (product + v_x * dy_dot + v_one * dy_sum)).sum(0).flatten()
        return for_gradient, for_x, None, None, for_weight


class _Group:
    """The moments of one batch's groups. Here c channels are (g, c / g), so that a number of a group is (n, g, 1)."""

    def __init__(self, x: Tensor, mean: Tensor, scale: Tensor) -> None:
        self.x, self.mean, self.scale = x, mean[..., None], scale[..., None]
        self.size = x[0].numel() // mean.shape[1]

    def channels(self, values: Tensor) -> Tensor:
        """(…, c) → (…, g, c / g)."""
        return values.unflatten(-1, (self.mean.shape[1], -1))

    def sums(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Σv and Σvx over the positions of each sample's channel."""
        return self.channels(v.flatten(2).sum(2)), self.channels((v * self.x).flatten(2).sum(2))

    def projected(self, v_sum: Tensor, v_dot: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """mean(v x̂), and the coefficients of P(v) = v + a x + b."""
        total = _total(v_sum)
        hat = self.scale * (_total(v_dot) - self.mean * total) / self.size
        of_x = -hat * self.scale
        return hat, of_x, -of_x * self.mean - total / self.size

    def combined(self, *terms: tuple[Tensor, Tensor], constant: Tensor) -> Tensor:
        """Σ tensor · coefficient + constant, where coefficients and constant are numbers of channels or of groups."""
        (first, coefficient), *others = terms
        result = torch.addcmul(self._spread(constant), first, self._spread(coefficient))
        for tensor, coefficient in others:
            result.addcmul_(tensor, self._spread(coefficient))
        return result

    def _spread(self, values: Tensor) -> Tensor:
        """(n, g, c / g or 1) → (n, c, 1, …): one number for each channel, or the innermost loop would be a group long."""
        n, c = self.x.shape[:2]
        return values.expand(n, self.mean.shape[1], c // self.mean.shape[1]).reshape(n, c, *[1] * (self.x.ndim - 2))


def _total(values: Tensor) -> Tensor:
    """Over the channels of a group."""
    return values.sum(2, keepdim=True)
