"""What every two-view method shares: views of a batch → encoder → head → a loss of the gathered global batch."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from sao.config.types import Decay
from sao.core import distributed
from sao.data.augmentation import Augmentation
from sao.methods.base import Batch, Context, Method, MethodOptions, Scalars, evaluating
from sao.methods.optimisers import ViewsOptimiser
from sao.networks import EMA, Discriminator, Encoder, Teacher

# Of the published recipes for CIFAR-10 and CIFAR-100.
SYMMETRIC = Augmentation(crop=0.08, jitter=(0.8, 0.8, 0.8, 0.2), grey=0.2, blur=0.5, flip=True)
WEAKER = Augmentation(crop=0.08, jitter=(0.4, 0.4, 0.2, 0.1), grey=0.2, flip=True)
WEAKER_SOLARISED = WEAKER.model_copy(update={"solarise": 0.2})

Outputs = dict[str, Tensor]  # of the networks for a view, by name, as a loss needs them: (n, anything)


class ViewsOptions(MethodOptions):
    view: Augmentation = Field(default=SYMMETRIC, description="how the first view of an image is made")
    second_view: Augmentation | None = Field(default=None, description="how the second view is made; null: like the first")
    optimiser: ViewsOptimiser = Field(default=ViewsOptimiser(), description="how encoder and head are updated")
    ema_decay: Decay | None = Field(default=None, description="take features from an EMA with this decay; null: the network")
    builds: "ClassVar[type[TwoViews]]"

    def build(self, context: Context) -> "TwoViews":
        return self.builds(self, context)  # pyright: ignore


class WeakerViewsOptions(ViewsOptions):
    view: Augmentation = Field(default=WEAKER, description="how the first view of an image is made")
    second_view: Augmentation | None = Field(
        default=WEAKER_SOLARISED, description="how the second view is made; null: like the first"
    )


class TwoViews(Method):
    """Without augmentation both views are the same image, and a loss can ask for nothing but that images differ."""

    may_collapse: ClassVar[bool] = True
    frozen_steps = 0  # before the predictor is trained

    def __init__(
        self, encoder: Encoder, head: nn.Module, options: ViewsOptions, context: Context, predictor: nn.Module | None = None
    ) -> None:
        """A predictor is trained on top of the head's projections."""
        super().__init__()
        self.network = Discriminator(encoder, head)
        self.predictor = nn.Identity() if predictor is None else predictor
        self.ema_network = None if options.ema_decay is None else EMA(self.network, options.ema_decay)
        used = "network" if self.ema_network is None else "ema_network.network"
        self.features_with, self.embeddings_with = (f"{used}.encoder",), (used,)
        self.views = [options.view, options.second_view or options.view]
        self.flipped = all(view.flip for view in self.views)
        self.batch, self.seed, self.steps = context.batch, context.seed, context.steps
        self.optimisers = {"network": options.optimiser.build([*self.network.parameters(), *self.predictor.parameters()])}

    # --- what a method says ------------------------------------------------------------------------------------------

    @abstractmethod
    def losses(self, views: Sequence[Outputs], step: int) -> Scalars:
        """Weighted terms of the global batch, of outputs alone: of a parameter every process would add the whole gradient."""

    def view(self, index: int, inputs: Tensor, step: int) -> Tensor:
        """One of the views of this process's rows of the batch."""
        return self.views[index](inputs, self.seed, f"view {index}", step, self.batch)

    def project(self, images: Tensor) -> Outputs:
        """Outputs for this process's rows of a view; the collapse diagnostic reads `diagnosed`, or else `projection`."""
        return {"projection": self.network(images)[1]}

    def update_bank(self, views: Sequence[Outputs], step: int) -> None:
        """After the update: push outputs that later steps need."""

    # --- the step ----------------------------------------------------------------------------------------------------

    def step(self, batch: Batch, step: int) -> Scalars:
        self.predictor.requires_grad_(step >= self.frozen_steps)
        views = self._gathered(batch.inputs, step)
        diagnosed = views[0].get("diagnosed", views[0]["projection"])
        scalars = self.backward_and_update("network", self.losses(views, step), {"spread": spread(diagnosed)})
        if self.ema_network is not None:
            self.ema_network.update(self.network)
        self.update_bank([{name: rows.detach() for name, rows in view.items()} for view in views], step)
        return scalars

    def _gathered(self, inputs: Tensor, step: int) -> list[Outputs]:
        """Outputs for every view of the global batch. Each view passes alone: a BatchNorm takes the moments of one view."""
        made: list[Outputs] = []
        for index in range(len(self.views)):
            images = self.view(index, inputs, step)
            with self.autocast(images) as called:
                made.append({name: rows.to(images.dtype) for name, rows in called(self.project)(images).items()})
        # All outputs of an image travel in one row of one message.
        rows = [rows for outputs in made for rows in outputs.values()]
        message = distributed.gather(torch.cat(rows, dim=1), self.batch)
        columns = iter(message.split([one.shape[1] for one in rows], dim=1))
        return [{name: next(columns) for name in outputs} for outputs in made]

    # --- use ---------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def embeddings(self, inputs: Tensor) -> Tensor:
        return F.normalize(self.smooth_function(inputs))

    def smooth_function(self, inputs: Tensor) -> Tensor:
        with evaluating(self.network if self.ema_network is None else self.ema_network.network) as network:
            return network(inputs)[1]


class TeacherOptions(WeakerViewsOptions):
    momentum: Decay = Field(default=0.99, description="decay of the teacher at the start; it rises to 1 along a cosine")


class TeacherViews(TwoViews):
    """The targets come from a teacher, an EMA of the network (BYOL calls it the target network)."""

    def __init__(
        self,
        encoder: Encoder,
        head: nn.Module,
        options: TeacherOptions,
        context: Context,
        predictor: nn.Module,
        teacher_predicts: bool,
    ) -> None:
        super().__init__(encoder, head, options, context, predictor)
        self.momentum = options.momentum
        self.followed = (self.network, self.predictor) if teacher_predicts else (self.network,)
        self.teacher = Teacher(*self.followed)

    def step(self, batch: Batch, step: int) -> Scalars:
        scalars = super().step(batch, step)
        self.teacher.update(rising_to_1(self.momentum, step, self.steps), *self.followed)
        return scalars

    def followers(self) -> dict[str, str]:
        names = ("network.", "predictor.")[: len(self.followed)]
        return super().followers() | {f"teacher.networks.{index}.": name for index, name in enumerate(names)}

    def project(self, images: Tensor) -> Outputs:
        """Also the predictor's outputs, and the teacher's: projections, or predictions where it has a predictor."""
        projection = self.network(images)[1]
        output = self.predictor(projection)
        with torch.no_grad():
            network, *predictor = self.teacher.networks
            target = network(images)[1]
            target = predictor[0](target) if predictor else target
        return {"projection": projection.detach(), "output": output, "target": target}


def rising_to_1(first: float, step: int, steps: int) -> float:
    return 1 - (1 - first) * (math.cos(math.pi * step / steps) + 1) / 2


def cross_views(views: Sequence[Outputs]) -> list[tuple[Outputs, Outputs]]:
    """Each of the first two views with every view but itself."""
    return [(one, other) for index, one in enumerate(views[:2]) for place, other in enumerate(views) if place != index]


def nt_xent(one: Tensor, other: Tensor, temperature: float) -> Tensor:
    """Cross-entropy of the other view of an image among all views (2n) but the view itself; rows (n, p) are made unit."""
    views = F.normalize(torch.cat([one, other]))
    itself = torch.eye(len(views), dtype=torch.bool, device=views.device)
    logits = (views @ views.T / temperature).masked_fill(itself, -torch.inf)
    positives = torch.arange(len(views), device=views.device).roll(len(one))
    return F.cross_entropy(logits, positives)


def soft_cross_entropy(targets: Tensor, logits: Tensor) -> Tensor:
    """Mean over the batch; targets (n, k) are probabilities."""
    return -(targets * logits.log_softmax(1)).sum(1).mean()


def spread(projections: Tensor) -> Tensor:
    """How evenly directions are spread: about 1 for projections that differ, 0 where all of them have become the same."""
    directions = F.normalize(projections.detach(), dim=1)
    return directions.std(0, correction=0).square().sum().sqrt()
