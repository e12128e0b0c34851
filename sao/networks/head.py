"""What stands behind an encoder: the projection of its features that the objectives see."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

from sao.networks.base import check_sizes
from sao.networks.layers import BatchNorm
from sao.networks.spectral import normalise_spectrally


class EmbeddingHead(nn.Module):
    """Features (n, inputs) → unnormalised embeddings (n, outputs)."""

    def __init__(self, inputs: int, outputs: int, layer: Callable[[int, int], nn.Module] = nn.Linear) -> None:
        super().__init__()
        check_sizes(inputs=inputs, outputs=outputs)
        self.hidden = layer(inputs, inputs)
        self.activation = nn.ELU()
        self.output = layer(inputs, outputs)

    def forward(self, features: Tensor) -> Tensor:
        return self.output(self.activation(self.hidden(features)))


class LocalHead(EmbeddingHead):
    """Maps (n, inputs, h, w) → embeddings (n, positions, outputs); torch 2.13 miscompiles linear layers behind a GroupNorm."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, partial(nn.Conv2d, kernel_size=1))

    def forward(self, features: Tensor) -> Tensor:
        return super().forward(features).flatten(2).mT


class ScoreHead(nn.Module):
    """BigGAN's: one score (n, 1), linear in the features, normalised spectrally."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        check_sizes(inputs=inputs)
        self.output = nn.Linear(inputs, 1)
        nn.init.orthogonal_(self.output.weight)
        normalise_spectrally(self)

    def forward(self, features: Tensor) -> Tensor:
        return self.output(features)


class ProjectionHead(nn.Sequential):
    """The perceptron of the two-view methods: BatchNorm, with the moments of the global batch, and ReLU between its layers."""

    def __init__(self, sizes: Sequence[int], last_norm: bool = False) -> None:
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(sizes[:-1]):
            layers += [nn.Linear(inputs, outputs, bias=False), BatchNorm(outputs), nn.ReLU()]
        layers.append(nn.Linear(sizes[-2], sizes[-1], bias=not last_norm))
        if last_norm:
            layers.append(BatchNorm(sizes[-1]))
        super().__init__(*layers)


class Prototypes(nn.Module):
    """Projections (n, inputs) → their cosines (n, outputs) with directions that are learnt."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        check_sizes(inputs=inputs, outputs=outputs)
        self.directions = nn.Linear(inputs, outputs, bias=False)

    def forward(self, projections: Tensor) -> Tensor:
        return F.linear(F.normalize(projections), F.normalize(self.directions.weight))
