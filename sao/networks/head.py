"""The projection from backbone features to the embedding that the objectives see."""

from torch import Tensor, nn


class EmbeddingHead(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(inputs, inputs)
        self.activation = nn.ELU()
        self.output = nn.Linear(inputs, outputs)

    def forward(self, features: Tensor) -> Tensor:
        return self.output(self.activation(self.hidden(features)))
