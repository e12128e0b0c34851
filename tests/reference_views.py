"""One whole step of the methods with a teacher, a queue or prototypes, as slow as it reads: losses are loops over samples."""

import copy
import math
from abc import abstractmethod
from dataclasses import dataclass, field

import torch
from reference_baselines import Optimiser, gradients, length, spread
from reference_losses import Terms, unit
from reference_step import EMA
from torch import Tensor, nn


@dataclass
class Reference:
    """`network` ends in the projection and `predictor` goes on from there; a step is told the views of its batch."""

    network: nn.Module
    predictor: nn.Module
    optimisers: tuple[Optimiser, Optimiser]  # of the network and of the predictor
    ema: EMA | None
    teacher: nn.Module | None = None  # of the network alone, or of both
    momentum: float = 0.0
    steps: int = 1  # of the whole run
    frozen: int = 0  # steps in which the predictor does not learn
    gradients: dict[str, Tensor] = field(default_factory=dict)  # of the last step

    name = ""

    @abstractmethod
    def loss(self, views: list[Tensor], number: int) -> tuple[Tensor, Tensor]:
        """With those rows of the first view that tell whether it collapses."""

    def after(self, number: int) -> None:
        """The queue after the step."""

    def step(self, views: list[Tensor], number: int) -> Terms:
        loss, diagnosed = self.loss(views, number)
        learning = [("", self.network, self.optimisers[0]), ("predictor.", self.predictor, self.optimisers[1])]
        if number < self.frozen:
            del learning[1]
        found = [gradients(loss, module) for _, module, _ in learning]
        for (_, module, optimiser), of_module in zip(learning, found, strict=True):
            optimiser.step(module, of_module)
        self.gradients = {
            prefix + name: gradient
            for (prefix, _, _), of_module in zip(learning, found, strict=True)
            for name, gradient in of_module.items()
        }
        if self.ema is not None:
            self.ema.update(self.network)
        self.after(number)
        self.follow(number)
        logged = {self.name: loss, "spread": spread(diagnosed), "gradient_norm": length(self.gradients)}
        return {f"network/{name}": value.detach() for name, value in logged.items()}

    @torch.no_grad()
    def follow(self, number: int) -> None:
        if self.teacher is None:
            return
        decay = 1 - (1 - self.momentum) * 0.5 * (1 + math.cos(math.pi * number / self.steps))
        followed = {**parameters(self.network, "network."), **parameters(self.predictor, "predictor.")}
        for name, weight in self.teacher.named_parameters():
            weight.copy_(decay * weight + (1 - decay) * followed[name])


def parameters(module: nn.Module, prefix: str) -> dict[str, Tensor]:
    return {prefix + name: weight for name, weight in module.named_parameters()}


class BYOL(Reference):
    name = "byol"

    def loss(self, views: list[Tensor], number: int) -> tuple[Tensor, Tensor]:
        assert self.teacher is not None
        projections = [self.network(view)[1] for view in views]
        predictions = [unit(self.predictor(projection)) for projection in projections]
        targets = [unit(self.teacher.get_submodule("network")(view)[1]).detach() for view in views]
        losses = []
        for one, other in ((0, 1), (1, 0)):
            squares = [(p - t).square().sum() for p, t in zip(predictions[one], targets[other], strict=True)]
            losses.append(torch.stack(squares).sum() / len(squares))
        return losses[0] + losses[1], projections[0]


@dataclass
class NNCLR(Reference):
    temperature: float = 0.0
    queue: list[Tensor] = field(default_factory=list)  # the oldest first

    name = "nnclr"

    def loss(self, views: list[Tensor], number: int) -> tuple[Tensor, Tensor]:
        features, projections = zip(*[self.network(view) for view in views], strict=True)
        predictions = [unit(self.predictor(projection)) for projection in projections]
        self.first = unit(projections[0]).detach()
        pairs = [(0, 1), (1, 0)] if len(views) == 2 else [(0, 0)]
        losses = []
        for one, other in pairs:
            for index, projection in enumerate(unit(projections[one]).detach()):
                nearest = max(self.queue, key=lambda row, z=projection: float(row @ z))
                similar = [nearest @ prediction / self.temperature for prediction in predictions[other]]
                losses.append(-similar[index] + torch.stack(similar).exp().sum().log())
        return torch.stack(losses).sum() / len(losses), features[0]

    def after(self, number: int) -> None:
        size = len(self.queue)
        self.queue = [*self.queue, *self.first][-size:]


@dataclass
class SwAV(Reference):
    temperature: float = 0.0
    epsilon: float = 0.0
    rounds: int = 0
    capacity: int = 0
    queue_from: int = 0  # the first step that uses the queues
    queues: tuple[list[Tensor], list[Tensor]] = field(default_factory=lambda: ([], []))

    name = "swav"

    def loss(self, views: list[Tensor], number: int) -> tuple[Tensor, Tensor]:
        prototypes = unit(next(self.predictor.parameters()))
        projections = [self.network(view)[1] for view in views]
        scores = [unit(projection) @ prototypes.T for projection in projections]
        self.new = [projection.detach() for projection in projections[:2]]
        losses = []
        for one in (0, 1):
            together = scores[one].detach()
            if number >= self.queue_from and self.capacity > 0:
                past = torch.stack(self.queues[one])
                assert len(past) == self.capacity
                together = torch.cat([together, unit(past) @ prototypes.detach().T])
            assigned = self.assigned(together)[: len(scores[one])]
            for other, predicted in enumerate(scores):
                if other != one:
                    losses.append(cross_entropy(assigned, predicted / self.temperature))
        return torch.stack(losses).sum() / len(losses), projections[0]

    def assigned(self, scores: Tensor) -> Tensor:
        """Prototypes and samples in turn, as the original writes it: a matrix (prototypes, samples) whose sum is 1."""
        q = (scores / self.epsilon).exp().T
        k, b = q.shape
        q = q / q.sum()
        for _ in range(self.rounds):
            q = q / q.sum(1, keepdim=True) / k
            q = q / q.sum(0, keepdim=True) / b
        return (q * b).T

    def after(self, number: int) -> None:
        for queue, rows in zip(self.queues, self.new, strict=True):
            queue.extend(rows)
            del queue[: max(0, len(queue) - self.capacity)]


@dataclass
class DINO(Reference):
    temperature: float = 0.0
    sharp: list[float] = field(default_factory=list)  # the teacher's temperature at each step
    centre_decay: float = 0.0
    centre: Tensor = field(default_factory=lambda: torch.zeros(()))

    name = "dino"

    def loss(self, views: list[Tensor], number: int) -> tuple[Tensor, Tensor]:
        assert self.teacher is not None
        projections = [self.network(view)[1] for view in views]
        outputs = [self.predictor(projection) for projection in projections]
        with torch.no_grad():
            network, predictor = (self.teacher.get_submodule(part) for part in ("network", "predictor"))
            self.targets = [predictor(network(view)[1]) for view in views]
        losses = []
        for one, other in ((0, 1), (1, 0)):
            weights = ((self.targets[one] - self.centre) / self.sharp[number]).exp()
            shares = weights / weights.sum(1, keepdim=True)
            losses.append(cross_entropy(shares, outputs[other] / self.temperature))
        return (losses[0] + losses[1]) / 2, projections[0]

    def after(self, number: int) -> None:
        mean = (self.targets[0].mean(0) + self.targets[1].mean(0)) / 2
        self.centre = self.centre_decay * self.centre + (1 - self.centre_decay) * mean


def cross_entropy(shares: Tensor, logits: Tensor) -> Tensor:
    losses = []
    for share, row in zip(shares, logits, strict=True):
        chances = row.exp() / row.exp().sum()
        losses.append(-(share * chances.log()).sum())
    return torch.stack(losses).sum() / len(losses)


def teacher_of(network: nn.Module, predictor: nn.Module | None = None) -> nn.Module:
    """A copy of both, under the names of what it follows."""
    parts = {"network": network} | ({} if predictor is None else {"predictor": predictor})
    return nn.ModuleDict(copy.deepcopy(parts)).requires_grad_(False)
