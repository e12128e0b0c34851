"""k-means in Euclidean distance that can go on from an earlier clustering, and keeps the names of its clusters.

Every result is a function of its arguments, to the bit: a run that was stopped clusters as the whole run did. Axes: n samples,
d dimensions, k clusters.
"""

import math

import numpy as np
import torch
from torch import Tensor

from sao.core.agreement import best
from sao.evaluation.partitions import best_matching

ITERATIONS = 300


def cluster_anew(features: Tensor, k: int, restarts: int, generator: torch.Generator) -> Tensor:
    """Clusters (n,) of the best of some runs from k-means++ starts: that with the smallest squared distances."""
    runs: list[tuple[float, Tensor]] = []
    for _ in range(restarts):
        labels = settled(features, nearest(features, _plus_plus(features, k, generator))[0], k)
        runs.append((float(nearest(features, means_of(features, labels, k))[1].double().sum()), labels))
    return runs[best({run: -squares for run, (squares, _) in enumerate(runs)})][1]


def cluster_again(features: Tensor, labels: Tensor, k: int) -> Tensor:
    """Clusters (n,) that begin at the means of the old ones in new features, each named like the old one it has most of."""
    return renamed(settled(features, labels, k), labels, k)


def settled(features: Tensor, labels: Tensor, k: int) -> Tensor:
    """Lloyd's iteration, until no sample changes its cluster."""
    for _ in range(ITERATIONS):
        moved = nearest(features, means_of(features, labels, k))[0]
        if torch.equal(moved, labels):
            break
        labels = moved
    return labels


def means_of(features: Tensor, labels: Tensor, k: int) -> Tensor:
    """(k, d); a starved cluster begins again at one of the samples that are farthest from the mean of their own."""
    members = torch.nn.functional.one_hot(labels, k).T.to(features.dtype)
    counts = members.sum(1)
    means = members @ features / counts.clamp_min(1)[:, None]
    starved = (counts == 0).nonzero().flatten()
    if len(starved) > 0:
        distances = (features - means[labels]).square().sum(1)
        means[starved] = features[distances.topk(len(starved)).indices]
    return means


def nearest(features: Tensor, means: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest mean (n,) of each sample, and its squared distance (n,)."""
    centre = means.mean(0)  # distances from products lose digits where everything is far from the origin
    features, means = features - centre, means - centre
    distances, labels = (means.square().sum(1) - 2 * features @ means.T).min(1)
    return labels, (distances + features.square().sum(1)).clamp_min(0)


def renamed(labels: Tensor, old: Tensor, k: int) -> Tensor:
    """The same clusters with the names of the old ones, one to one, so that most samples keep theirs."""
    shared = np.zeros((k, k), dtype=np.int64)  # by number: a starved cluster has a row and a column too
    np.add.at(shared, (labels.cpu().numpy(), old.cpu().numpy()), 1)
    return torch.as_tensor(best_matching(shared), device=labels.device)[labels]


def _plus_plus(features: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """Greedy k-means++: each new centre is the best of several that are drawn in proportion to the squared distance."""
    trials = 2 + int(math.log(k))
    centred = features - features.mean(0)
    squares = centred.square().sum(1)

    def distances(rows: Tensor) -> Tensor:
        return (squares[rows, None] + squares - 2 * centred[rows] @ centred.T).clamp_min(0)

    chosen = [torch.randint(len(features), (1,), generator=generator).to(features.device)]
    least = distances(chosen[0])[0]
    for _ in range(1, k):
        cumulative = least.double().cumsum(0)
        drawn = torch.rand(trials, generator=generator, dtype=torch.float64).to(features.device) * cumulative[-1]
        candidates = torch.searchsorted(cumulative, drawn).clamp_max(len(features) - 1)
        reduced = torch.minimum(distances(candidates), least)
        best = reduced.sum(1).argmin()
        chosen.append(candidates[best][None])
        least = reduced[best]
    return features[torch.cat(chosen)]
