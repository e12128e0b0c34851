"""Linear probe: multinomial logistic regression to convergence, on all labels or on a few.

Objective: mean cross-entropy + |W|² / (2 C n), intercept free; scikit-learn's LogisticRegression with the same C.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sao.errors import InputError
from sao.evaluation.inputs import greatest, narrowed, principal, standardiser, train_and_test
from sao.evaluation.result import Metric, accuracy


def linear_probe(train_x: Any, train_y: Any, test_x: Any, test_y: Any, cost: float = 1.0) -> Metric:
    """Test accuracy of logistic regression fitted to all training labels."""
    train_x, train_y, test_x, test_y, classes, protocol = _prepared(train_x, train_y, test_x, test_y, cost)
    probe = Probe.fit(train_x, train_y, classes, cost)
    protocol |= {"iterations": probe.iterations, "largest_gradient": probe.gradient}
    return accuracy("probe", probe.predict(test_x) == test_y, protocol)


def few_shot(
    train_x: Any,
    train_y: Any,
    test_x: Any,
    test_y: Any,
    share: float,
    repeats: int = 5,
    seed: int = 0,
    cost: float = 1.0,
) -> Metric:
    """The probe fitted to a share of the labels, stratified, at least one for each class; mean over seeded draws."""
    if not 0 < share <= 1:
        raise InputError(f"share must lie between 0 and 1, got {share}: 0.01 is one percent of the labels")
    if repeats < 1:
        raise InputError(f"repeats is {repeats}: give at least 1")
    train_x, train_y, test_x, test_y, classes, protocol = _prepared(train_x, train_y, test_x, test_y, cost)
    right, counts = [], []
    for i in range(repeats):
        rows = labelled_rows(train_y, share, seed + i)
        probe = Probe.fit(train_x[rows], train_y[rows], classes, cost)
        right.append((probe.predict(test_x) == test_y).cpu().numpy())
        counts.append(len(rows))
    protocol |= {
        "labels": counts[0],
        "share": share,
        "draws": "stratified, at least one for each class",
        "restarts": repeats,
        "seeds": f"{seed}..{seed + repeats - 1}",
    }
    return accuracy(f"probe_{100 * share:g}pct", np.stack(right), protocol)


def labelled_rows(labels: Tensor, share: float, seed: int) -> Tensor:
    """Sorted row indices: round(share x count) of every class, never none."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed)).to(labels.device)
    chosen = []
    for label in range(int(labels.max()) + 1):
        members = order[labels[order] == label]
        chosen.append(members[: max(1, round(share * len(members)))])
    return torch.cat(chosen).sort().values


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


def _prepared(train_x: Any, train_y: Any, test_x: Any, test_y: Any, cost: float):
    """Both splits standardised, with their codes, the number of classes and the protocol."""
    if cost <= 0:
        raise InputError(f"cost must be positive, got {cost}: 1 is the usual choice")
    train_x, train_y, test_x, test_y, classes = train_and_test(train_x, train_y, test_x, test_y)
    mean, scale = standardiser(train_x)
    train_x, test_x, narrowing = narrowed((train_x - mean) / scale, (test_x - mean) / scale)
    protocol = {
        "objective": "multinomial logistic regression, L2 penalty |W|²/(2 C n), intercept free",
        "normalisation": "standardised with the training mean and deviation",
        **narrowing,
        "C": cost,
        "classes": classes,
        "n_train": len(train_x),
        "n_test": len(test_x),
    }
    return train_x, train_y, test_x, test_y, classes, protocol
