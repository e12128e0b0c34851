"""What every two-view learner shares: views of a batch → encoder → head → a loss of the gathered global batch."""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from sao import distributed
from sao.data.augmentation import Augmentation
from sao.methods.method import Batch, Context, Method, MethodOptions, Scalars, evaluating
from sao.methods.optimisers import ViewsOptimiser
from sao.networks import Discriminator, Encoder, MovingAverage
from sao.options import Decay

SYMMETRIC = Augmentation(crop=0.08, jitter=(0.8, 0.8, 0.8, 0.2), grey=0.2, blur=0.5, flip=True)


class ViewsOptions(MethodOptions):
    view: Augmentation = Field(default=SYMMETRIC, description="how the first view of an image is made")
    second_view: Augmentation | None = Field(default=None, description="how the second view is made; null: like the first")
    optimiser: ViewsOptimiser = Field(default=ViewsOptimiser(), description="how encoder and head are updated")
    average: Decay | None = Field(
        default=None, description="take features from a moving average with this decay; null: from the network"
    )


class TwoViews(Method):
    """Without augmentation both views are the same image, and a loss can ask for nothing but that images differ."""

    def __init__(self, encoder: Encoder, head: nn.Module, options: ViewsOptions, context: Context) -> None:
        super().__init__()
        self.network = Discriminator(encoder, head)
        self.average_network = None if options.average is None else MovingAverage(self.network, options.average)
        self.views = [options.view, options.second_view or options.view]
        self.batch, self.seed = context.batch, context.seed
        self.optimisers = {"network": options.optimiser.build(self.network.parameters())}

    # --- what a method says ------------------------------------------------------------------------------------------

    @abstractmethod
    def losses(self, views: Sequence[Tensor], step: int) -> Scalars:
        """Weighted terms of the global batch, from the rows that `project` made of each view.

        Parameters take part in `project` alone: here every process would add their whole gradient.
        """

    def project(self, images: Tensor) -> Tensor:
        """What the losses need of this process's rows of a view, (n, anything)."""
        return self.network(images)[1]

    # --- the step ----------------------------------------------------------------------------------------------------

    def step(self, batch: Batch, step: int) -> Scalars:
        views = self._gathered(batch.inputs, step)
        scalars = self.descend("network", self.losses(views, step), {"spread": spread(views[0])})
        if self.average_network is not None:
            self.average_network.update(self.network)
        return scalars

    def _gathered(self, inputs: Tensor, step: int) -> tuple[Tensor, ...]:
        """The projections of every view of the global batch. Each passes alone: a BatchNorm takes the moments of one view."""
        projections = []
        for index, view in enumerate(self.views):
            images = view(inputs, self.seed, f"view {index}", step, self.batch)
            with self.passes(images):
                projections.append(self.project(images).to(images.dtype))
        # The views of an image travel side by side: one row of the message for each row of the batch.
        return distributed.gather(torch.cat(projections, dim=1), self.batch).chunk(len(projections), dim=1)

    # --- use ---------------------------------------------------------------------------------------------------------

    @property
    def _used(self) -> nn.Module:
        return self.network if self.average_network is None else self.average_network.network

    @torch.no_grad()
    def features(self, inputs: Tensor) -> Tensor:
        with evaluating(self._used) as network:
            return network.features(inputs)  # pyright: ignore[reportCallIssue]

    @torch.no_grad()
    def embeddings(self, inputs: Tensor) -> Tensor:
        with evaluating(self._used) as network:
            return F.normalize(network(inputs)[1])

    def smooth_function(self, inputs: Tensor) -> Tensor:
        with evaluating(self._used) as network:
            return network(inputs)[1]


def spread(projections: Tensor) -> Tensor:
    """How evenly directions are spread: about 1 for projections that differ, 0 where all of them have become the same."""
    directions = F.normalize(projections.detach(), dim=1)
    return directions.std(0, correction=0).square().sum().sqrt()
