"""What can be said of features without labels: how many directions they use and how evenly they spread."""

import math
from typing import Any

import torch

from sao.errors import InputError
from sao.evaluation.inputs import LARGEST, feature_matrix, unit_rows
from sao.evaluation.result import Metric


def effective_rank(features: Any, limit: int = LARGEST, seed: int = 0) -> Metric:
    """RankMe: exp of the entropy of the singular values divided by their sum (of the features as they are, uncentred).

    Where there are more than `limit` samples and dimensions, `limit` samples are drawn.
    """
    features = feature_matrix("features", features)
    n = len(features)
    if min(features.shape) > limit:
        features = features[torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:limit].to(features.device)]
    features = features.double()
    # The smaller Gram matrix has the same non-zero spectrum; in float64 its square roots are good to about 1e-8.
    gram = features.mT @ features if len(features) >= features.shape[1] else features @ features.mT
    singular = torch.linalg.eigvalsh(gram).clamp_min(0).sqrt()
    if singular.sum() == 0:
        raise InputError("features is zero everywhere: its rank says nothing; look for a diverged network")
    shares = singular / singular.sum()
    entropy = torch.special.entr(shares).sum().item()
    protocol = {
        "statistic": "RankMe, exp(entropy of normalised singular values)",
        "normalisation": "none, uncentred",
        "dimensions": features.shape[1],
        "spectrum_of": len(features),
        "n_test": n,
    }
    return Metric("effective_rank", math.exp(entropy), None, protocol)


def uniformity(features: Any, t: float = 2.0, limit: int = 10_000, seed: int = 0, chunk: int = 2048) -> Metric:
    """Wang & Isola: log mean exp(−t |x − y|²) over pairs of distinct unit vectors; lower is more evenly spread."""
    features = feature_matrix("features", features)
    if len(features) < 2:
        raise InputError("features has one sample: uniformity needs at least two")
    n = len(features)
    if n > limit:
        chosen = torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:limit].to(features.device)
        features = features[chosen]
    units = unit_rows(features)
    lengths = units.square().sum(dim=1)  # 1, except that a row of zeros has no direction and stays zero
    total = torch.zeros((), dtype=torch.float64, device=units.device)
    for start in range(0, len(units), chunk):
        part = units[start : start + chunk]
        distances = (lengths[start : start + chunk, None] + lengths - 2 * (part @ units.mT)).clamp_min(0)
        kernel = (-t * distances.double()).exp()
        kernel[torch.arange(len(part)), torch.arange(start, start + len(part))] = 0  # a sample with itself is no pair
        total += kernel.sum()
    mean = (total / (len(units) * (len(units) - 1))).item()
    protocol = {
        "t": t,
        "normalisation": "unit length",
        "pairs_of": len(units),
        "seed": seed if n > limit else None,
        "n_test": n,
    }
    return Metric("uniformity", math.log(max(mean, 1e-300)), None, protocol)
