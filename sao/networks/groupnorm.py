"""GroupNorm with fast derivatives of every kind that the Jacobian penalty takes.

The built-in one refuses forward mode on channels_last tensors, the layout in which convolutions are nearly twice as fast on
CPUs, and its double backward pass is a long chain of small operations. Here the forward and the first backward pass are
torch's own kernels; forward mode and the double backward pass are closed forms.

In each group of M values, with x̂ = r (x − μ) and the projection P(v) = v − mean(v) − x̂ mean(v x̂):

    y = w x̂ + b        forward mode: dy = w r P(dx)        backward: dx = r P(g), g = w dy

Differentiating L = ⟨v, r P(g)⟩ once more gives r P(v) for g, and −(r L / M) x̂ − r² (mean(g x̂) P(v) + mean(v x̂) P(g)) for x.
Every one of these is a sum of x, v and dy with coefficients for each sample and channel, so none needs more than three passes.
"""

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

CHANNELS_PER_GROUP = 16


class GroupNorm(nn.GroupNorm):
    def forward(self, input: Tensor) -> Tensor:
        # Autocast gives bfloat16 to weights in float32; the moments are then taken in float32, as torch's own autocast does.
        images = (input if input.ndim > 2 else input[..., None]).to(self.weight.dtype)
        return _GroupNorm.apply(images, self.weight, self.bias, self.num_groups, self.eps).view(input.shape)  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]


def group_norm(channels: int) -> GroupNorm:
    """16 channels a group, or somewhat more where the width is no multiple of 16."""
    most = max(1, channels // CHANNELS_PER_GROUP)
    return GroupNorm(next(groups for groups in range(most, 0, -1) if channels % groups == 0), channels)


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
        r, mean = group.spread(group.scale), group.spread(group.mean)
        of_tangent, of_x, constant = group.projected(*group.sums(x_tangent))
        of_x = weight * r * of_x + weight_tangent * r
        constant = weight * r * constant + bias_tangent - weight_tangent * r * mean
        return _combined((x_tangent, weight * r * of_tangent), (x, of_x), constant=constant)

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
        if not gradient.is_contiguous(memory_format=_layout(x)):  # the kernel reads both in one layout
            gradient = gradient.contiguous(memory_format=_layout(x))
        return torch.ops.aten.native_group_norm_backward(
            gradient, x, mean, scale, weight, n, c, positions, groups, [True, True, True]
        )

    @staticmethod
    @once_differentiable
    def backward(ctx, v: Tensor, weight_cotangent: Tensor, bias_cotangent: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        gradient, x, mean, scale, weight = ctx.saved_tensors
        group = _Group(x, mean, scale)
        r, mean = group.spread(scale), group.spread(mean)
        v_sum, v_dot = group.sums(v)
        dy_sum, dy_dot = group.sums(gradient)
        g_sum, g_dot = weight * dy_sum, weight * dy_dot
        product = (v * gradient).flatten(2).sum(2)
        v_self, v_x, v_one = group.projected(v_sum, v_dot)
        g_self, g_x, g_one = group.projected(g_sum, g_dot)
        v_hat, g_hat = group.mean_with_normalised(v_sum, v_dot), group.mean_with_normalised(g_sum, g_dot)
        means = group.total(v_sum) * group.total(g_sum) / group.size + group.size * v_hat * g_hat
        radial = group.spread(-scale.square() * (group.total(weight * product) - means) / group.size)
        v_hat, g_hat = group.spread(v_hat), group.spread(g_hat)
        # The weights' own gradient is Σ dy x̂, so a cotangent k of it acts like P on k dy; that of the bias is Σ dy.
        k_self, k_x, k_one = group.projected(weight_cotangent * dy_sum, weight_cotangent * dy_dot)
        for_x = _combined(
            (v, -r.square() * g_hat * v_self),
            (gradient, -r.square() * v_hat * weight * g_self + r * weight_cotangent * k_self),
            (x, r * radial - r.square() * (g_hat * v_x + v_hat * g_x) + r * k_x),
            constant=r * k_one - r * radial * mean - r.square() * (g_hat * v_one + v_hat * g_one),
        )
        for_gradient = _combined(
            (v, weight * r * v_self),
            (x, weight * r * v_x + weight_cotangent * r),
            constant=weight * r * v_one - weight_cotangent * r * mean + bias_cotangent,
        )
        for_weight = (r * (product + v_x * dy_dot + v_one * dy_sum)).sum(0)
        return for_gradient, for_x, None, None, for_weight


class _Group:
    """Means of the groups of one batch, and the way from channels to groups and back."""

    def __init__(self, x: Tensor, mean: Tensor, scale: Tensor) -> None:
        self.x, self.mean, self.scale = x, mean, scale
        self.channels = x.shape[1] // mean.shape[1]
        self.size = x[0, 0].numel() * self.channels

    def sums(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Σv and Σvx over the positions of each sample's channel, (n, c)."""
        return v.flatten(2).sum(2), (v * self.x).flatten(2).sum(2)

    def total(self, values: Tensor) -> Tensor:
        """(n, c) → sums of the groups (n, g)."""
        return values.unflatten(1, (-1, self.channels)).sum(2)

    def spread(self, values: Tensor) -> Tensor:
        """(n, g) → the same number for each channel (n, c)."""
        return values.repeat_interleave(self.channels, dim=1)

    def mean_with_normalised(self, v_sum: Tensor, v_dot: Tensor) -> Tensor:
        """mean(v x̂) of each group."""
        return self.scale * (self.total(v_dot) - self.mean * self.total(v_sum)) / self.size

    def projected(self, v_sum: Tensor, v_dot: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """P(v) = a v + b x + c: the coefficients (n, c)."""
        hat = self.mean_with_normalised(v_sum, v_dot) * self.scale
        constant = hat * self.mean - self.total(v_sum) / self.size
        return torch.ones_like(v_sum), self.spread(-hat), self.spread(constant)


def _combined(*terms: tuple[Tensor, Tensor], constant: Tensor) -> Tensor:
    """Σ tensor · coefficient + constant, where coefficients and constant are (n, c)."""
    (first, coefficient), *others = terms
    extra = (...,) + (None,) * (first.ndim - 2)
    result = torch.addcmul(constant[extra], first, coefficient[extra])
    for tensor, coefficient in others:
        result.addcmul_(tensor, coefficient[extra])
    return result


def _layout(x: Tensor) -> torch.memory_format:
    channels_last = x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if channels_last else torch.contiguous_format
