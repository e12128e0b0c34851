"""What stands behind an encoder: the projection of its features that the objectives see."""

from torch import Tensor, nn

from sao.networks.checks import check_sizes
from sao.networks.spectral import normalise_spectrally


class EmbeddingHead(nn.Module):
    """Features (n, inputs) → unnormalised embeddings (n, outputs)."""

    def __init__(self, inputs: int, outputs: int, spectral_normalisation: bool = False) -> None:
        super().__init__()
        check_sizes(inputs=inputs, outputs=outputs)
        self.hidden = nn.Linear(inputs, inputs)
        self.activation = nn.ELU()
        self.output = nn.Linear(inputs, outputs)
        if spectral_normalisation:
            normalise_spectrally(self)

    def forward(self, features: Tensor) -> Tensor:
        return self.output(self.activation(self.hidden(features)))


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
