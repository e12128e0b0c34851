"""Linear probe: multinomial logistic regression to convergence, on all labels or on a few.

Objective: mean cross-entropy + |W|² / (2 C n), intercept free; scikit-learn's LogisticRegression with the same C.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sao.data.split import by_class
from sao.errors import InputError
from sao.evaluation.budget import check_time
from sao.evaluation.inputs import Classifier, Columns, Task, check_splits, greatest, principal
from sao.evaluation.result import Metric


def linear_probe(train_x: Any, train_y: Any, test_x: Any, test_y: Any, cost: float = 1.0) -> Metric:
    """Test accuracy of logistic regression fitted to all training labels."""
    check_splits(train_x, train_y, test_x, test_y)
    return fit_probe(train_x, train_y, cost).score(test_x, test_y)[0]


def few_shot(
    train_x: Any, train_y: Any, test_x: Any, test_y: Any, share: float, repeats: int = 5, seed: int = 0, cost: float = 1.0
) -> Metric:
    """The probe fitted to a share of the labels, stratified, at least one for each class; mean over seeded draws."""
    check_splits(train_x, train_y, test_x, test_y)
    return fit_few_shot(train_x, train_y, share, repeats, seed, cost).score(test_x, test_y)[0]


def fit_probe(train_x: Any, train_y: Any, cost: float = 1.0) -> Classifier:
    x, y, task, columns, protocol = _prepared(train_x, train_y, cost)
    probe = Probe.fit(x, y, len(task.classes), cost)
    protocol |= {"iterations": probe.iterations, "largest_gradient": probe.gradient}
    return Classifier("probe", task, columns, probe, protocol)


def fit_few_shot(train_x: Any, train_y: Any, share: float, repeats: int = 5, seed: int = 0, cost: float = 1.0) -> Classifier:
    if not 0 < share <= 1:
        raise InputError(f"share must lie between 0 and 1, got {share}: 0.01 is one percent of the labels")
    if repeats < 1:
        raise InputError(f"repeats is {repeats}: give at least 1")
    x, y, task, columns, protocol = _prepared(train_x, train_y, cost)
    draws = [labelled_rows(y, share, seed + i) for i in range(repeats)]
    probes = [Probe.fit(x[rows], y[rows], len(task.classes), cost) for rows in draws]
    protocol |= {
        "labels": len(draws[0]),
        "share": share,
        "draws": "stratified, at least one for each class",
        "restarts": repeats,
        "seeds": f"{seed}..{seed + repeats - 1}",
    }
    return Classifier(f"probe_{100 * share:g}pct", task, columns, probes, protocol)


def labelled_rows(labels: Tensor, share: float, seed: int) -> Tensor:
    """Sorted row indices: round(share x count) of every class, never none."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed)).numpy()
    rows, places, sizes = by_class(labels.cpu().numpy(), order)
    return torch.from_numpy(np.sort(rows[places < np.rint(share * sizes).clip(min=1)])).to(labels.device)


@dataclass(frozen=True, eq=False)
class Probe:
    """Fitted weights (d, classes) and intercept (classes,); `gradient` is the largest entry left at the end."""

    weights: Tensor
    intercept: Tensor
    iterations: int
    gradient: float

    @classmethod
    def fit(cls, x: Tensor, y: Tensor, classes: int, cost: float = 1.0) -> "Probe":
        """L-BFGS on the full batch, in the eigenbasis of the features where the objective is nearly round."""
        from scipy.optimize import minimize

        n = len(x)
        penalty = 1 / (cost * n)
        centre = x.mean(dim=0)
        x = x - centre  # folded into the intercept at the end; the intercept is free, so the optimum is the same
        coordinates, directions = principal(x)
        spectrum = coordinates.double().square().mean(dim=0)
        softness = (1 - 1 / classes) / classes  # curvature of the cross-entropy at equal probabilities
        scale = (softness * spectrum + penalty).rsqrt()
        # W = directions @ (scale * V): |V| moves the objective alike in every direction
        rotated, squared = coordinates * scale.to(x), scale.square()[:, None]
        intercept_scale = softness**-0.5

        def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
            check_time()
            v = torch.from_numpy(flat.reshape(-1, classes)).to(x.device)
            logits = rotated @ v[:-1].to(x) + (intercept_scale * v[-1]).to(x)
            log_p = logits.log_softmax(dim=1)
            loss = -log_p.gather(1, y[:, None]).mean(dtype=torch.float64)
            error = log_p.exp()
            error[torch.arange(n, device=x.device), y] -= 1
            loss = loss + penalty / 2 * (squared * v[:-1].square()).sum()
            slope = (rotated.mT @ error).double() / n + penalty * squared * v[:-1]
            bias = intercept_scale * error.mean(dim=0, dtype=torch.float64)
            return loss.item(), torch.cat([slope, bias[None]]).cpu().numpy().ravel()

        options = {"maxiter": 1000, "maxcor": 20, "ftol": 1e-14, "gtol": 1e-8 if x.dtype == torch.float64 else 1e-6}
        found = minimize(objective, np.zeros((len(scale) + 1) * classes), jac=True, method="L-BFGS-B", options=options)
        v = torch.from_numpy(found.x.reshape(-1, classes)).to(x.device)
        weights = directions.double() @ (scale[:, None] * v[:-1])
        intercept = intercept_scale * v[-1] - centre.double() @ weights
        return cls(weights.to(x), intercept.to(x), int(found.nit), float(np.abs(found.jac).max()))

    def predict(self, x: Tensor) -> Tensor:
        return greatest(x @ self.weights + self.intercept)


def _prepared(train_x: Any, train_y: Any, cost: float) -> tuple[Tensor, Tensor, Task, Columns, dict[str, Any]]:
    """The training rows as a probe sees them, their codes, and what the test rows need to be seen alike."""
    if cost <= 0:
        raise InputError(f"cost must be positive, got {cost}: 1 is the usual choice")
    x, y, task = Task.of(train_x, train_y)
    columns = Columns.fit(x)
    protocol = {
        "objective": "multinomial logistic regression, L2 penalty |W|²/(2 C n), intercept free",
        **columns.protocol,
        "C": cost,
        "classes": len(task.classes),
        "n_train": len(x),
    }
    return columns.apply(x), y, task, columns, protocol
