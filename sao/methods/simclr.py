"""SimCLR, the family that the paper compares with: two augmented views of an image are to be told from all other images.

The backbone is the paper's discriminator; loss and projection head are lightly's.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from sao import distributed
from sao.config import Contrast, Optimiser
from sao.data.augmentation import Augmentation
from sao.errors import InputError
from sao.methods.lars import LARS
from sao.methods.method import Method, Scalars, check_finite, gradient_norm
from sao.networks import MovingAverage
from sao.torchvision_import import import_torchvision


class SimCLR(Method):
    """Without augmentation both views are the same image, and the loss asks for nothing but that images differ."""

    def __init__(
        self,
        backbone: nn.Module,
        backbone_size: int,
        contrast: Contrast,
        augmentation: Augmentation,
        *,
        batch: int,
        optimiser: Optimiser,
        ema: float = 0.99,
    ) -> None:
        super().__init__()
        projection, self.loss = _from_lightly(backbone_size, contrast)
        self.network = backbone
        self.network.head = projection  # in the place of the head that the paper's objectives see
        self.average_network = MovingAverage(self.network, ema)
        self.augmentation, self.batch = augmentation, batch
        self.optimisers = {"contrast": _optimiser(self.network, optimiser)}

    def step(self, inputs: Tensor, step: int) -> Scalars:
        views = [self.augmentation(inputs, f"view {index}", step, self.batch) for index in range(2)]
        with self.passes(inputs):
            projections = self.network(torch.cat(views))[1].to(inputs.dtype)
        # The two views of an image travel side by side: one row of the message for each row of the batch.
        both = distributed.gather(torch.cat(projections.chunk(2), dim=1), self.batch)
        loss = self.loss(*both.chunk(2, dim=1))
        parameters = list(self.network.parameters())
        self.optimisers["contrast"].zero_grad()
        loss.backward()
        distributed.sum_gradients(parameters)
        scalars = {"contrast/nt_xent": loss.detach(), "contrast/gradient_norm": gradient_norm(parameters)}
        check_finite(scalars)
        self.optimisers["contrast"].step()
        self.average_network.update(self.network)
        return scalars

    @torch.no_grad()
    def features(self, inputs: Tensor) -> Tensor:
        return self.average_network.network.features(inputs)  # pyright: ignore[reportCallIssue]

    @torch.no_grad()
    def embeddings(self, inputs: Tensor) -> Tensor:
        return F.normalize(self.average_network.network(inputs)[1])

    def smooth_function(self, inputs: Tensor) -> Tensor:
        return self.average_network.network(inputs)[1]


def _from_lightly(backbone_size: int, contrast: Contrast) -> tuple[nn.Module, nn.Module]:
    """Head and loss. The head has no BatchNorm: its moments would be those of one process's part of the batch."""
    try:
        import_torchvision()  # lightly imports it; see there what can go wrong
        from lightly.loss import NTXentLoss
        from lightly.models.modules import SimCLRProjectionHead
    except ImportError:
        raise InputError("method simclr needs lightly: pip install 'sao[baselines]'") from None
    head = SimCLRProjectionHead(backbone_size, contrast.hidden, contrast.size, batch_norm=False)
    return head, NTXentLoss(contrast.temperature)


def _optimiser(network: nn.Module, settings: Optimiser) -> Optimizer:
    rate, decay = settings.learning_rate, settings.weight_decay
    if settings.kind == "lars":
        return LARS(network.parameters(), lr=rate, weight_decay=decay)
    return torch.optim.AdamW(network.parameters(), lr=rate, betas=settings.betas, weight_decay=decay, fused=True)
