"""k nearest neighbours by cosine: the one metric with nothing to fit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sao.errors import InputError
from sao.evaluation.budget import check_time
from sao.evaluation.inputs import Task, check_splits, unit_rows
from sao.evaluation.result import Metric, accuracy


def knn_accuracy(
    train_x: Any, train_y: Any, test_x: Any, test_y: Any, ks: Sequence[int] = (1, 5), chunk: int = 4096
) -> list[Metric]:
    """Test accuracy of the majority vote of the k most similar training samples, one metric for each k."""
    check_splits(train_x, train_y, test_x, test_y)
    return fit_neighbours(train_x, train_y, ks, chunk).score(test_x, test_y)


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The bank: unit training rows and the codes of their classes."""

    task: Task
    bank: Tensor
    labels: Tensor
    ks: Sequence[int]
    chunk: int

    def score(self, test_x: Any, test_y: Any) -> list[Metric]:
        x, y = self.task.scored(test_x, test_y)
        neighbours = self.labels[nearest(unit_rows(x), self.bank, max(self.ks), self.chunk)]
        metrics = []
        for k in self.ks:
            protocol = {
                "k": k,
                "similarity": "cosine",
                "vote": "majority, ties to the lowest class",
                "normalisation": "unit length",
                "classes": len(self.task.classes),
                "n_train": len(self.bank),
                "n_test": len(x),
            }
            right = majority(neighbours[:, :k], len(self.task.classes)) == y
            metrics.append(accuracy(f"knn{k}", right, protocol))
        return metrics


def fit_neighbours(train_x: Any, train_y: Any, ks: Sequence[int] = (1, 5), chunk: int = 4096) -> Neighbours:
    x, y, task = Task.of(train_x, train_y)
    if not ks or not 1 <= min(ks) <= max(ks) <= len(x):
        raise InputError(f"ks is {list(ks)} but train_x has {len(x)} samples: each k must lie between 1 and that")
    return Neighbours(task, unit_rows(x), y, ks, chunk)


def majority(neighbours: Tensor, classes: int) -> Tensor:
    """The commonest class (n,) of each row of `neighbours` (n, k); ties go to the lowest."""
    votes = torch.zeros(len(neighbours), classes, device=neighbours.device)
    return votes.scatter_add_(1, neighbours, torch.ones_like(neighbours, dtype=votes.dtype)).argmax(dim=1)


def nearest(queries: Tensor, keys: Tensor, k: int, chunk: int = 4096) -> Tensor:
    """Indices (queries, k) of the keys with the greatest dot product, best first; memory is bounded by chunk²."""
    return nearest_with_products(queries, keys, k, chunk)[0]


def nearest_with_products(queries: Tensor, keys: Tensor, k: int, chunk: int = 4096, own: bool = False) -> tuple[Tensor, Tensor]:
    """The same, and these products. With `own` the queries are the keys, and none of them finds itself."""
    found = []
    for first in range(0, len(queries), chunk):
        check_time()
        part = queries[first : first + chunk]
        scores = part.new_empty(len(part), 0)
        indices = torch.empty(len(part), 0, dtype=torch.long, device=part.device)
        for start in range(0, len(keys), chunk):
            block = part @ keys[start : start + chunk].mT
            if own and start == first:
                block.fill_diagonal_(-torch.inf)
            best = block.topk(min(k, block.shape[1]), dim=1)
            scores, indices = torch.cat([scores, best.values], 1), torch.cat([indices, best.indices + start], 1)
            kept = scores.topk(min(k, scores.shape[1]), dim=1)
            scores, indices = kept.values, indices.gather(1, kept.indices)
        if bool(scores.isnan().any()):  # torch takes it for the greatest
            raise InputError("queries or keys hold NaN, which is nearest to nothing: look for a diverged network")
        found.append((indices, scores))
    return torch.cat([indices for indices, _ in found]), torch.cat([scores for _, scores in found])
