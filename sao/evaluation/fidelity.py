"""torch-fidelity's own arithmetic, for the features of the standard Inception: the numbers that papers print are made by it."""

import torch
from torch import Tensor


def inception_score(logits: Tensor, splits: int, seed: int) -> tuple[float, float]:
    """Mean and deviation over shuffled splits."""
    from torch_fidelity.metric_isc import KEY_METRIC_ISC_MEAN, KEY_METRIC_ISC_STD, isc_features_to_metric

    found = isc_features_to_metric(logits.cpu(), splits, shuffle=True, rng_seed=seed)
    return found[KEY_METRIC_ISC_MEAN], found[KEY_METRIC_ISC_STD]


def frechet_distance(real: Tensor, fake: Tensor) -> float:
    from torch_fidelity.metric_fid import KEY_METRIC_FID, fid_features_to_statistics, fid_statistics_to_metric

    statistics = [fid_features_to_statistics(features.cpu().to(torch.float64)) for features in (real, fake)]
    return fid_statistics_to_metric(*statistics, verbose=False)[KEY_METRIC_FID]
