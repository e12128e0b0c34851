"""Did the generator copy its training set: how close each sample lies to the nearest real one, against reals themselves."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sao.errors import InputError
from sao.evaluation.inputs import feature_matrix, same_width
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

    Takes images (n, h, w, c), compared pixel by pixel, or any features (n, d).
    """
    samples, reals = _flat("samples", samples), _flat("reals", reals)
    same_width("samples", samples, "reals", reals)
    if len(reals) < 3:
        raise InputError(f"reals has {len(reals)} samples: give at least three")
    if not 0 < quantile < 1:
        raise InputError(f"quantile must lie between 0 and 1, got {quantile}: 0.01 is usual")
    probed = torch.randperm(len(reals), generator=torch.Generator().manual_seed(seed))[:limit].sort().values
    _, between_reals = _nearest(reals[probed], reals, chunk, own=probed)
    threshold = between_reals.quantile(quantile, interpolation="lower")
    nearest, distances = _nearest(samples, reals, chunk)
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
        "n_fake": len(samples),
        "n_real": len(reals),
    }
    return Memorised(len(rows), Metric("memorised", len(rows) / len(samples), None, protocol), rows, nearest, distances)


def _nearest(queries: Tensor, reals: Tensor, chunk: int, own: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Index (n,) and distance (n,) of the nearest real, leaving out row own[i] for query i."""
    centre = reals.mean(dim=0)
    centred = reals - centre
    lengths = centred.square().sum(dim=1)
    indices = []
    for start in range(0, len(queries), chunk):
        part = queries[start : start + chunk] - centre
        squared = torch.addmm(lengths[None], part, centred.mT, alpha=-2)  # less |part|², the same for every real
        if own is not None:
            squared[torch.arange(len(part)), own[start : start + chunk]] = torch.inf
        indices.append(squared.argmin(dim=1))
    nearest = torch.cat(indices)
    # Copies are the point here: take the difference itself, where the expansion above would leave rounding.
    parts = zip(queries.split(chunk), nearest.split(chunk), strict=True)
    return nearest, torch.cat([(part - reals[rows]).double().norm(dim=1) for part, rows in parts])


def _flat(name: str, values: Any) -> Tensor:
    tensor = torch.as_tensor(values if isinstance(values, Tensor) else np.asarray(values))
    if tensor.ndim < 2:
        raise InputError(f"{name} must be images (n, h, w, c) or features (n, d), got shape {tuple(tensor.shape)}")
    return feature_matrix(name, tensor.flatten(1)).cpu()
