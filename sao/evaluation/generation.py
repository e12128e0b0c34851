"""Generation metrics as pure functions of features: inception score, Fréchet and kernel distance, precision and recall."""

import os
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sao.errors import InputError
from sao.evaluation import fidelity
from sao.evaluation.extractors import extractor
from sao.evaluation.inputs import feature_matrix, same_width
from sao.evaluation.result import Metric

ENOUGH = 10_000  # below this Fréchet distance is biased upwards by the sample count itself


def evaluate_generation(
    real_images: np.ndarray,
    fake_images: np.ndarray,
    weights: str | os.PathLike | None = None,
    size: int = 128,
    download: bool = False,
    seed: int = 0,
    batch: int = 64,
    device: torch.device | str = "cpu",
) -> list[Metric]:
    """IS, FID, KID, precision and recall of uint8 images (n, h, w, c), computed on a device.

    Names end in the extractor unless it is standard. An extractor without logits gives no Inception Score.
    """
    for name, images in (("real_images", real_images), ("fake_images", fake_images)):
        _check_images(name, images)
    network = extractor(weights, size, download, device)
    real, _ = network(real_images, batch)
    fake, fake_logits = network(fake_images, batch)
    score = [] if fake_logits is None else [inception_score(fake_logits, seed=seed, by_fidelity=network.fidelity)]
    metrics = [
        *score,
        frechet_in_features("features", real, fake, by_fidelity=network.fidelity).renamed("fid"),
        kernel_distance(real, fake, seed=seed),
        *precision_recall(real, fake),
    ]
    facts = {**network.protocol, "images": f"{fake_images.shape[1]}x{fake_images.shape[2]}x{fake_images.shape[3]}"}
    return [metric.with_protocol(facts).renamed(metric.name + network.suffix) for metric in metrics]


def inception_score(logits: Any, splits: int = 10, seed: int = 0, by_fidelity: bool = False) -> Metric:
    """exp of the mean KL divergence of p(y|x) from p(y), over shuffled splits; ours is finite whatever the logits."""
    logits = feature_matrix("logits", logits)
    splits = min(splits, len(logits))
    protocol = {"splits": splits, "seed": seed, "n_fake": len(logits), **_arithmetic(by_fidelity)}
    if by_fidelity:
        return Metric("is", *fidelity.inception_score(logits, splits, seed), protocol)
    order = torch.randperm(len(logits), generator=torch.Generator().manual_seed(seed))
    log_p = logits.double()[order].log_softmax(dim=1)
    scores = []
    for part in log_p.tensor_split(splits):
        marginal = part.logsumexp(dim=0) - np.log(len(part))
        # Both logarithms stay finite as log-sums, so a probability of exactly 0 contributes 0 and never 0 · ∞.
        scores.append((part.exp() * (part - marginal)).sum(dim=1).mean().exp().item())
    return Metric("is", float(np.mean(scores)), float(np.std(scores)), protocol)


def frechet_distance(mean: Tensor, covariance: Tensor, other_mean: Tensor, other_covariance: Tensor) -> float:
    """|m − m'|² + tr S + tr S' − 2 tr (S S')^½, the last from eigenvalues of S^½ S' S^½, which is symmetric."""
    values, vectors = torch.linalg.eigh(covariance.double())
    root = vectors * values.clamp_min(0).sqrt() @ vectors.mT
    product = root @ other_covariance.double() @ root
    cross = torch.linalg.eigvalsh((product + product.mT) / 2).clamp_min(0).sqrt().sum()
    shift = (mean.double() - other_mean.double()).square().sum()
    distance = shift + covariance.double().trace() + other_covariance.double().trace() - 2 * cross
    return max(distance.item(), 0.0)


def frechet_in_features(name: str, real_features: Any, fake_features: Any, by_fidelity: bool = False) -> Metric:
    """Fréchet distance in the features of any network; `name` says which and becomes part of the metric's name."""
    if not name:
        raise InputError("name is empty: name the feature extractor, so that nobody takes the result for the standard FID")
    real, fake = _real_and_fake(real_features, fake_features)
    protocol: dict[str, Any] = {"n_real": len(real), "n_fake": len(fake), "dimensions": real.shape[1]}
    fewest = min(len(real), len(fake))
    if fewest < ENOUGH:
        advice = f"{fewest} samples: Fréchet distances below {ENOUGH} are biased upwards; compare equal counts only"
        warnings.warn(advice, UserWarning, stacklevel=2)
        protocol["warning"] = advice
    protocol |= _arithmetic(by_fidelity)
    value = fidelity.frechet_distance(real, fake) if by_fidelity else frechet_distance(*_moments(real), *_moments(fake))
    return Metric(f"fid_{name}", value, None, protocol)


def kernel_distance(
    real_features: Any, fake_features: Any, subsets: int = 100, subset_size: int = 1000, seed: int = 0
) -> Metric:
    """KID: unbiased squared MMD with the kernel (x·y/d + 1)³, mean ± std over random subsets of equal size."""
    real, fake = _real_and_fake(real_features, fake_features)
    subset_size = min(subset_size, len(real), len(fake))
    generator = torch.Generator().manual_seed(seed)
    scores = []
    for _ in range(subsets):
        x = real[torch.randperm(len(real), generator=generator)[:subset_size]].double()
        y = fake[torch.randperm(len(fake), generator=generator)[:subset_size]].double()
        within = sum(kernel.sum() - kernel.trace() for kernel in (_cubic(x, x), _cubic(y, y)))
        across = _cubic(x, y).mean()
        scores.append((within / (subset_size * (subset_size - 1)) - 2 * across).item())
    protocol = {
        "kernel": "(x·y/d + 1)^3",
        "subsets": subsets,
        "subset_size": subset_size,
        "seed": seed,
        "n_real": len(real),
        "n_fake": len(fake),
    }
    return Metric("kid", float(np.mean(scores)), float(np.std(scores)), protocol)


def precision_recall(real_features: Any, fake_features: Any, k: int = 3, chunk: int = 2048) -> list[Metric]:
    """Share of fakes inside the real manifold and of reals inside the fake one; a manifold is balls to the k-th neighbour."""
    real, fake = _real_and_fake(real_features, fake_features)
    if min(len(real), len(fake)) <= k:
        raise InputError(f"k is {k} but there are only {min(len(real), len(fake))} samples: give more samples or a smaller k")
    centre = real.mean(dim=0)  # distances do not change, their rounding shrinks
    real, fake = real - centre, fake - centre
    protocol = {"k": k, "distance": "Euclidean", "n_real": len(real), "n_fake": len(fake)}
    return [
        Metric("precision", _covered(fake, real, k, chunk), None, protocol),
        Metric("recall", _covered(real, fake, k, chunk), None, protocol),
    ]


def _arithmetic(by_fidelity: bool) -> dict[str, str]:
    return {"arithmetic": "torch-fidelity"} if by_fidelity else {}


def _covered(queries: Tensor, manifold: Tensor, k: int, chunk: int) -> float:
    # k + 1: the nearest of a manifold's own points is the point itself.
    radii = [torch.cdist(part, manifold).kthvalue(k + 1, dim=1).values for part in manifold.split(chunk)]
    radius = torch.cat(radii)
    inside = [(torch.cdist(part, manifold) <= radius).any(dim=1) for part in queries.split(chunk)]
    return torch.cat(inside).double().mean().item()


def _cubic(x: Tensor, y: Tensor) -> Tensor:
    return (x @ y.mT / x.shape[1] + 1) ** 3


def _moments(features: Tensor) -> tuple[Tensor, Tensor]:
    features = features.double()
    mean = features.mean(dim=0)
    centred = features - mean
    return mean, centred.mT @ centred / (len(features) - 1)


def _real_and_fake(real: Any, fake: Any) -> tuple[Tensor, Tensor]:
    real, fake = feature_matrix("real_features", real), feature_matrix("fake_features", fake)
    same_width("real_features", real, "fake_features", fake)
    for name, features in (("real_features", real), ("fake_features", fake)):
        if len(features) < 2:
            raise InputError(f"{name} has one sample: give at least two")
    return real, fake


def _check_images(name: str, images: np.ndarray) -> None:
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] not in (1, 3):
        got = f"{images.dtype} {images.shape}" if isinstance(images, np.ndarray) else type(images).__name__
        raise InputError(f"{name} must be a uint8 array of shape (n, h, w, 1 or 3), got {got}: convert it first")
    if len(images) < 2:
        raise InputError(f"{name} has {len(images)} images: give at least two")
