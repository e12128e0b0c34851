"""Spectral normalisation in half of the time of torch's own.

σ = |Wᵀu| falls out of the power iteration, and the gradient is a closed form, with Ŵ = W / σ and σ = uᵀWv for fixed u and v:

    dW = (g − ⟨g, Ŵ⟩ u vᵀ) / σ
"""

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual


def normalised_with_vectors(weight: Tensor, u: Tensor, v: Tensor, iterate: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The weight divided by its norm, and the vectors of the power iteration after one step more, or as they were."""
    with torch.no_grad():
        rows = matrix(unpack_dual(weight).primal)
        if iterate:
            smallest = torch.finfo(rows.dtype).tiny
            u = rows @ v
            u = u / torch.linalg.vector_norm(u).clamp_min(smallest)
            v = u @ rows
            largest = torch.linalg.vector_norm(v)
            v = v / largest.clamp_min(smallest)
        else:
            largest = u @ (rows @ v)
    return _Divided.apply(weight, largest, u, v), u, v  # pyright: ignore[reportReturnType]


def matrix(weight: Tensor) -> Tensor:
    """A row for each output: (o, i) as it is, (o, i, h, w) → (o, hwi), without a copy in channels_last."""
    return weight if weight.ndim == 2 else weight.permute(0, 2, 3, 1).flatten(1)


class _Divided(torch.autograd.Function):
    """weight / largest, where largest = u weight v."""

    @staticmethod
    def forward(ctx, weight: Tensor, largest: Tensor, u: Tensor, v: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        result = weight / largest
        ctx.save_for_backward(weight, result, largest, u, v)
        ctx.save_for_forward(result, largest, u, v)
        return result

    @staticmethod
    @torch.no_grad()
    def jvp(ctx, weight_tangent: Tensor, *_) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        result, largest, u, v = ctx.saved_tensors
        return (weight_tangent - (u @ (matrix(weight_tangent) @ v)) * result) / largest

    @staticmethod
    def backward(ctx, gradient: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        weight, result, largest, u, v = ctx.saved_tensors
        if torch.is_grad_enabled():  # this pass is to be differentiated in its turn, and the norm depends on the weight
            largest = u @ (matrix(weight) @ v)
            result = weight / largest
        rows = matrix(gradient)
        along = (rows * matrix(result)).sum()
        rows = torch.addr(rows, -along * u, v) / largest
        if weight.ndim == 2:
            return rows, None, None, None
        o, i, h, w = weight.shape
        return rows.view(o, h, w, i).permute(0, 3, 1, 2), None, None, None
