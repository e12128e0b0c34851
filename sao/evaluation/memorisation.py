"""Did the generator copy its training set: how close each sample lies to the nearest real one, against reals themselves."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sao.errors import InputError
from sao.evaluation.inputs import feature_matrix
from sao.evaluation.result import Metric


@dataclass(frozen=True, eq=False)
class Memorised:
    """`rows` are the suspicious samples and `nearest` each sample's closest real one, for a person to look at."""

    count: int
    share: Metric
    rows: Tensor
    nearest: Tensor
    distances: Tensor


def memorised(
    samples: Any, reals: Any, quantile: float = 0.01, limit: int = 2000, seed: int = 0, chunk: int = 1024
) -> Memorised:
    """Samples nearer to a real one than all but `quantile` of the reals are to each other; fresh data would score `quantile`.

    Takes images (n, h, w, c), compared pixel by pixel, or any features (n, d). Only `chunk` rows at a time become
    floating-point numbers: of bytes in memory or on disk there is never a copy four times as large.
    """
    queries, reals = _Rows("samples", samples, chunk), _Rows("reals", reals, chunk)
    if queries.width != reals.width:
        raise InputError(f"samples have {queries.width} dimensions but reals have {reals.width}: give images of the same size")
    if len(reals) < 3:
        raise InputError(f"reals has {len(reals)} samples: give at least three")
    if not 0 < quantile < 1:
        raise InputError(f"quantile must lie between 0 and 1, got {quantile}: 0.01 is usual")
    probed = torch.randperm(len(reals), generator=torch.Generator().manual_seed(seed))[:limit].sort().values
    _, between_reals = _nearest(_Rows("reals", reals.values[probed.numpy()], chunk), reals, own=probed)
    threshold = between_reals.quantile(quantile, interpolation="lower")
    nearest, distances = _nearest(queries, reals)
    rows = (distances <= threshold).nonzero().flatten()  # ≤: where reals repeat, an exact copy still counts
    protocol = {
        "distance": "Euclidean",
        "threshold": threshold.item(),
        "threshold_is": f"{quantile:g} quantile of the distance from {len(probed)} reals to their nearest other real",
        "expected_of_fresh_data": quantile,
        "median_to_nearest_real": distances.median().item(),
        "median_between_reals": between_reals.median().item(),
        "count": len(rows),
        "seed": seed,
        "n_fake": len(queries),
        "n_real": len(reals),
    }
    return Memorised(len(rows), Metric("memorised", len(rows) / len(queries), None, protocol), rows, nearest, distances)


class _Rows:
    """Rows of an array of any kind, some at a time, each as one row of floating-point numbers."""

    def __init__(self, name: str, values: Any, chunk: int) -> None:
        self.name, self.chunk = name, chunk
        if isinstance(values, Tensor):
            values = values.detach().cpu().numpy()
        # What is not an array but can be indexed like one, as rows of a file are, stays where it is.
        self.values: Any = np.asarray(values) if isinstance(values, list | tuple) else values
        shape = tuple(self.values.shape)
        if len(shape) < 2:
            raise InputError(f"{name} must be images (n, h, w, c) or features (n, d), got shape {shape}")
        self.width = int(np.prod(shape[1:]))

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Any) -> Tensor:
        part = np.asarray(self.values[rows])
        floating = np.float64 if part.dtype == np.float64 else np.float32
        return feature_matrix(self.name, torch.from_numpy(part.reshape(len(part), -1).astype(floating)))

    def blocks(self) -> Iterator[tuple[int, Tensor]]:
        """(first row, rows) of each part."""
        for start in range(0, len(self), self.chunk):
            yield start, self[slice(start, start + self.chunk)]


def _nearest(queries: _Rows, reals: _Rows, own: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Index (n,) and distance (n,) of the nearest real, leaving out row own[i] for query i."""
    centre = torch.stack([block.sum(dim=0, dtype=torch.float64) for _, block in reals.blocks()]).sum(dim=0) / len(reals)
    least = torch.full((len(queries),), torch.inf, dtype=torch.float64)
    nearest = torch.zeros(len(queries), dtype=torch.long)
    for first, block in reals.blocks():
        block = block - centre.to(block)
        lengths = block.square().sum(dim=1)
        for start, part in queries.blocks():
            # Less |part|², the same for every real.
            squared = torch.addmm(lengths[None], part.to(block) - centre.to(block), block.mT, alpha=-2)
            if own is not None:
                column = own[start : start + len(part)] - first
                row = ((column >= 0) & (column < len(block))).nonzero().flatten()
                squared[row, column[row]] = torch.inf
            best = squared.min(dim=1)
            closer = (best.values < least[start : start + len(part)]).nonzero().flatten()
            least[start + closer] = best.values[closer].double()
            nearest[start + closer] = best.indices[closer] + first
    # Copies are the point here: take the difference itself, where the expansion above would leave rounding.
    distances = []
    for start, part in queries.blocks():
        found = reals[nearest[start : start + len(part)].numpy()]
        distances.append((part.double() - found.double()).norm(dim=1))
    return nearest, torch.cat(distances)
