"""One step on a device beside the same step on the CPU: losses, gradients, and every operator with the same arguments."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from sao.config import Config
from sao.core.agreement import difference
from sao.data.dataset import Dataset
from sao.data.loader import Batches
from sao.methods import Method
from sao.networks.cpu import portable
from sao.training.device import numerics
from sao.training.loop import new_method
from sao.training.step import make_step

TOLERANCE = 1e-3  # of losses and gradients in float32, of their largest value: sums in another order, through a whole step
OPERATOR_TOLERANCE = 1e-4  # of one operator
SMALL = 1e-2  # share of the largest value of several tensors, below which a value is rounding
NOTHING_COMPUTED = ("empty", "new_empty", "as_strided", "resize", "scalar_tensor")  # the last may be handed a NaN to fill in


@dataclass(frozen=True)
class Comparison:
    """Relative differences by name, between the device and the CPU."""

    losses: dict[str, float]
    gradients: dict[str, float]
    operators: dict[str, float] = field(default_factory=dict)

    @property
    def agrees(self) -> bool:
        return all(apart <= TOLERANCE for apart in (*self.losses.values(), *self.gradients.values()))

    @property
    def wrong_operators(self) -> dict[str, float]:
        """Those that differ by more than rounding, the worst first."""
        found = sorted(self.operators.items(), key=lambda pair: -pair[1])
        return {name: difference for name, difference in found if not difference <= OPERATOR_TOLERANCE}

    def __str__(self) -> str:
        losses, gradients = (f"{max(found.values()):.0e}" for found in (self.losses, self.gradients))
        return f"losses within {losses} and gradients within {gradients} of a step on the CPU (allowed: {TOLERANCE:.0e})"


def compare(config: Config, dataset: Dataset, device: torch.device) -> Comparison:
    """The first step of a run, by torch's own operators on both sides."""
    with portable(), numerics(config.train):
        expected = _step(config, dataset, new_method(config, dataset, torch.device("cpu")))
        method = new_method(config, dataset, device)  # first weights are drawn, which may not be done twice
        with EachOperator() as operators:
            found = _step(config, dataset, method)
    return Comparison(differences(expected[0], found[0]), differences(expected[1], found[1]), operators.differences)


def _step(config: Config, dataset: Dataset, method: Method) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Losses and gradients."""
    batches = Batches(dataset.train, next(method.parameters()).device)
    scalars = make_step(method, batches, config.seed, config.train.batch, 0)
    return scalars, {name: p.grad for name, p in method.named_parameters() if p.grad is not None}


def differences(expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> dict[str, float]:
    """By name; what should be nothing at all (the gradient of a bias before a norm) counts beside the largest of all."""
    least = SMALL * max(float(value.nan_to_num(0, 0, 0).abs().max()) for value in expected.values())
    return {name: difference(value, found[name], least) for name, value in expected.items()}


class EachOperator(TorchDispatchMode):
    """Calls every operator twice, where its arguments are and with copies of them on the CPU, and compares what it gives."""

    def __init__(self) -> None:
        super().__init__()
        self.differences: dict[str, float] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._overloadpacket.__name__
        if name.startswith(NOTHING_COMPUTED):
            return func(*args, **(kwargs or {}))
        copies = tree_map(_copied, (args, kwargs or {}))  # before the call, because some operators write into their arguments
        found, expected = func(*args, **(kwargs or {})), func(*copies[0], **copies[1])
        written = func._schema.is_mutable
        pairs = zip(_numbers((found, args if written else ())), _numbers((expected, copies[0] if written else ())), strict=True)
        worst = max((difference(theirs, ours) for ours, theirs in pairs), default=0.0)
        self.differences[name] = max(worst, self.differences.get(name, 0.0))
        return found


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    return torch.device("cpu") if isinstance(value, torch.device) else value


def _numbers(values: Any) -> list[Tensor]:
    """Indices are left out: of equal values any may be chosen."""
    return [value for value in tree_leaves(values) if isinstance(value, Tensor) and value.is_floating_point()]
