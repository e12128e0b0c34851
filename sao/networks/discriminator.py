"""An encoder and the head behind it."""

from abc import ABC, abstractmethod
from collections.abc import Iterable

from torch import Tensor, nn


class Encoder(nn.Module, ABC):
    """Inputs → backbone features (n, feature_size), which are what is evaluated and what neighbours are found by."""

    feature_size: int

    @abstractmethod
    def forward(self, inputs: Tensor) -> Tensor: ...

    def blocks_of_maps(self) -> Iterable[nn.Module]:
        """The parts whose outputs are maps (n, c, h, w) of the image, in their order; none where there are no maps."""
        return ()


class Discriminator(nn.Module):
    """Inputs → backbone features (n, b) and what the head makes of them: unnormalised embeddings (n, p) or scores (n, 1)."""

    def __init__(self, encoder: Encoder, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    @property
    def feature_size(self) -> int:
        return self.encoder.feature_size

    def features(self, inputs: Tensor) -> Tensor:
        """The backbone features alone: the head is not run."""
        return self.encoder(inputs)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        features = self.encoder(inputs)
        return features, self.head(features)
