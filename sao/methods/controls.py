"""The two ends of every comparison: a network trained with labels, and one that is not trained at all."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sao import distributed, randomness
from sao.data.augmentation import Augmentation
from sao.methods.method import Method, Scalars, check_finite, gradient_norm
from sao.networks import MovingAverage


class Supervised(Method):
    """Cross-entropy on the labels, which this method alone asks for; the upper end."""

    labels: Tensor | None

    def __init__(
        self,
        backbone: nn.Module,
        backbone_size: int,
        classes: int,
        labels: Tensor | None,
        augmentation: Augmentation,
        *,
        batch: int,
        optimiser: dict,
        ema: float = 0.99,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.classifier = nn.Linear(backbone_size, classes)
        self.average_backbone = MovingAverage(backbone, ema)
        self.register_buffer("labels", labels, persistent=False)
        self.augmentation, self.batch, self.seed = augmentation, batch, seed
        self.optimisers = {"classifier": torch.optim.AdamW(self._trained, **optimiser, fused=True)}

    @property
    def _trained(self) -> list[nn.Parameter]:
        head = {id(p) for p in getattr(self.backbone, "head", nn.Identity()).parameters()}
        return [p for p in (*self.backbone.parameters(), *self.classifier.parameters()) if id(p) not in head]

    def step(self, inputs: Tensor, step: int) -> Scalars:
        assert self.labels is not None, "a supervised method without labels can embed but not learn"
        rows = randomness.batch_rows(self.seed, step, self.batch, len(self.labels))
        images = self.augmentation(inputs, "discriminator", step, self.batch)
        with self.passes(images):
            mine = self.classifier(self.backbone.features(images))  # pyright: ignore[reportCallIssue]
        logits = distributed.gather(mine.to(images.dtype), self.batch)
        labels = self.labels[rows.to(self.labels.device)]  # of the whole batch: every process has them all
        loss = F.cross_entropy(logits, labels)
        self.optimisers["classifier"].zero_grad()
        loss.backward()
        distributed.sum_gradients(self._trained)
        scalars = {
            "classifier/cross_entropy": loss.detach(),
            "classifier/accuracy": (logits.argmax(1) == labels).float().mean(),
            "classifier/gradient_norm": gradient_norm(self._trained),
        }
        check_finite(scalars)
        self.optimisers["classifier"].step()
        self.average_backbone.update(self.backbone)
        return scalars

    @torch.no_grad()
    def features(self, inputs: Tensor) -> Tensor:
        return self.average_backbone.network.features(inputs)  # pyright: ignore[reportCallIssue]

    def smooth_function(self, inputs: Tensor) -> Tensor:
        return self.average_backbone.network.features(inputs)  # pyright: ignore[reportCallIssue]


class Random(Method):
    """The network as it was initialised; the lower end."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.optimisers = {}

    def step(self, inputs: Tensor, step: int) -> Scalars:
        """Nothing to learn; the loop around it is the same."""
        return {"random/steps": torch.tensor(float(step + 1))}

    @torch.no_grad()
    def features(self, inputs: Tensor) -> Tensor:
        return self.backbone.features(inputs)  # pyright: ignore[reportCallIssue]

    def smooth_function(self, inputs: Tensor) -> Tensor:
        return self.backbone.features(inputs)  # pyright: ignore[reportCallIssue]
