"""What the engine knows of a learner: it makes one step on a batch, and turns samples into features."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from sao.networks import MovingAverage

Scalars = dict[str, Tensor]


class NonFiniteError(FloatingPointError):
    """A term of a loss, or a gradient, is NaN or inf; nothing was updated with it."""

    def __init__(self, term: str) -> None:
        super().__init__(f"{term} is NaN or inf")
        self.term = term


class Method(nn.Module, ABC):
    """A learner: its state is its parameters and buffers, and its optimisers'."""

    optimisers: dict[str, Optimizer]
    bfloat16_passes = False  # set by the engine, for the device

    def passes(self, like: Tensor, allowed: bool = True) -> torch.autocast:
        """Around a forward pass while learning: in bfloat16 where that is wanted. Its results are then cast back.

        Losses stay outside, and so does whatever a Jacobian norm is taken of: both are computed in the data's own precision.
        """
        return torch.autocast(like.device.type, dtype=torch.bfloat16, enabled=self.bfloat16_passes and allowed)

    @abstractmethod
    def step(self, inputs: Tensor, step: int) -> Scalars:
        """Learn from this process's rows of the global batch of a step; return detached scalars to log."""

    @abstractmethod
    def features(self, inputs: Tensor) -> Tensor:
        """Backbone features (n, b) for evaluation, without a graph."""

    def embeddings(self, inputs: Tensor) -> Tensor:
        """What the objective sees, (n, p); the features themselves where a method has no head."""
        return self.features(inputs)

    def sample(self, latents: Tensor) -> Tensor | None:
        """Generated inputs, or None for a method that does not generate."""
        return None

    def use_raw_weights(self) -> None:
        """Let features and samples come from the trained networks themselves instead of their moving averages."""
        for name, child in self.named_children():
            if isinstance(child, MovingAverage):  # average_X follows X
                child.network.load_state_dict(getattr(self, name.removeprefix("average_")).state_dict())

    def smooth_function(self, inputs: Tensor) -> Tensor:
        """The function whose Jacobian is watched."""
        return self.features(inputs)


def check_finite(scalars: Scalars) -> None:
    """Stop before an update with the name of the first term that is not finite; one device synchronisation."""
    finite = torch.stack([value.detach().isfinite().all() for value in scalars.values()])
    if not bool(finite.all()):
        raise NonFiniteError(list(scalars)[int(finite.logical_not().nonzero()[0])])


def gradient_norm(parameters: list[nn.Parameter]) -> Tensor:
    gradients = [p.grad for p in parameters if p.grad is not None]
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))  # pyright: ignore[reportPrivateImportUsage]
