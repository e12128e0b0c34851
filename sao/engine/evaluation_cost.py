"""What an evaluation will take on this machine: counted operations, at the speed of a few that are timed, and counted bytes.

The counts are of usual data. What the SVM needs depends on the C that suits the data: it may take a third of this, or twice.
"""

import math
import time
from collections.abc import Callable

import torch

from sao.data.dataset import Images, Samples
from sao.engine.evaluate import SUMMARISED, Plan, raw_columns
from sao.engine.features import extract, raw_size
from sao.evaluation.inputs import LARGEST
from sao.evaluation.manifold import NEIGHBOURS
from sao.evaluation.suite import CLUSTERS_WITHOUT_LABELS, DEFAULT, MANIFOLD, UNLABELLED
from sao.methods import Method

SVM_PASSES, PROBE_PASSES, KMEANS_PASSES = 600, 150, 30  # over all rows, forth and back
MANIFOLD_PASSES = 3000  # over all neighbours: their weights, and the iteration that finds eigenvectors
KMEANS_SECONDS = 0.15  # for the least clustering: hundreds of small operations
TIMED_SAMPLES = 32
NUMBER = 4  # bytes


def predicted_seconds(
    method: Method,
    samples: Samples,
    train: int,
    test: int,
    classes: int | None,
    plan: Plan = SUMMARISED,
    references: bool = True,
) -> float:
    """Seconds to evaluate a method on parts of so many samples; with references for what follows the last step.

    A few of `samples` are passed through the network to time it: they must be of the right shape, and need not be all.
    """
    n, m = (count if plan.rows is None else min(count, plan.rows) for count in (train, test))
    device = next(method.parameters()).device
    few = slice(0, TIMED_SAMPLES)
    shown = min(TIMED_SAMPLES, len(samples))
    forward = _seconds(lambda: extract(method.features, samples, device, rows=few)) / shown
    names = (plan.metrics or DEFAULT) if classes else (plan.unlabelled or UNLABELLED)
    learnt, *others = _columns(method, samples, max(n, m), classes)
    total = (2 if references else 1) * forward * (n + m)
    for columns in (learnt, *others) if references else (learnt,):
        total += sum(_metric_seconds(name, n, m, columns, classes, plan) for name in _computed(names))
    return total + (_decomposition(n, others[0]) if references else 0.0)


def predicted_memory(
    method: Method, samples: Samples, train: int, test: int, classes: int | None, plan: Plan = SUMMARISED
) -> int:
    """Bytes that the evaluation after the last step holds at most: all representations, and the work on the widest."""
    n, m = (count if plan.rows is None else min(count, plan.rows) for count in (train, test))
    columns = _columns(method, samples, max(n, m), classes)
    return NUMBER * (n + m) * sum(columns) + max(_working_bytes(n, m, one, classes is not None) for one in columns)


def _columns(method: Method, samples: Samples, rows: int, classes: int | None) -> tuple[int, int, int, int]:
    """Of the learnt features, raw inputs, their PCA and the features of the untrained network."""
    width = extract(method.features, samples, next(method.parameters()).device, rows=slice(0, 1)).shape[1]
    raw = math.prod(samples.shape)
    if isinstance(samples, Images):
        raw = samples.shape[0] * math.prod(raw_size(samples.shape, raw_columns(rows, classes)))
    return width, raw, min(width, raw), width


def _working_bytes(n: int, m: int, columns: int, labelled: bool) -> int:
    """Principal directions (a matrix, its eigenvectors and what finding them needs), of copies of the rows; then their
    coordinates, and with labels those of the part that the SVM is fitted to."""
    rank = min(n, columns, LARGEST)
    directions = 36 * rank**2 + NUMBER * n * rank
    fitted = NUMBER * (m * columns + 2 * n * rank) if labelled else 0
    return max(NUMBER * n * columns + directions + fitted, 2 * NUMBER * m * columns)


def _computed(names: tuple[str, ...]) -> set[str]:
    """What is computed for these metrics: several come of one clustering, two of one search for neighbours."""
    shared: dict[str, str] = {"knn5": "knn1", **dict.fromkeys(MANIFOLD, "manifold")}
    shared |= dict.fromkeys(("kmeans_best", "nmi", "purity", "ari"), "kmeans")
    return {shared.get(name, name) for name in names}


def _metric_seconds(name: str, n: int, m: int, columns: int, classes: int | None, plan: Plan) -> float:
    k, restarts = classes or CLUSTERS_WITHOUT_LABELS, plan.restarts_for(classes)
    rank = min(n, columns, LARGEST)
    fitting = 2 * n * rank * k * _product_seconds(k)  # one pass of a linear classifier over the training rows, forth and back
    trials = 2 * (2 + int(math.log(k)))
    match name:
        case "svm":
            return SVM_PASSES * fitting + _decomposition(n, columns)
        case "probe":
            return PROBE_PASSES * fitting + _decomposition(n, columns)
        case "probe_1pct" | "probe_10pct":
            share = 0.01 if name == "probe_1pct" else 0.1
            return 5 * (PROBE_PASSES * share * fitting + _decomposition(int(share * n) + 1, columns))
        case "knn1" | "uniformity":
            return 2 * n * m * columns * _product_seconds(512)
        case "manifold":
            products = 2 * m * m * columns * _product_seconds(512) + MANIFOLD_PASSES * m * NEIGHBOURS * _number_seconds()
            return products + _metric_seconds("kmeans", n, m, k, classes, plan)
        case "effective_rank":
            return _decomposition(m, columns)
        case _:  # k-means of one kind or another
            rows = n if name == "kmeans_strict" else m
            runs = 10 if name == "cluster_agreement" else restarts
            products = (trials + 2 * KMEANS_PASSES) * columns * _product_seconds(runs * k)
            return KMEANS_SECONDS + runs * k * rows * (products + KMEANS_PASSES * 4 * _number_seconds())


def _decomposition(n: int, columns: int) -> float:
    """Seconds of the products and the eigenvectors that principal directions need."""
    rank = min(n, columns, LARGEST)
    return 2 * n * columns * rank * _product_seconds(512) + rank**3 * _eigenvector_seconds()


_TIMED: dict[tuple[str, int, int], float] = {}


def _product_seconds(columns: int) -> float:
    """Of one multiplication and addition in the product of a large matrix with so many columns."""

    def measured() -> float:
        large, narrow = torch.ones(2048, 512), torch.ones(512, min(columns, 512))
        return _seconds(lambda: large @ narrow) / (large.numel() * narrow.shape[1])

    return _timed("product", min(columns, 512), measured)


def _number_seconds() -> float:
    """Of one operation on each number of a large matrix."""

    def measured() -> float:
        large = torch.ones(2**20)
        return _seconds(lambda: large + 1) / large.numel()

    return _timed("number", 0, measured)


def _eigenvector_seconds() -> float:
    """Of the eigenvectors of a matrix, divided by the cube of its size."""

    def measured() -> float:
        square = torch.randn(384, 384, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        square = square @ square.mT
        return _seconds(lambda: torch.linalg.eigh(square)) / len(square) ** 3

    return _timed("eigenvectors", 0, measured)


def _timed(what: str, size: int, measured: Callable[[], float]) -> float:
    key = what, size, torch.get_num_threads()
    if key not in _TIMED:
        _TIMED[key] = measured()
    return _TIMED[key]


def _seconds(work: Callable[[], object]) -> float:
    """The median of three, after one to warm up."""
    found = []
    for _ in range(4):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return sorted(found[1:])[1]
