"""Features: what the evaluator measures, with the facts that its numbers must carry."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from sao.data.files.npz import read_npz
from sao.data.labels import LabelFile
from sao.errors import InputError
from sao.evaluation.inputs import feature_matrix, label_codes

ONE_SPLIT = "one split, which the network may have been trained on"


@dataclass(frozen=True, eq=False)
class Features:
    """Values (n, d), a label for each or none, and facts such as split, feature (backbone) and weights (ema)."""

    values: Any
    labels: Any = None
    protocol: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        values = feature_matrix("features", self.values)
        object.__setattr__(self, "values", values)
        if self.labels is not None:
            labels = self.labels.detach().cpu().numpy() if isinstance(self.labels, Tensor) else np.asarray(self.labels)
            label_codes("labels", labels, len(values))
            object.__setattr__(self, "labels", labels)

    def __len__(self) -> int:
        return len(self.values)

    def select(self, rows: np.ndarray) -> "Features":
        return Features(self.values[rows], None if self.labels is None else self.labels[rows], self.protocol)


def load_features(path: str | os.PathLike) -> tuple[Features, Features | None]:
    """(train, test) from an .npz of x_train, x_test (and y_train, y_test); (features, None) where it holds one split alone."""
    return load_labelled_features(path)[0]


def load_labelled_features(
    path: str | os.PathLike, labels: LabelFile | None = None
) -> tuple[tuple[Features, Features | None], str | None]:
    """The same; with a table of labels those features that it names, and the line to print."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} does not exist: give an .npz file with x_train, y_train, x_test, y_test")
    arrays = read_npz(path)
    facts = {"source": path.name}
    if "x_train" in arrays and "x_test" in arrays:
        if labels is not None:
            raise InputError(f"{path} holds no names that {labels.where} could label: `sao embed` writes some")
        return (
            Features(arrays["x_train"], arrays.get("y_train"), {**facts, "split": "train"}),
            Features(arrays["x_test"], arrays.get("y_test"), {**facts, "split": "test"}),
        ), None
    if "features" in arrays:
        # Whether a network was trained on these samples the file does not say; what is fitted to labels is cross-validated.
        facts |= {"split": ONE_SPLIT}
        if labels is None:
            return (Features(arrays["features"], arrays.get("labels"), facts), None), None
        values, names = arrays["features"], arrays.get("names")
        if names is None or len(names) != len(values):
            raise InputError(f"{path} holds no names that {labels.where} could label: `sao embed` writes some")
        found = labels.assign([str(name) for name in names])
        known = found.codes >= 0
        return (Features(values[known], found.codes[known], facts | {"labels": labels.where}), None), found.note
    raise InputError(
        f"{path} holds {', '.join(sorted(arrays)) or 'nothing'}: name the arrays x_train, y_train, x_test, y_test, "
        "or features and labels"
    )


def named_features(path: Path) -> tuple[np.ndarray, list[str]]:
    """Features (n, d) of an .npz, with their names as `sao embed` wrote them; else they are numbered."""
    train, test = load_features(path)
    parts = [train] if test is None else [train, test]
    values = np.concatenate([part.values.float().numpy() for part in parts])
    names = read_npz(path, ("names",)).get("names") if test is None else None
    if names is not None and len(names) != len(values):
        raise InputError(f"{path} has {len(names)} names for {len(values)} features: give one for each")
    return values, list(map(str, names if names is not None else range(len(values))))
