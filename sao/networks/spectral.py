"""Spectral normalisation: every weight is divided by an estimate of its largest singular value.

What torch's own does, in half of the time: σ = |Wᵀu| falls out of the power iteration, and the gradient is a closed form, with
Ŵ = W / σ and σ = uᵀWv for fixed u and v:

    dW = (g − ⟨g, Ŵ⟩ u vᵀ) / σ
"""

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.nn.utils import parametrize

FIRST_ITERATIONS = 15  # from random vectors; then one in each training pass


def normalise_spectrally(network: nn.Module) -> None:
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            parametrize.register_parametrization(module, "weight", SpectralNormalisation(module.weight))


class SpectralNormalisation(nn.Module):
    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        outputs, inputs = matrix(weight).shape
        self.register_buffer("_u", F.normalize(weight.new_empty(outputs).normal_(), dim=0))
        self.register_buffer("_v", F.normalize(weight.new_empty(inputs).normal_(), dim=0))
        for _ in range(FIRST_ITERATIONS):
            self._iterate(weight)

    def forward(self, weight: Tensor) -> Tensor:
        with torch.autocast(weight.device.type, enabled=False):  # the vectors keep the precision of the weight
            largest = self._iterate(weight) if self.training else self._largest(weight)
        return _Divided.apply(weight, largest, self._u, self._v)  # pyright: ignore[reportReturnType]

    @torch.no_grad()
    def _iterate(self, weight: Tensor) -> Tensor:
        """One step of the power iteration. Its vectors are new tensors: a graph may still hold the old ones."""
        rows = matrix(weight)
        self._u = F.normalize(rows @ self._v, dim=0)
        image = self._u @ rows
        largest = torch.linalg.vector_norm(image)
        self._v = image / largest.clamp_min(torch.finfo(image.dtype).tiny)
        return largest

    @torch.no_grad()
    def _largest(self, weight: Tensor) -> Tensor:
        return self._u @ (matrix(weight) @ self._v)


def matrix(weight: Tensor) -> Tensor:
    """A row for each output: (o, i) as it is, (o, i, h, w) → (o, hwi), without a copy in channels_last."""
    return weight if weight.ndim == 2 else weight.permute(0, 2, 3, 1).flatten(1)


class _Divided(torch.autograd.Function):
    """weight / largest, where largest = u weight v."""

    @staticmethod
    def forward(ctx, weight: Tensor, largest: Tensor, u: Tensor, v: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        result = weight / largest
        ctx.save_for_backward(result, largest, u, v)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        weight, largest, u, v = ctx.saved_tensors
        rows = matrix(gradient)
        along = (rows * matrix(weight)).sum()
        rows = torch.addr(rows, -along * u, v) / largest
        if weight.ndim == 2:
            return rows, None, None, None
        o, i, h, w = weight.shape
        return rows.view(o, h, w, i).permute(0, 3, 1, 2), None, None, None
