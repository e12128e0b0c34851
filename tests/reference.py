"""Slow, literal versions of the definitions, written as they are read: loops, explicit matrices, no shared code with sao."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor


def covariance(rows: Tensor, kind: str, centre: str, epsilon: float) -> Tensor:
    """S + (ε/p) I, always as a (p, p) matrix."""
    n, p = rows.shape
    middle = torch.stack(list(rows)).sum(0) / n
    if centre == "sphere":
        middle = middle / torch.sqrt((middle * middle).sum())
    total = torch.zeros(p, p, dtype=rows.dtype)
    for row in rows:
        total = total + torch.outer(row - middle, row - middle)
    result = total / n
    if kind == "diagonal":
        result = torch.diag(torch.diag(result))
    return result + epsilon / p * torch.eye(p, dtype=rows.dtype)


def jensen_shannon(real: Tensor, fake: Tensor, kind: str, centre: str, epsilon: float) -> Tensor:
    joint = torch.logdet(covariance(torch.cat([real, fake]), kind, centre, epsilon))
    first = torch.logdet(covariance(real, kind, centre, epsilon))
    second = torch.logdet(covariance(fake, kind, centre, epsilon))
    return 0.5 * (joint - 0.5 * (first + second))


def authors_jensen_shannon(real: Tensor, fake: Tensor) -> Tensor:
    """The released form: logdet(I + p/0.5 Σ) of covariances around normalised means."""

    def rate(rows: Tensor) -> Tensor:
        n, p = rows.shape
        middle = torch.nn.functional.normalize(rows.mean(0), dim=0)
        sigma = (rows - middle).T @ (rows - middle) / n
        return torch.logdet(torch.eye(p, dtype=rows.dtype) + p / 0.5 * sigma)

    return 0.5 * (rate(torch.cat([real, fake])) - 0.5 * (rate(real) + rate(fake)))


def bhattacharyya(real: Tensor, fake: Tensor, kind: str, centre: str, epsilon: float) -> Tensor:
    first, second = covariance(real, kind, centre, epsilon), covariance(fake, kind, centre, epsilon)
    middle = (first + second) / 2
    shift = real.sum(0) / len(real) - fake.sum(0) / len(fake)
    distance = shift @ torch.linalg.inv(middle) @ shift / 8
    return distance + 0.5 * (torch.logdet(middle) - 0.5 * (torch.logdet(first) + torch.logdet(second)))


def neighbour_similarity(queries: Tensor, query_keys: Tensor, values: Tensor, keys: Tensor, k: int, skip_first: bool) -> Tensor:
    products = []
    for query, query_key in zip(queries, query_keys, strict=True):
        similarities = [float(query_key @ key) for key in keys]
        order = sorted(range(len(keys)), key=lambda row: -similarities[row])
        for row in order[1 : k + 1] if skip_first else order[:k]:
            products.append(query @ values[row])
    return torch.stack(products).mean()


def jacobians(function: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
    """The full Jacobian (outputs, inputs) of each sample, alone in its batch, differentiable in the parameters."""
    matrices = []
    for sample in x:
        one = sample[None].clone().requires_grad_()
        rows = [torch.autograd.grad(y, one, create_graph=True)[0].reshape(-1) for y in function(one).reshape(-1)]
        matrices.append(torch.stack(rows))
    return matrices


def algorithm_1(matrices: Iterable[Tensor], starts: Tensor, steps: int) -> Tensor:
    """The paper's Algorithm 1 on explicit Jacobians: sg(u) J sg(v), one number for each sample."""
    estimates = []
    for matrix, start in zip(matrices, starts, strict=True):
        u, v = start.reshape(-1), torch.empty(0)
        for _ in range(steps):
            v = u @ matrix / torch.linalg.vector_norm(u @ matrix)
            u = matrix @ v / torch.linalg.vector_norm(matrix @ v)
        estimates.append(u.detach() @ matrix @ v.detach())
    return torch.stack(estimates)


class ListBank:
    """A memory bank as a plain list: append, and keep the last `capacity` rows."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.rows: list[tuple[tuple[float, ...], tuple[float, ...]]] = []

    def push(self, embeddings: Tensor, keys: Tensor) -> None:
        for embedding, key in zip(embeddings.tolist(), keys.tolist(), strict=True):
            self.rows.append((tuple(embedding), tuple(key)))
        self.rows = self.rows[-self.capacity :]
