"""The discriminator of StyleGAN2 without residual connections: convolutions, and near its end a look at the other samples."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sao.core import distributed
from sao.networks.checks import check_sizes
from sao.networks.stylegan2 import EPSILON, EqualConvolution, EqualLinear, activated, sides_of, width_at


class StyleDiscriminator(nn.Module):
    """Images (n, c, h, w) → features (n, width), the averaged last map, and scores (n, 1), which depend on the whole batch.

    The features do not: they are taken before samples see each other. The defaults are the authors' network for CIFAR-10.
    """

    def __init__(self, size: int = 32, channels: int = 3, width: int = 512, group: int = 32) -> None:
        super().__init__()
        check_sizes(size=size, channels=channels, width=width, group=group)
        widths = [width_at(side, width) for side in reversed(sides_of(size))]
        self.first = EqualConvolution(channels, widths[0], 1)
        blocks = [(EqualConvolution(i, i, 3), EqualConvolution(i, o, 3, halve=True)) for i, o in pairwise(widths)]
        self.convolutions = nn.Sequential(*[layer for block in blocks for layer in block])
        self.feature_size = last = widths[-1]
        self.deviation = BatchDeviation(group)
        self.mixed = EqualConvolution(last + 1, last, 3)
        side = size // 2 ** len(blocks)
        self.hidden, self.score = EqualLinear(last * side**2, last), EqualLinear(last, 1)

    def features(self, images: Tensor) -> Tensor:
        return self._map(images).mean((2, 3))

    def forward(self, images: Tensor, batch: int) -> tuple[Tensor, Tensor]:
        """Of this process's rows of a global batch."""
        x = self._map(images)
        with_deviation = torch.cat([x, self.deviation(x, batch)], dim=1)
        hidden = activated(self.hidden(self.mixed(with_deviation).flatten(1)))
        return x.mean((2, 3)), self.score(hidden)

    def _map(self, images: Tensor) -> Tensor:
        return self.convolutions(self.first(images))


class BatchDeviation(nn.Module):
    """(n, c, h, w) → (n, 1, h, w): how much the samples of a group differ, the mean over all places of their deviation.

    Sample i of the global batch is in group i mod (batch / group size).
    """

    def __init__(self, group: int) -> None:
        super().__init__()
        self.group = group

    def forward(self, x: Tensor, batch: int) -> Tensor:
        groups = max(1, batch // self.group)
        rows = distributed.local_slice(batch)
        member = torch.arange(rows.start, rows.stop, device=x.device) % groups
        share = F.one_hot(member, groups).to(x.dtype)  # (n, groups)
        sizes = F.one_hot(torch.arange(batch, device=x.device) % groups, groups).sum(0).to(x.dtype)
        values = x.flatten(1)
        mean = distributed.total(share.T @ values) / sizes[:, None]
        variance = distributed.total(share.T @ (values - share @ mean).square()) / sizes[:, None]
        deviation = (variance + EPSILON).sqrt().mean(1)  # (groups,)
        return (share @ deviation)[:, None, None, None].expand(-1, 1, *x.shape[2:])
