"""sao embed: features of data, with the names of the samples, as .npz, .csv or .parquet."""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import numpy as np

from sao.commands.output import writable
from sao.errors import InputError
from sao.files import written

ENDINGS = (".npz", ".csv", ".parquet")


def run(arguments: Namespace) -> None:
    target = Path(arguments.output)
    if target.suffix not in ENDINGS:
        raise InputError(f"{target} must end in {', '.join(ENDINGS)}")
    writable(target)
    import sao
    from sao.commands.inputs import open_for

    model = sao.load(arguments.run)
    samples = open_for(model, arguments.data)
    features = model.embed(samples, arguments.feature)
    names = list(samples.names) if samples.names is not None else [str(i) for i in range(len(samples))]
    writers: dict[str, Callable] = {".npz": _npz, ".csv": _csv, ".parquet": _parquet}
    with written(target) as temporary:
        writers[target.suffix](temporary, names, features, samples.labels)
    print(f"{len(features)} x {features.shape[1]} {arguments.feature} features of step {model.step} in {target}")


def _npz(path: Path, names: list[str], features: np.ndarray, labels: np.ndarray | None) -> None:
    extra = {} if labels is None else {"labels": labels}
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, names=np.array(names), features=features, **extra)


def _csv(path: Path, names: list[str], features: np.ndarray, labels: np.ndarray | None) -> None:
    import csv

    with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        writer = csv.writer(file)
        writer.writerow(["name", *([] if labels is None else ["label"]), *(f"f{i}" for i in range(features.shape[1]))])
        for index, name in enumerate(names):
            label = [] if labels is None else [int(labels[index])]
            writer.writerow([name, *label, *(f"{value:.9g}" for value in features[index])])


def _parquet(path: Path, names: list[str], features: np.ndarray, labels: np.ndarray | None) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError("writing .parquet needs pyarrow: pip install 'sao[tables]', or write .npz or .csv") from None
    columns = {"name": pyarrow.array([name.encode("utf-8", "backslashreplace").decode() for name in names])}
    if labels is not None:
        columns["label"] = pyarrow.array(labels)
    columns |= {f"f{i}": pyarrow.array(features[:, i]) for i in range(features.shape[1])}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
