"""Metric: a number that carries its protocol, and the two ways it leaves the program (JSON, table)."""

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from sao.errors import InputError
from sao.runtime import files
from sao.runtime.files import write_text

UNMEASURED = "–"
INTERVAL = "interval_95"  # in a protocol


@dataclass(frozen=True)
class Metric:
    """One measured value; `protocol` says how it was measured, fully enough to measure it again.

    `right` says of an accuracy which samples were right, (n,) or (restarts, n): two accuracies of the same samples are compared
    sample by sample. It stays in the program. A value of NaN was not measured; `caution` in its protocol says why.
    """

    name: str
    value: float
    std: float | None = None
    protocol: dict[str, Any] = field(default_factory=dict)
    right: np.ndarray | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        # numpy and torch scalars would fail only later, when the file is written.
        object.__setattr__(self, "value", float(self.value))
        object.__setattr__(self, "std", None if self.std is None else float(self.std))
        object.__setattr__(self, "protocol", {str(key): _plain(value) for key, value in self.protocol.items()})

    def with_protocol(self, facts: Mapping[str, Any]) -> "Metric":
        """The same value with these facts put before the metric's own, which win where both speak."""
        return replace(self, protocol={**facts, **self.protocol})

    def renamed(self, name: str) -> "Metric":
        return replace(self, name=name)


def accuracy(name: str, right: Any, protocol: Mapping[str, Any]) -> Metric:
    """The share of samples that are right (n,), or the mean and deviation of that share over restarts (restarts, n)."""
    right = np.asarray(right.cpu() if isinstance(right, Tensor) else right)
    shares = right.mean(axis=-1, dtype=np.float64)
    return Metric(name, float(shares.mean()), float(shares.std()) if shares.ndim else None, dict(protocol), right)


def with_interval(metric: Metric) -> Metric:
    """An accuracy with its 95 % interval (Wilson) in the protocol: how far it may be off with so many samples."""
    if metric.right is None or not math.isfinite(metric.value):
        return metric
    from scipy.stats import binomtest

    n = metric.right.shape[-1]
    found = binomtest(round(metric.value * n), n).proportion_ci(method="wilson")
    return metric.with_protocol({INTERVAL: [round(found.low, 4), round(found.high, 4)]})


def as_intervals(metrics: Iterable[Metric]) -> str:
    """One line: each accuracy of the learnt features with its interval; empty where none has one."""
    found = [(m.name, m.value, m.protocol[INTERVAL]) for m in metrics if "/" not in m.name and INTERVAL in m.protocol]
    said = ", ".join(f"{name} {value:.2f} [{low:.2f}, {high:.2f}]" for name, value, (low, high) in found)
    return f"95 % intervals of learnt: {said}" if said else ""


def write_json(path: str | os.PathLike, metrics: Iterable[Metric], inside: Path | None = None) -> None:
    """Write the metrics as a JSON list; a reader sees the old file or the new one. `inside`: of the run that owns the file."""
    # JSON has no word for infinity or NaN; null is what every reader understands.
    rows = [{"name": m.name, "value": _finite(m.value), "std": _finite(m.std), "protocol": m.protocol} for m in metrics]
    text = json.dumps(rows, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_text(Path(path), text, inside=inside)


def read_json(path: str | os.PathLike, inside: Path | None = None) -> list[dict[str, Any]]:
    """What `write_json` wrote."""
    try:
        rows = files.read_json(Path(path).resolve() if inside is None else Path(path), inside)
        if not isinstance(rows, list) or not all(map(is_metric, rows)):
            raise ValueError("no list of metrics")
    except InputError:  # of a link
        raise
    except (OSError, ValueError):
        raise InputError(f"{path} is there and holds no metrics: remove it, or choose another -o") from None
    return rows


def read_summary(path: Path, step: int, last: int, inside: Path) -> list[dict[str, Any]]:
    """The table at the end of a training, where it is of the weights after this step; else nothing.

    A run that goes on beyond its end keeps the old table until it has made another. Those of version 0.2 do not say their
    step: they are taken for the `last` of the run.
    """
    rows = read_json(path, inside) if path.exists() else []
    return [row for row in rows if row["protocol"].get("step", last) == step]


def is_metric(row: Any) -> bool:
    kinds = {"name": str, "value": float | int | None, "std": float | int | None, "protocol": dict}
    return isinstance(row, dict) and row.keys() == kinds.keys() and all(isinstance(row[key], kinds[key]) for key in kinds)


def merged(before: Iterable[Mapping[str, Any]], metrics: Iterable[Metric]) -> list[Metric]:
    """The metrics, and those of an earlier file that are of the same features and were not measured again."""
    metrics = list(metrics)
    names, origins = {m.name for m in metrics}, {_origin(m.protocol) for m in metrics}
    used: dict[tuple[str, bool], set[tuple[Any, Any]]] = {}  # features and weights, of each representation and of samples
    for metric in metrics:
        kind, which = _use(metric.name, metric.protocol)
        used.setdefault(kind, set()).add(which)

    def same(name: str, protocol: Mapping[str, Any]) -> bool:
        kind, which = _use(name, protocol)
        return _origin(protocol) in origins and which in used.get(kind, {which})

    kept = [
        Metric(row["name"], math.nan if row["value"] is None else row["value"], row["std"], row["protocol"])
        for row in before
        if row["name"] not in names and same(row["name"], row["protocol"])
    ]
    return [*kept, *metrics]


def _use(name: str, protocol: Mapping[str, Any]) -> tuple[tuple[str, bool], tuple[Any, Any]]:
    """Of what kind a metric is, and of which features and weights; metrics of generated samples have no feature."""
    return (name.rpartition("/")[0], "feature" in protocol), (protocol.get("feature"), protocol.get("weights"))


def _origin(protocol: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(protocol.get(key)) for key in ("run", "step", "data", "labels", "source"))


def as_table(metrics: Iterable[Metric], facts: tuple[str, ...] = ("split", "feature", "weights", "n_test")) -> str:
    """A Markdown table that is also readable as plain text: aligned columns, value ± std, the chosen protocol facts."""
    metrics = list(metrics)
    shown = [key for key in facts if any(key in m.protocol for m in metrics)]
    rows = [["metric", "value", *shown]]
    for m in metrics:
        value = f"{m.value:.4f}" + ("" if m.std is None else f" ± {m.std:.4f}")
        rows.append([m.name, value if math.isfinite(m.value) else UNMEASURED, *(str(m.protocol.get(key, "")) for key in shown)])
    return aligned(rows)


def as_grid(metrics: Iterable[Metric], ours: str = "learnt", width: int = 110, spread: bool = False) -> str:
    """A row for each representation and a column for each metric, in as many tables as the width asks for.

    `spread` shows deviations too. What could not be measured is a dash, and the reason stands below.
    """
    values: dict[str, dict[str, Metric]] = {}
    for metric in metrics:
        representation, _, name = metric.name.rpartition("/")
        values.setdefault(representation or ours, {})[name] = metric
    names = list(dict.fromkeys(name for found in values.values() for name in found))
    first = max(len(representation) for representation in values)
    tables, left = [], names
    while left:
        taken = _that_fit(left, width - first - 4, len("0.000 ± 0.000" if spread else "0.000"))
        rows = [["", *taken]]
        for representation, found in values.items():
            rows.append([representation, *(_cell(found.get(name), spread) for name in taken)])
        tables.append(aligned(rows))
        left = left[len(taken) :]
    reasons: dict[str, list[str]] = {}
    for found in values.values():
        for name, metric in found.items():
            if "caution" in metric.protocol and name not in reasons.setdefault(metric.protocol["caution"], []):
                reasons[metric.protocol["caution"]].append(name)
    cautions = [f"{UNMEASURED} {', '.join(unmeasured)}: {reason}" for reason, unmeasured in reasons.items()]
    left_out = next((found[names[0]].protocol.get("left_out", {}) for found in values.values()), {})
    cautions += [f"{UNMEASURED} {name}: {reason}" for name, reason in left_out.items()]
    return "\n".join(["\n\n".join(tables), *cautions])


def _that_fit(names: list[str], width: int, narrowest: int) -> list[str]:
    """The first of the columns, at least one."""
    widths = np.cumsum([max(len(name), narrowest) + 3 for name in names])
    return names[: max(1, int((widths <= width).sum()))]


def _cell(metric: Metric | None, spread: bool) -> str:
    if metric is None or not math.isfinite(metric.value):
        return UNMEASURED
    return f"{metric.value:.3f}" + (f" ± {metric.std:.3f}" if spread and metric.std is not None else "")


def aligned(rows: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _plain(value: Any) -> Any:
    """Only what JSON can say, so that a protocol survives being written and read."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
