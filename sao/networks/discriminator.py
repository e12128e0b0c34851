"""An encoder and the head behind it."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from torch import Tensor, nn


class Encoder(nn.Module, ABC):
    """Inputs → backbone features (n, feature_size), which are what is evaluated and what neighbours are found by."""

    feature_size: int

    @abstractmethod
    def forward(self, inputs: Tensor) -> Tensor: ...

    def blocks_of_maps(self) -> Iterable[nn.Module]:
        """The parts whose outputs are maps (n, c, h, w) of the image, in their order; none where there are no maps."""
        return ()

    def stage_widths(self) -> Sequence[int]:
        """Channels of the map at the end of each stage that `with_map` can give; none where it cannot."""
        return ()

    def with_map(self, inputs: Tensor, stage: int) -> tuple[Tensor, Tensor]:
        """The features and, from the same pass, the map (n, c, h, w) at the end of a stage."""
        raise NotImplementedError


class Discriminator(nn.Module):
    """Inputs → backbone features (n, b) and what the head makes of them: unnormalised embeddings (n, p) or scores (n, 1)."""

    def __init__(self, encoder: Encoder, head: nn.Module, local_head: nn.Module | None = None, local_stage: int = 0) -> None:
        """A `local_head` embeds the positions of the map at the end of the `local_stage`."""
        super().__init__()
        self.encoder, self.head, self.local_head, self.local_stage = encoder, head, local_head, local_stage

    @property
    def feature_size(self) -> int:
        return self.encoder.feature_size

    def features(self, inputs: Tensor) -> Tensor:
        """The backbone features alone: the head is not run."""
        return self.encoder(inputs)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        features = self.encoder(inputs)
        return features, self.head(features)

    def with_local(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Also the local embeddings (n, positions, q)."""
        assert self.local_head is not None
        features, maps = self.encoder.with_map(inputs, self.local_stage)
        return features, self.head(features), self.local_head(maps)
