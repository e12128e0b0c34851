"""Speed of the evaluator beside scikit-learn, both in one run: only the ratios mean anything.

Ratios are given of elapsed and of processor time. On a busy machine set OMP_NUM_THREADS=1 and read the processor time:
elapsed time then measures the neighbours, and threads that wait for each other burn processor time as well.

    python benchmarks/evaluation.py [--data cifar10.npz] [--samples 50000] [--json out.json]

With --data (an .npz of x_train, y_train, x_test, y_test images) the features are real: 128 random patches of the images
as filters, rectified and pooled to 2x2, which makes 512. Without it they are a noisy mixture of Gaussians.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from sao.evaluation import LinearSVM, linear_svm, spherical_kmeans
from sao.evaluation.inputs import standardiser, unit_rows

Splits = tuple[torch.Tensor, np.ndarray, torch.Tensor, np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help=".npz of images; synthetic features without it")
    parser.add_argument("--samples", type=int, default=50_000, help="training samples for the SVM")
    parser.add_argument("--cost", type=float, default=1e-3, help="C of the single fits that are compared")
    parser.add_argument("--hundred", action="store_true", help="also time 100 classes (ours alone)")
    parser.add_argument("--json", help="write the figures to this file")
    options = parser.parse_args()
    train_x, train_y, test_x, test_y = patch_features(options.data) if options.data else mixture(10)
    train_x, train_y = train_x[: options.samples], train_y[: options.samples]
    figures: dict[str, Any] = {"features": "random patches of real images" if options.data else "Gaussian mixture"}
    figures["kmeans"] = compare_kmeans(test_x[:10_000])
    figures["svm"] = compare_svm((train_x, train_y, test_x, test_y), options.cost)
    if options.hundred:
        metric, spent = timed(lambda: linear_svm(*mixture(100)))
        figures["svm_100_classes"] = {"ours": vars(spent), "accuracy": metric.value, "C": metric.protocol["C"]}
        print(f"100 classes, whole protocol: {spent}, accuracy {metric.value:.4f}", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=2)


def compare_svm(splits: Splits, cost: float) -> dict[str, Any]:
    """One fit at the same C by both, then our whole protocol (every C, choice, refit) against that single fit of theirs."""
    whole, whole_spent = timed(lambda: linear_svm(*splits))
    train_x, train_y, test_x, test_y = splits
    mean, scale = standardiser(train_x)
    train_x, test_x = (train_x - mean) / scale, (test_x - mean) / scale
    ours, our_time = timed(lambda: LinearSVM.fit(train_x, torch.from_numpy(train_y), int(train_y.max()) + 1, cost))
    accuracy = ours.accuracy(test_x, torch.from_numpy(test_y))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs, their_time = timed(lambda: LinearSVC(C=cost).fit(train_x.numpy(), train_y))
    reference = theirs.score(test_x.numpy(), test_y)
    print(f"svm {tuple(train_x.shape)}, C = {cost:g}: ours {our_time}, LinearSVC {their_time}", flush=True)
    print(f"  {their_time.over(our_time)}; accuracy {accuracy:.4f} against {reference:.4f}", flush=True)
    print(f"  whole protocol ({len(whole.protocol['C_held_out_accuracy'])} costs and the refit): {whole_spent}", flush=True)
    return {
        "ours": vars(our_time),
        "linear_svc": vars(their_time),
        "accuracy": accuracy,
        "linear_svc_accuracy": reference,
        "whole_protocol": vars(whole_spent),
        "whole_protocol_accuracy": whole.value,
    }


def compare_kmeans(features: torch.Tensor, k: int = 10, repeats: int = 20) -> dict[str, Any]:
    """Twenty runs by both on the same unit vectors; the sum of cosines of each, averaged and at best."""
    features = unit_rows(features)
    array = features.numpy()
    runs, our_time = timed(lambda: spherical_kmeans(features, k, repeats))
    one: Any = 1  # scikit-learn's annotation allows only the word "auto"
    fits, their_time = timed(lambda: [KMeans(k, n_init=one, random_state=i).fit(array) for i in range(repeats)])
    centres = [unit_rows(torch.from_numpy(fit.cluster_centers_)) for fit in fits]
    theirs = np.array([(features @ c.mT).amax(dim=1).double().sum().item() for c in centres])
    ours = np.array([run.cosine_sum for run in runs])
    print(f"k-means {array.shape}, k = {k}, {repeats} runs: ours {our_time}, KMeans {their_time}", flush=True)
    print(
        f"  {their_time.over(our_time)}; sum of cosines mean {100 * (ours.mean() / theirs.mean() - 1):+.3f} %, "
        f"best {100 * (ours.max() / theirs.max() - 1):+.3f} %",
        flush=True,
    )
    return {
        "ours": vars(our_time),
        "sklearn": vars(their_time),
        "mean_cosine_sum_ratio": ours.mean() / theirs.mean(),
        "best_cosine_sum_ratio": ours.max() / theirs.max(),
        "ours_iterations": float(np.mean([run.iterations for run in runs])),
        "sklearn_iterations": float(np.mean([fit.n_iter_ for fit in fits])),
    }


@dataclass(frozen=True)
class Spent:
    """Seconds elapsed, and seconds of processor over all threads."""

    elapsed: float
    processor: float

    def __str__(self) -> str:
        return f"{self.elapsed:.1f} s ({self.processor:.1f} s of processor)"

    def over(self, other: "Spent") -> str:
        faster = self.elapsed / other.elapsed, self.processor / other.processor
        return f"{faster[0]:.1f} times faster ({faster[1]:.1f} in processor time)"


def timed(work: Callable[[], Any]) -> tuple[Any, Spent]:
    start, processor = time.perf_counter(), time.process_time()
    result = work()
    return result, Spent(time.perf_counter() - start, time.process_time() - processor)


def mixture(classes: int, n: int = 60_000, d: int = 512) -> Splits:
    """Overlapping Gaussian classes with a decaying spectrum, as learnt features have; the last sixth is the test split."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, n)
    spread = np.arange(1, d + 1) ** -0.5
    x = (rng.normal(size=(classes, d))[labels] * 0.1 + rng.normal(size=(n, d))) * spread
    features, cut = torch.from_numpy(x.astype(np.float32)), n * 5 // 6
    return features[:cut], labels[:cut], features[cut:], labels[cut:]


def patch_features(path: str, filters: int = 128, patch: int = 6) -> Splits:
    with np.load(path) as file:
        x_train, y_train, x_test, y_test = (file[key] for key in ("x_train", "y_train", "x_test", "y_test"))
    rng = np.random.default_rng(0)
    tops, lefts = rng.integers(0, x_train.shape[1] - patch, filters), rng.integers(0, x_train.shape[2] - patch, filters)
    chosen = zip(rng.integers(0, len(x_train), filters), tops, lefts, strict=True)
    patches = np.stack([x_train[i, top : top + patch, left : left + patch] for i, top, left in chosen])
    weights = torch.from_numpy(patches).permute(0, 3, 1, 2).float()
    weights = weights - weights.mean(dim=(1, 2, 3), keepdim=True)
    weights = weights / weights.flatten(1).norm(dim=1).clamp_min(1).view(-1, 1, 1, 1)

    def features(images: np.ndarray) -> torch.Tensor:
        parts = []
        for start in range(0, len(images), 500):
            inputs = torch.from_numpy(images[start : start + 500]).permute(0, 3, 1, 2).float() / 127.5 - 1
            responses = torch.nn.functional.conv2d(inputs, weights).relu_()
            parts.append(torch.nn.functional.adaptive_avg_pool2d(responses, 2).flatten(1))
        return torch.cat(parts)

    return features(x_train), y_train, features(x_test), y_test


if __name__ == "__main__":
    main()
