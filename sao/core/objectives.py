"""The adversarial objectives, as pure and differentiable functions of the embeddings and scores of a *global* batch.

Axes: n batch, m pool, p embedding, b backbone (key), k neighbours. An argument that is NaN or inf is refused; a training step
calls `function.unchecked`, which does not wait for the device to look at values.
"""

import math
from typing import Literal, TypedDict, Unpack

import torch
from torch import Tensor
from torch.nn import functional as F

from sao.core.finite import refuse_nonfinite
from sao.core.precision import full_precision

Covariance = Literal["full", "diagonal"]
Centre = Literal["sphere", "mean"]
Side = Literal["floor", "ceiling"]

EPSILON = 0.5  # total variance added to a covariance, spread evenly over its p directions


class Gaussian(TypedDict, total=False):
    """How a Gaussian is fitted: the options of `gaussian_covariance`."""

    covariance: Covariance
    centre: Centre
    epsilon: float


@refuse_nonfinite
def jensen_shannon(real: Tensor, fake: Tensor, **options: Unpack[Gaussian]) -> Tensor:
    """Jensen–Shannon divergence (Eq. JSD) of Gaussians fitted to unit embeddings (n, p); a third fits both together."""
    _check_pair(real, fake)
    joint = gaussian_logdet.unchecked(torch.cat([real, fake]), **options)
    parts = gaussian_logdet.unchecked(real, **options) + gaussian_logdet.unchecked(fake, **options)
    return 0.5 * (joint - 0.5 * parts)


@refuse_nonfinite
def bhattacharyya(real: Tensor, fake: Tensor, **options: Unpack[Gaussian]) -> Tensor:
    """Bhattacharyya distance of two Gaussians fitted to normalised embeddings (n, p); the paper's Eq. DB."""
    _check_pair(real, fake)
    real_covariance = gaussian_covariance.unchecked(real, **options)
    fake_covariance = gaussian_covariance.unchecked(fake, **options)
    mean_covariance = 0.5 * (real_covariance + fake_covariance)
    shift = _at_least_float32(real).mean(0) - _at_least_float32(fake).mean(0)
    if mean_covariance.ndim == 1:  # of diagonals
        whitened = shift / mean_covariance
    else:
        whitened = torch.cholesky_solve(shift[:, None], _factor(mean_covariance))[:, 0]
    spread = _logdet(mean_covariance) - 0.5 * (_logdet(real_covariance) + _logdet(fake_covariance))
    return (shift * whitened).sum() / 8 + 0.5 * spread


@refuse_nonfinite
def gaussian_covariance(
    embeddings: Tensor, *, covariance: Covariance = "full", centre: Centre = "sphere", epsilon: float = EPSILON
) -> Tensor:
    """Regularised covariance (p, p) of a batch, or its diagonal (p,), around the mean, of unit length or as it is."""
    if centre not in ("sphere", "mean"):
        raise ValueError(f'centre must be "sphere" or "mean", got {centre!r}')
    if covariance not in ("full", "diagonal"):
        raise ValueError(f'covariance must be "full" or "diagonal", got {covariance!r}')
    if not 0 < epsilon < math.inf:
        raise ValueError(f"epsilon must be positive and finite, got {epsilon}: it keeps the log-determinant finite")
    _check_matrix("embeddings", embeddings)
    embeddings = _at_least_float32(embeddings)
    n, p = embeddings.shape
    mean = embeddings.mean(0)
    deviations = embeddings - (F.normalize(mean, dim=0) if centre == "sphere" else mean)
    if covariance == "diagonal":
        return deviations.square().mean(0) + epsilon / p
    identity = torch.eye(p, dtype=embeddings.dtype, device=embeddings.device)
    with full_precision(embeddings.device):
        return deviations.T @ deviations / n + (epsilon / p) * identity


@refuse_nonfinite
def gaussian_logdet(embeddings: Tensor, **options: Unpack[Gaussian]) -> Tensor:
    """Log-determinant of the regularised covariance: twice the entropy of the fitted Gaussian, up to a constant."""
    return _logdet(gaussian_covariance.unchecked(embeddings, **options))


@refuse_nonfinite
def neighbour_similarity(
    queries: Tensor, query_keys: Tensor, values: Tensor, keys: Tensor, k: int = 1, skip_first: bool = False
) -> Tensor:
    """Mean over queries (n, p) and their k nearest pool entries of query · value; the paper's Eq. real_knn.

    Neighbours are found between `query_keys` (n, b) and the pool's `keys` (m, b); `values` (m, p) are their embeddings.
    `skip_first` drops the nearest entry: for real queries that stand in the pool it is the query itself.
    """
    for name, tensor in (("queries", queries), ("query_keys", query_keys), ("values", values), ("keys", keys)):
        _check_matrix(name, tensor)
    if len(queries) != len(query_keys):
        raise ValueError(f"query_keys has {len(query_keys)} rows for {len(queries)} queries")
    if len(values) != len(keys):
        raise ValueError(f"keys has {len(keys)} rows for {len(values)} values")
    if queries.shape[1] != values.shape[1]:
        raise ValueError(f"values has {values.shape[1]} columns, queries has {queries.shape[1]}")
    if query_keys.shape[1] != keys.shape[1]:
        raise ValueError(f"keys has {keys.shape[1]} columns, query_keys has {query_keys.shape[1]}")
    wanted = k + int(skip_first)
    if k < 1 or wanted > len(keys):
        raise ValueError(f"k must be between 1 and {len(keys) - int(skip_first)} for a pool of {len(keys)}, got {k}")
    with torch.no_grad():
        nearest = (query_keys @ keys.T).topk(wanted, dim=1).indices[:, int(skip_first) :]
    # index_select, because on CPUs the backward pass of values[nearest] does not give the same bits twice. On CUDA neither
    # does, unless torch is told to use deterministic algorithms.
    neighbours = values.index_select(0, nearest.flatten()).unflatten(0, nearest.shape)
    return torch.einsum("np,nkp->nk", queries, neighbours).mean()


@refuse_nonfinite
def nearest_similarity(queries: Tensor, values: Tensor, others: bool = False) -> Tensor:
    """Mean cosine of unit local embeddings (n, k, p) with the nearest value (m, k, p), with `others` of another image."""
    for name, tensor in (("queries", queries), ("values", values)):
        if tensor.ndim != 3 or tensor.numel() == 0:
            raise ValueError(f"{name} must have shape (images, positions, p), none of them 0, got {tuple(tensor.shape)}")
    if queries.shape[2] != values.shape[2] or (others and (queries.shape != values.shape or len(values) < 2)):
        raise ValueError(f"values of shape {tuple(values.shape)} do not fit queries of shape {tuple(queries.shape)}")
    rows, pool = queries.flatten(0, 1), values.flatten(0, 1)
    with torch.no_grad():
        cosines = rows @ pool.T
        if others:
            image = torch.arange(len(rows), device=rows.device) // queries.shape[1]
            cosines.masked_fill_(image[:, None] == image, -torch.inf)
        nearest = cosines.argmax(dim=1)
    return (rows * pool.index_select(0, nearest)).sum(1).mean()


@refuse_nonfinite
def adversarial_hinge(real_scores: Tensor, fake_scores: Tensor) -> Tensor:
    """The discriminator's hinge loss on scalar scores; the generator minimises `-fake_scores.mean()`."""
    for name, scores in (("real_scores", real_scores), ("fake_scores", fake_scores)):
        if scores.numel() == 0:
            raise ValueError(f"{name} is empty")
    return F.relu(1 - real_scores).mean() + F.relu(1 + fake_scores).mean()


@refuse_nonfinite
def norm_hinge(embeddings: Tensor, side: Side = "floor") -> Tensor:
    """Mean squared distance of norms to 1: of those below it ("floor", the authors' code) or above ("ceiling", the paper)."""
    _check_matrix("embeddings", embeddings)
    if side not in ("floor", "ceiling"):
        raise ValueError(f'side must be "floor" or "ceiling", got {side!r}')
    norms = torch.linalg.vector_norm(embeddings, dim=1)
    return F.relu(1 - norms if side == "floor" else norms - 1).square().mean()


def _logdet(covariance: Tensor) -> Tensor:
    if covariance.ndim == 1:
        return covariance.log().sum()
    return 2 * _factor(covariance).diagonal().log().sum()


def _factor(covariance: Tensor) -> Tensor:
    """Cholesky's, or NaN where there is none: the function that raises instead must wait for the device."""
    factor, failed = torch.linalg.cholesky_ex(covariance)
    return torch.where(failed == 0, factor, torch.nan)


def _at_least_float32(tensor: Tensor) -> Tensor:
    """Determinants of half-precision covariances are noise."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _check_pair(real: Tensor, fake: Tensor) -> None:
    for name, tensor in (("real", real), ("fake", fake)):
        _check_matrix(name, tensor)
        if len(tensor) < 2:
            raise ValueError(f"{name} has 1 row: a covariance needs at least 2")
    if real.shape[1] != fake.shape[1]:
        raise ValueError(f"fake has {fake.shape[1]} columns, real has {real.shape[1]}")


def _check_matrix(name: str, tensor: Tensor) -> None:
    if tensor.ndim != 2:
        raise ValueError(f"{name} must be a matrix with one row for each sample, got shape {tuple(tensor.shape)}")
    if tensor.numel() == 0:
        raise ValueError(f"{name} is empty: shape {tuple(tensor.shape)}")
