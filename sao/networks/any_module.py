"""Any network of torch as an encoder."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from sao.networks.base import Encoder


class ModuleEncoder(Encoder):
    """A network that gives features (n, b), or maps (n, b, h, w), which are averaged over their positions."""

    def __init__(self, network: nn.Module, shape: Sequence[int]) -> None:
        super().__init__()
        self.network = network
        self.feature_size = self._tried(shape).shape[1]

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = self.network(inputs)
        return outputs.mean(dim=(2, 3)) if outputs.ndim == 4 else outputs

    @torch.no_grad()
    def _tried(self, shape: Sequence[int]) -> Tensor:
        """The output for two samples; the generator of random numbers is left as it was."""
        training = self.network.training
        self.network.eval()
        with torch.random.fork_rng(devices=[]):
            outputs = self.network(torch.zeros(2, *shape))
        self.network.train(training)
        found = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        if not isinstance(outputs, Tensor) or outputs.ndim not in (2, 4) or outputs.shape[0] != 2:
            raise ValueError(f"two samples must give features (2, b) or maps (2, b, h, w), got {found}")
        return outputs


def mixing_layer(network: nn.Module) -> str | None:
    """The kind of a layer whose outputs for a sample depend on the others of the batch in training."""
    return next((type(part).__name__ for part in network.modules() if _mixes(part)), None)


def random_layer(network: nn.Module) -> str | None:
    """The kind of a layer that draws at random in training."""
    drawn = (part for part in network.modules() if isinstance(part, _DropoutNd) and part.p > 0)
    return next((type(part).__name__ for part in drawn), None)


def _mixes(part: nn.Module) -> bool:
    return isinstance(part, _BatchNorm) or "running_mean" in part._buffers
