"""The pair for points and vectors: multi-layer perceptrons with the normalisation and activation of the image networks."""

from torch import Tensor, nn
from torch.nn import functional as F

from sao.core import distributed
from sao.networks.base import Encoder, check_latents, check_sizes
from sao.networks.layers import ELU, BatchNorm, GroupNorm
from sao.networks.spectral import normalise_spectrally


class VectorEncoder(Encoder):
    """(n, inputs) → backbone features (n, width); no norm at the stem, which would forget how long the vector is."""

    def __init__(self, inputs: int, width: int = 128, depth: int = 4) -> None:
        super().__init__()
        check_sizes(inputs=inputs, width=width, depth=depth)
        self.inputs, self.feature_size = inputs, width
        self.stem = nn.Linear(inputs, width)
        self.activation = ELU()
        self.blocks = nn.Sequential(*[ResidualLayer(width) for _ in range(depth)])

    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.ndim != 2 or inputs.shape[0] == 0 or inputs.shape[1] != self.inputs:
            raise ValueError(f"vectors must have shape (n > 0, {self.inputs}), got {tuple(inputs.shape)}")
        return self.blocks(self.activation(self.stem(inputs)))


class ResidualLayer(nn.Module):
    """The vector version of the ResNet's residual block: no first norm, GroupNorm before the sum."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(width, width, bias=False)
        self.second = nn.Linear(width, width, bias=False)
        self.norm = GroupNorm(width)
        self.activation = ELU()

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(x, self.norm(self.second(self.activation(self.first(x)))))


class VectorGenerator(nn.Module):
    """Latents (n, latent_size) → vectors (n, outputs); without a squashing function, because vectors have no bounds."""

    def __init__(self, outputs: int, width: int = 128, depth: int = 4, latent_size: int = 128) -> None:
        super().__init__()
        check_sizes(outputs=outputs, width=width, depth=depth, latent_size=latent_size)
        self.latent_size = latent_size
        self.first = nn.Linear(latent_size, width)
        self.norms = nn.ModuleList(BatchNorm(width, latent_size) for _ in range(depth))
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norm = BatchNorm(width)
        self.last = nn.Linear(width, outputs)
        normalise_spectrally(self)

    def forward(self, latents: Tensor) -> Tensor:
        check_latents(latents, self.latent_size)
        if self.training and len(latents) == distributed.world_size() == 1:
            raise ValueError("latents has 1 row: batch statistics need at least 2")
        x = self.first(latents)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + layer(F.relu_(norm(x, latents)))
        return self.last(F.relu_(self.norm(x)))
