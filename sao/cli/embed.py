"""sao embed: features of data, with the names of the samples, as .npz, .csv or .parquet."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sao.cli.flags import DATA, add_feature, add_overwrite, add_run
from sao.cli.output import warn, writable
from sao.errors import InputError
from sao.runtime.csv_files import write_csv
from sao.runtime.files import written

if TYPE_CHECKING:  # torch comes with it
    from sao.data.dataset import Samples

ENDINGS = (".npz", ".csv", ".parquet")


def add_options(parser: ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("data", metavar="DATA", help=DATA)
    parser.add_argument("-o", "--output", required=True, help="NAME.npz, NAME.csv or NAME.parquet")
    add_feature(parser)
    add_overwrite(parser)


def run(arguments: Namespace) -> None:
    target = Path(arguments.output)
    if target.suffix not in ENDINGS:
        raise InputError(f"{target} must end in {', '.join(ENDINGS)}")
    writable(target, arguments.overwrite)
    if target.suffix == ".parquet" and find_spec("pyarrow") is None:  # before the work, not after it
        raise InputError("writing .parquet needs pyarrow: pip install 'sao[tables]', or write .npz or .csv")
    import sao
    from sao.cli.inputs import open_with_splits
    from sao.training.bar import Bar
    from sao.training.model import names_of

    model = sao.load(arguments.run, report=warn)
    samples, splits = open_with_splits(model, arguments.data)
    feature = arguments.feature or model.usual_feature
    features = model.embed(samples, feature, progress=Bar("embedding", "samples"))
    names = names_of(samples)
    writers: dict[str, Callable] = {".npz": _npz, ".csv": _csv, ".parquet": _parquet}
    with written(target) as temporary:
        writers[target.suffix](temporary, names, splits, features, samples)
    print(f"{len(features)} x {features.shape[1]} {feature} features of step {model.step} in {target}")


def _npz(path: Path, names: list[str], splits: list[str] | None, features: np.ndarray, samples: "Samples") -> None:
    """Labels as numbers, and of which class each number is."""
    extra = {} if splits is None else {"splits": np.array(splits)}
    extra |= {} if samples.labels is None else {"labels": samples.labels}
    if samples.labels is not None and samples.class_names is not None:
        extra["class_names"] = np.array([str(name) for name in samples.class_names])
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, names=np.array(names), features=features, **extra)


def _csv(path: Path, names: list[str], splits: list[str] | None, features: np.ndarray, samples: "Samples") -> None:
    columns = _about(names, splits, samples)
    titles = [*columns, *(f"f{i}" for i in range(features.shape[1]))]
    of_samples = zip(*columns.values(), strict=True)
    rows = ([*about, *(f"{value:.9g}" for value in row)] for about, row in zip(of_samples, features, strict=True))
    write_csv(path, titles, rows)


def _parquet(path: Path, names: list[str], splits: list[str] | None, features: np.ndarray, samples: "Samples") -> None:
    import pyarrow
    import pyarrow.parquet

    columns = {}
    for title, values in _about(names, splits, samples).items():
        columns[title] = pyarrow.array([text.encode("utf-8", "backslashreplace").decode() for text in values])
    columns |= {f"f{i}": pyarrow.array(features[:, i]) for i in range(features.shape[1])}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def _about(names: list[str], splits: list[str] | None, samples: "Samples") -> dict[str, list[str]]:
    """What is known of each sample; its class by its name, where classes have names, else by its number."""
    found = {"name": names} | ({} if splits is None else {"split": splits})
    if samples.labels is not None:
        classes, codes = samples.class_names, samples.labels.tolist()
        found["label"] = [str(code) if classes is None else str(classes[code]) for code in codes]
    return found
