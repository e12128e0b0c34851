"""Spectral normalisation: every weight is divided by an estimate of its largest singular value."""

import torch
from torch import Tensor, nn
from torch.autograd.forward_ad import unpack_dual
from torch.nn import functional as F
from torch.nn.utils import parametrize

from sao.core.precision import full_precision
from sao.networks.cpu import use_cpu_operators
from sao.networks.cpu.spectral import matrix, normalised_with_vectors

FIRST_ITERATIONS = 15  # from random vectors; then one in each training pass


def normalise_spectrally(network: nn.Module) -> None:
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            parametrize.register_parametrization(module, "weight", SpectralNormalisation(module.weight))


class SpectralNormalisation(nn.Module):
    """W / σ with σ = uᵀWv, where u and v follow the power iteration and count as constants, as in torch's own."""

    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        outputs, inputs = matrix(weight).shape
        self.register_buffer("_u", F.normalize(weight.new_empty(outputs).normal_(), dim=0))
        self.register_buffer("_v", F.normalize(weight.new_empty(inputs).normal_(), dim=0))
        if not weight.is_meta:  # without values there is nothing to find
            self.settle(weight)

    def settle(self, weight: Tensor) -> None:
        """Find the vectors of a weight that is new to them."""
        for _ in range(FIRST_ITERATIONS):
            self._iterate(weight)

    def forward(self, weight: Tensor) -> Tensor:
        with full_precision(weight.device):  # autocast would give the vectors less precision than the weight has
            if use_cpu_operators(weight):
                result, self._u, self._v = normalised_with_vectors(weight, self._u, self._v, iterate=self.training)
                return result
            if self.training:
                self._iterate(weight)
            return weight / torch.vdot(self._u, torch.mv(matrix(weight), self._v))

    @torch.no_grad()
    def _iterate(self, weight: Tensor) -> None:
        """The vectors are new tensors: a graph may still hold the old ones."""
        rows = matrix(unpack_dual(weight).primal)
        self._u = F.normalize(torch.mv(rows, self._v), dim=0)
        self._v = F.normalize(torch.mv(rows.T, self._u), dim=0)
