"""Linear SVM, the paper's main metric: LinearSVC's objective, all classes solved at once.

For class j, with y = ±1 and x̂ = (x, 1):  min_w ½|w|² + C Σ_i max(0, 1 − y_i w·x̂_i)².  The intercept is a weight like the
others (liblinear's intercept_scaling = 1), so the objective is LinearSVC's, not merely similar to it.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sao.core import agreement
from sao.data.split import by_class
from sao.errors import InputError
from sao.evaluation.budget import check_time
from sao.evaluation.inputs import Classifier, Columns, Task, check_splits, greatest, principal
from sao.evaluation.result import Metric

COSTS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
HELD_OUT = 0.2  # of the training split, to choose C on
TOLERANCE = 1e-4  # of the gradient, by liblinear's stopping rule
GAP = 1e-4  # of the objective's value, by which it may be above its minimum
PATIENCE = 2  # costs that do no better before the search ends: the largest take longest and seldom win
CLASSES_AT_ONCE = 128  # bounds memory at n x 128 numbers a buffer; classes are independent problems


def linear_svm(
    train_x: Any,
    train_y: Any,
    test_x: Any,
    test_y: Any,
    costs: Sequence[float] = COSTS,
    seed: int = 0,
    held_out: float = HELD_OUT,
    progress: Callable[[str], None] | None = None,
) -> Metric:
    """Test accuracy of a one-vs-rest linear SVM; C is chosen on a held-out part of the training split, then all is refit.

    `progress` is told which C is tried.
    """
    check_splits(train_x, train_y, test_x, test_y)
    return fit_svm(train_x, train_y, costs, seed, held_out, progress or (lambda _: None)).score(test_x, test_y)[0]


def fit_svm(
    train_x: Any, train_y: Any, costs: Sequence[float], seed: int, held_out: float, say: Callable[[str], None]
) -> Classifier:
    costs = sorted(float(cost) for cost in costs)
    if not costs or costs[0] <= 0:
        raise InputError(f"costs must be positive numbers, got {costs}: give at least one, such as 0.01")
    x, y, task = Task.of(train_x, train_y)
    columns, classes = Columns.fit(x), len(task.classes)
    x, directions = principal(columns.apply(x))
    scores = _held_out_scores(x, y, classes, costs, held_out, seed, say) if len(costs) > 1 else {}
    cost = agreement.best(scores) if scores else costs[0]
    say(f"C = {cost:g}, all training samples")
    model = replace(next(LinearSVM.path(x, y, classes, [cost])), directions=directions)
    protocol = {
        "objective": "one-vs-rest L2-regularised squared hinge (LinearSVC), intercept regularised",
        **columns.protocol,
        "C": cost,
        "C_candidates": costs,
        "C_held_out_accuracy": {f"{c:g}": round(score, 6) for c, score in scores.items()},
        "C_chosen_on": f"{held_out:g} of the training split, stratified" if scores else "given",
        "C_search": f"ascending, until {PATIENCE} in a row do no better or one is worse by two standard errors",
        "C_at_edge": bool(scores) and cost in (costs[0], costs[-1]),  # then a wider range might do better
        "seed": seed,
        "classes": classes,
        "n_train": len(x),
    }
    return Classifier("svm", task, columns, model, protocol)


def _held_out_scores(
    x: Tensor, y: Tensor, classes: int, costs: list[float], share: float, seed: int, say: Callable[[str], None]
) -> dict[float, float]:
    """Accuracy on a held-out share for each cost that was tried."""
    kept, held = stratified_split(y, share, seed)
    scores: dict[float, float] = {}
    models = LinearSVM.path(x[kept], y[kept], classes, costs, gap=math.inf)  # liblinear's rule is enough to choose by
    for cost in costs:
        say(f"C = {cost:g}")
        scores[cost] = next(models).accuracy(x[held], y[held])
        best = agreement.best(scores)  # the first, hence the smallest, of equally good ones
        error = math.sqrt(scores[best] * (1 - scores[best]) / len(held))
        if list(scores).index(best) < len(scores) - PATIENCE or scores[cost] < scores[best] - 2 * error:
            break
    return scores


@dataclass(frozen=True, eq=False)
class LinearSVM:
    """Fitted one-vs-rest weights (d + 1, classes), the intercept in the last row; of coordinates along directions (d, r)."""

    weights: Tensor
    cost: float
    directions: Tensor | None = None

    @classmethod
    def fit(cls, x: Tensor, y: Tensor, classes: int, cost: float) -> "LinearSVM":
        coordinates, directions = principal(x)
        found = next(cls.path(coordinates, y, classes, [cost]))
        return cls(torch.cat([directions @ found.weights[:-1], found.weights[-1:]]), cost)

    @classmethod
    def path(cls, x: Tensor, y: Tensor, classes: int, costs: Sequence[float], gap: float = GAP) -> Iterator["LinearSVM"]:
        """One model for each cost, in ascending order, each started from the one before it.

        The solution is the same for any x, but it comes sooner for principal coordinates: there the Hessian I + 2C x_A'x_A
        (A: the samples inside the margin) is nearly diagonal, so a diagonal preconditioner does for conjugate gradients what
        a full one would.
        """
        x = torch.cat([x, x.new_ones(len(x), 1)], dim=1)
        diagonal = x.square().sum(dim=0)
        groups = torch.arange(classes, device=x.device).split(CLASSES_AT_ONCE)
        weights = [x.new_zeros(x.shape[1], len(group)) for group in groups]
        for cost in sorted(costs):
            for i, group in enumerate(groups):
                signs = (y[:, None] == group).to(x).mul_(2).sub_(1)
                weights[i] = _minimise(x, signs, cost, weights[i], diagonal, gap)
            yield cls(torch.cat(weights, dim=1), cost)

    def predict(self, x: Tensor) -> Tensor:
        x = x if self.directions is None else x @ self.directions
        return greatest(x @ self.weights[:-1] + self.weights[-1])

    def accuracy(self, x: Tensor, y: Tensor) -> float:
        return (self.predict(x) == y).double().mean().item()


def _minimise(x: Tensor, signs: Tensor, cost: float, start: Tensor, diagonal: Tensor, gap: float) -> Tensor:
    """Truncated Newton on every column of `signs` at once; columns leave when liblinear's stopping rule holds for them."""
    weights, n = start.clone(), len(x)
    rarer = torch.minimum((signs > 0).sum(dim=0), (signs < 0).sum(dim=0)).clamp_min(1)
    at_zero = (2 * cost * (x.mT @ signs)).norm(dim=0)
    goal = TOLERANCE * rarer / n * at_zero
    scores = x @ weights
    columns = torch.arange(weights.shape[1], device=x.device)
    for _ in range(60):
        w, s, f = weights[:, columns], signs[:, columns], scores[:, columns]
        slack = (1 - s * f).clamp_min_(0)
        gradient = w - 2 * cost * (x.mT @ (s * slack))
        # The objective is at most |gradient|²/2 above its minimum, because ½|w|² is a part of it: where all samples are easily
        # told apart, liblinear's rule alone would stop a percent above.
        value = w.square().sum(dim=0) / 2 + cost * slack.square().sum(dim=0)
        unfinished = gradient.norm(dim=0) > torch.minimum(goal[columns], (2 * gap * value).sqrt())
        if not unfinished.any():
            break
        columns, w, s, f = columns[unfinished], w[:, unfinished], s[:, unfinished], f[:, unfinished]
        slack, gradient = slack[:, unfinished], gradient[:, unfinished]
        direction = _newton_direction(x, (slack > 0).to(x), cost, gradient, diagonal)
        change = x @ direction
        step = _line_search(w, direction, s, f, change, cost)
        weights[:, columns] = w + step * direction
        scores[:, columns] = f + step * change
    return weights


def _newton_direction(x: Tensor, active: Tensor, cost: float, gradient: Tensor, diagonal: Tensor) -> Tensor:
    """Solve (I + 2C x_A'x_A) p = −gradient by preconditioned conjugate gradients, one column for each class."""
    scaling = 1 / (1 + 2 * cost * active.mean(dim=0) * diagonal[:, None])
    solution, residual = torch.zeros_like(gradient), -gradient
    target = 0.1 * gradient.norm(dim=0)
    preconditioned = scaling * residual
    direction, energy = preconditioned, (residual * preconditioned).sum(dim=0)
    for _ in range(50):
        check_time()
        product = direction + 2 * cost * (x.mT @ (active * (x @ direction)))
        # A column that has arrived keeps its solution: its step is zero from then on.
        length = torch.where(residual.norm(dim=0) > target, energy / (direction * product).sum(dim=0), 0.0)
        solution = solution + length * direction
        residual = residual - length * product
        if bool((residual.norm(dim=0) <= target).all()):
            break
        preconditioned = scaling * residual
        energy, previous = (residual * preconditioned).sum(dim=0), energy
        direction = preconditioned + energy / previous.clamp_min(1e-38) * direction
    return solution


def _line_search(w: Tensor, direction: Tensor, signs: Tensor, scores: Tensor, change: Tensor, cost: float) -> Tensor:
    """Exact minimiser along each column: the slope is piecewise linear in the step, so a few Newton steps find its root."""
    step = w.new_ones(w.shape[1])
    along, squared = (w * direction).sum(dim=0), direction.square().sum(dim=0)
    low, high = torch.zeros_like(step), torch.full_like(step, torch.inf)
    for _ in range(20):
        slack = (1 - signs * (scores + step * change)).clamp_min_(0)
        slope = along + step * squared - 2 * cost * (slack * signs * change).sum(dim=0)
        curvature = squared + 2 * cost * ((slack > 0) * change.square()).sum(dim=0)
        low, high = torch.where(slope < 0, step, low), torch.where(slope > 0, step, high)
        proposal = step - slope / curvature
        inside = (proposal > low) & (proposal < high)
        proposal = torch.where(inside, proposal, torch.where(high.isinf(), 2 * low + 1, (low + high) / 2))
        if bool(((proposal - step).abs() <= 1e-2 * step).all()):
            break
        step = proposal
    return step


def stratified_split(labels: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Row indices (kept, held out): `share` of every class held out, and at least one sample of each class kept."""
    if not 0 < share < 1:
        raise InputError(f"held_out must lie between 0 and 1, got {share}: 0.2 is usual")
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed)).numpy()
    rows, places, sizes = by_class(labels.cpu().numpy(), order)
    held = places >= sizes - (sizes * share).astype(np.int64)
    if not held.any():
        raise InputError(
            f"no class has more than {sizes.max()} labelled training samples, too few to choose the SVM's C on held-out ones: "
            f"label at least {math.ceil(1 / share)} of a class, or give C (in Python, costs=[0.01])"
        )
    kept, held = (torch.from_numpy(np.sort(rows[part])).to(labels.device) for part in (~held, held))
    return kept, held
