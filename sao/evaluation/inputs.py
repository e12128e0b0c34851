"""What the evaluator accepts: arrays or tensors, checked once at the door, with errors that name the argument."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sao.errors import InputError
from sao.evaluation.budget import check_time
from sao.evaluation.result import Metric, accuracy

LARGEST = 4096  # rows or columns, whichever are fewer, of what is decomposed: ten seconds and 400 MB
NARROWED = 2048  # columns, where both are more
BLOCK = 2048  # columns or rows at once
NEGLIGIBLE = 1e-10  # share of the largest eigenvalue


def feature_matrix(name: str, values: Any) -> Tensor:
    """Finite floating (n, d); float64 stays, everything else becomes float32."""
    tensor = torch.as_tensor(values).detach()
    if tensor.ndim != 2:
        raise InputError(
            f"{name} must have shape (samples, dimensions), got {tuple(tensor.shape)}: flatten each sample to one row"
        )
    if 0 in tensor.shape:
        raise InputError(f"{name} is empty, shape {tuple(tensor.shape)}: give at least one sample and one dimension")
    tensor = tensor if tensor.dtype == torch.float64 else tensor.to(torch.float32)
    limit = 1e15 if tensor.dtype == torch.float32 else 1e120  # sums of larger squares overflow, and infinities tie
    bad = ~(tensor.abs() <= limit).all(dim=1)
    if bad.any():
        raise InputError(
            f"{name} has NaN or infinity in {int(bad.sum())} of {len(tensor)} rows (first: row {int(bad.nonzero()[0])}): "
            f"remove those rows or look for a diverged network; numbers beyond {limit:g} count as infinite"
        )
    return tensor


def same_width(name: str, features: Tensor, other_name: str, other: Tensor) -> None:
    if features.shape[1] != other.shape[1]:
        raise InputError(
            f"{name} has {features.shape[1]} dimensions but {other_name} has {other.shape[1]}: "
            "take both from the same network and layer"
        )


def label_codes(name: str, labels: Any, n: int) -> tuple[Tensor, np.ndarray]:
    """Labels of any kind → codes 0..c-1 (n,) and the c sorted classes; at least two classes."""
    array = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.ndim != 1:
        raise InputError(f"{name} must be one label for each sample, got shape {array.shape}: flatten it to ({n},)")
    if len(array) != n:
        raise InputError(f"{name} has {len(array)} labels for {n} samples: give one label for each sample")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(f"{name} has NaN or infinity: drop the unlabelled samples first")
    classes, codes = np.unique(array, return_inverse=True)
    if len(classes) < 2:
        raise InputError(f"{name} has only one class ({classes[0]}): at least two are needed to measure anything")
    return torch.from_numpy(codes.astype(np.int64)), classes


@dataclass(frozen=True, eq=False)
class Task:
    """What a fitted model knows of the rows it may score: their columns, their number format and their classes."""

    like: Tensor  # (0, columns)
    classes: np.ndarray

    @classmethod
    def of(cls, train_x: Any, train_y: Any) -> tuple[Tensor, Tensor, "Task"]:
        """The training features, the codes of their classes, and the task."""
        x = feature_matrix("train_x", train_x)
        codes, classes = label_codes("train_y", train_y, len(x))
        return x, codes.to(x.device), cls(x[:0].clone(), classes)

    def scored(self, test_x: Any, test_y: Any) -> tuple[Tensor, Tensor]:
        """Rows to score and the codes of their classes."""
        x = feature_matrix("test_x", test_x)
        same_width("train_x", self.like, "test_x", x)
        labels = test_y.detach().cpu().numpy() if isinstance(test_y, Tensor) else np.asarray(test_y)
        if labels.shape != (len(x),):
            raise InputError(f"test_y has shape {labels.shape} for {len(x)} samples: give one label for each sample")
        unknown = np.setdiff1d(labels, self.classes)
        if len(unknown):
            raise InputError(
                f"test_y has labels that train_y lacks ({', '.join(map(str, unknown[:5]))}): use the same classes in both"
            )
        codes = torch.from_numpy(np.searchsorted(self.classes, labels).astype(np.int64))
        return x.to(self.like), codes.to(self.like.device)


def check_splits(train_x: Any, train_y: Any, test_x: Any, test_y: Any) -> None:
    """Both splits against each other, before a model is fitted for minutes that could not score the second."""
    Task.of(train_x, train_y)[2].scored(test_x, test_y)


def standardiser(train: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and scale of the training features; a constant feature is only centred, never divided by rounding noise."""
    mean = train.mean(dim=0, dtype=torch.float64)
    scale = ((train - mean.to(train)).square().mean(dim=0, dtype=torch.float64)).sqrt()
    constant = scale <= 1e-6 * mean.abs().clamp_min(1e-30)
    return mean.to(train), scale.masked_fill(constant, 1.0).to(train)


def principal(x: Tensor) -> tuple[Tensor, Tensor]:
    """Uncorrelated coordinates (n, r) of the rows, and r orthonormal directions (d, r): x = coordinates @ directions'.

    r is at most min(n, d), and so is the matrix whose eigenvectors are taken: with fewer rows than columns that of the rows.
    A linear model with a penalty on |w|² has its solution among the directions, so it may be fitted to the coordinates.
    """
    n, d = x.shape
    if d <= n:
        directions = torch.linalg.eigh((x.mT @ x).double()).eigenvectors.to(x)
        return x @ directions, directions
    gram = torch.zeros(n, n, dtype=torch.float64, device=x.device)
    for block in x.split(BLOCK, dim=1):  # in float64, but never all of x at once
        gram.addmm_(block.double(), block.double().mT)
    spectrum, vectors = torch.linalg.eigh(gram)
    # Directions are divided by their singular value: those that are rounding are left out.
    kept = spectrum > NEGLIGIBLE * spectrum[-1].clamp_min(torch.finfo(x.dtype).tiny)
    roots, vectors = spectrum[kept].sqrt(), vectors[:, kept]
    directions = torch.cat([(block.double().mT @ (vectors / roots)).to(x) for block in x.split(BLOCK, dim=1)])
    return (vectors * roots).to(x), directions


@dataclass(frozen=True, eq=False)
class Columns:
    """How columns are prepared: standardised by the training rows, and fewer where rows and columns exceed `LARGEST`.

    Then they are projected to the leading directions of the training rows, found by one step of subspace iteration. Of 7,936
    columns of 5,000 rows an SVM has .505 with all of them, .505 with 2,048 directions, .494 with 2,048 sums of random signs.
    """

    mean: Tensor
    scale: Tensor
    directions: Tensor | None  # (d, NARROWED), orthonormal

    @classmethod
    def fit(cls, train: Tensor) -> "Columns":
        plain = cls(*standardiser(train), None)
        if min(train.shape) <= LARGEST:
            return plain
        d = train.shape[1]
        start = torch.randn(d, NARROWED, generator=torch.Generator().manual_seed(0)).to(train)
        found = torch.zeros_like(start)
        for rows in train.split(BLOCK):
            check_time()
            rows = plain.apply(rows)
            found.addmm_(rows.mT, rows @ start)
        return cls(plain.mean, plain.scale, torch.linalg.qr(found).Q)

    def apply(self, x: Tensor) -> Tensor:
        if self.directions is None:
            return (x - self.mean).div_(self.scale)
        return torch.cat([(rows - self.mean).div_(self.scale) @ self.directions for rows in x.split(BLOCK)])

    @property
    def protocol(self) -> dict[str, Any]:
        said = {"normalisation": "standardised with the training mean and deviation"}
        if self.directions is not None:
            d, kept = self.directions.shape
            said["columns"] = f"{d}, projected to {kept} leading directions of the training rows"
        return said


@dataclass(frozen=True, eq=False)
class Classifier:
    """A fitted metric: one model, or one for each draw of labels, and what it needs to score rows it has not seen."""

    name: str
    task: Task
    columns: Columns
    model: Any  # has predict(rows) → codes of classes (n,); or a list of such
    protocol: dict[str, Any]

    def score(self, test_x: Any, test_y: Any) -> list[Metric]:
        x, y = self.task.scored(test_x, test_y)
        x = self.columns.apply(x)
        several = isinstance(self.model, list)
        right = torch.stack([one.predict(x) == y for one in self.model]) if several else self.model.predict(x) == y
        return [accuracy(self.name, right, {**self.protocol, "n_test": len(x)})]


def greatest(scores: Tensor) -> Tensor:
    """The column (n,) of the greatest score of each row; torch would take a NaN for it."""
    if bool(scores.isnan().any()):
        raise InputError("a classifier fitted to the features gives NaN: they are too large, or too far apart in size")
    return scores.argmax(dim=1)


def unit_rows(features: Tensor) -> Tensor:
    """Rows scaled to length one; a row of zeros stays zero (its cosine with everything is 0)."""
    return torch.nn.functional.normalize(features, dim=1, eps=1e-30)
