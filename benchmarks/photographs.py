"""How good features of photographs are after each minute of a processor: runs of any method, and k-means patches.

python benchmarks/photographs.py DATA.npz NAME=RUN… --out FOLDER [--patches 256,1024] [--feature layers]

Every checkpoint that a run kept is judged on DATA.npz (x_train, y_train, x_test, y_test), which may be another data set than
the run's: a linear SVM and the nearest neighbour from 10,000 training images, k-means and UMAP of the test images.
FOLDER/photographs.json keeps every number with seed, processor, commit and date. A second call measures only what is missing,
so that runs of other days and machines can be joined. FOLDER/curves.svg is drawn from all of it.
"""

import argparse
import datetime
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from matplotlib.figure import Figure

import sao
from sao.data.dataset import Pixels
from sao.evaluation.evaluator import chosen_rows
from sao.evaluation.features import Features
from sao.evaluation.patches import patch_features
from sao.evaluation.pretrained import pretrained
from sao.evaluation.suite import evaluate
from sao.methods import FeatureName
from sao.runtime.machine import commit, processor_name

FITTED = 10_000  # training images with labels
METRICS = ("svm", "knn1", "kmeans", "manifold")
TITLES = {"svm": "linear", "knn1": "1-NN", "kmeans": "k-means", "manifold": "UMAP"}
REPEATS = 5  # of k-means

Parts = list[tuple[np.ndarray, np.ndarray]]  # images and labels of training and test


def parts_of(data: Path, seed: int = 0) -> Parts:
    with np.load(data) as arrays:
        train, test = ((arrays[f"x_{name}"], arrays[f"y_{name}"]) for name in ("train", "test"))
    rows = chosen_rows(len(train[0]), train[1], FITTED, seed)
    return [(train[0][rows], train[1][rows]), test]


def measured(values: list[Any], parts: Parts, metrics: tuple[str, ...]) -> dict[str, float]:
    train, test = (Features(np.asarray(x), y) for x, (_, y) in zip(values, parts, strict=True))
    found = evaluate(train, test, metrics, repeats=REPEATS, manifold="umap")
    return {metric.name: round(float(metric.value), 4) for metric in found}


def checkpoints(run: Path) -> Iterator[tuple[int, float]]:
    """(step, minutes of training until then) for each one kept."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    seconds, before, last = {}, 0.0, 0.0
    for row in (row for row in rows if "time/seconds" in row):
        if row["time/seconds"] < last:  # a run that goes on counts from there
            before += last
        last = row["time/seconds"]
        seconds[row["step"]] = before + last
    for kept in sorted((run / "checkpoints").glob("step-*")):
        step = int(kept.name.partition("-")[2])
        yield step, seconds[max(known for known in seconds if known <= step)] / 60


@contextmanager
def only(run: Path, step: int) -> Iterator[Path]:
    """A copy of the run with this checkpoint alone."""
    with tempfile.TemporaryDirectory() as folder:
        alone, kept = Path(folder) / run.name, f"step-{step:08d}"
        shutil.copytree(run, alone, ignore=shutil.ignore_patterns("checkpoints", "samples", "eval", "lock"))
        shutil.copytree(run / "checkpoints" / kept, alone / "checkpoints" / kept)
        yield alone


def draw(rows: list[dict[str, Any]], file: Path) -> None:
    names = list(dict.fromkeys(row["name"] for row in rows))
    shown = [metric for metric in METRICS if any(metric in row for row in rows)]
    figure = Figure(figsize=(3.4 * len(shown), 3.5), layout="constrained")
    for axes, metric in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        for number, name in enumerate(names):
            points = [(row["minutes"], row[metric]) for row in rows if row["name"] == name and metric in row]
            if points:
                axes.plot(*zip(*sorted(points), strict=True), marker=".", color=f"C{number}", label=name)
        axes.set(xscale="log", xlabel="minutes of one core", title=TITLES[metric])
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=7)
    figure.savefig(file)


class Store:
    """The numbers of one file, written after each."""

    def __init__(self, folder: Path, data: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.file, self.data = folder / "photographs.json", data
        self.rows: list[dict[str, Any]] = json.loads(self.file.read_text()) if self.file.exists() else []

    def has(self, **key: Any) -> bool:
        return any({**key, "data": self.data}.items() <= row.items() for row in self.rows)

    def add(self, found: dict[str, float], **facts: Any) -> None:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        machine = {"processor": processor_name(), "commit": commit(), "date": today}
        row = {**facts, "data": self.data, **found, **machine}
        print(*(f"{key} {value}" for key, value in row.items()), sep="; ", flush=True)
        self.rows.append(row)
        self.rows.sort(key=lambda row: (row["data"], row["name"], row["feature"], row["minutes"]))
        self.file.write_text(json.dumps(self.rows, indent=1) + "\n")


def measure_baselines(store: Store, parts: Parts, centroids: list[int], metrics: tuple[str, ...]) -> None:
    """Patches and, if its weights are there, EfficientNet-Lite0; once also averaged with those of the mirror images."""
    images: list[tuple[Pixels, np.ndarray]] = [(pixels, np.arange(len(pixels))) for pixels, _ in parts]
    both = images + [(np.ascontiguousarray(pixels[:, :, ::-1]), rows) for pixels, rows in images]
    network = pretrained("auto", (3, *parts[0][0].shape[1:3]))
    kinds: dict[str, Any] = {
        f"patches, {number}": lambda shown, number=number: patch_features(shown, number, 0) for number in centroids
    }
    if network is not None:
        kinds["pretrained"] = lambda shown: network.features(shown, torch.device("cpu"), float("inf"))
    for kind, features in kinds.items():
        for name, shown in ((kind, images), (f"{kind}, mirrored", both)):
            if not store.has(name=name):
                begun = time.process_time()
                values, facts = features(shown)
                minutes = round((time.process_time() - begun) / 60, 2)
                means = [sum(values[part :: len(parts)]) / (len(shown) / len(parts)) for part in range(len(parts))]
                found = measured(means, parts, metrics)
                store.add(found, name=name, feature=facts["feature"], step=0, seed=0, minutes=minutes)


def measure_run(
    store: Store, parts: Parts, name: str, run: Path, feature: FeatureName, every: int, metrics: tuple[str, ...]
) -> None:
    kept = list(checkpoints(run))
    for step, minutes in kept[::-every]:
        if not store.has(name=name, feature=feature, step=step):
            with only(run, step) as folder:
                model = sao.load(folder)
                values = [model.embed(pixels, feature=feature) for pixels, _ in parts]
            found = measured(values, parts, metrics)
            store.add(found, name=name, feature=feature, step=step, seed=model.config.seed, minutes=round(minutes, 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("runs", nargs="*", metavar="NAME=RUN")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--feature", choices=get_args(FeatureName), default="layers")
    parser.add_argument("--patches", default="", help="numbers of centroids; with them a pretrained network too")
    parser.add_argument("--metrics", default=",".join(METRICS))
    parser.add_argument("--every", type=int, default=1, help="of so many checkpoints one, from the last on")
    asked = parser.parse_args()
    store, metrics = Store(asked.out, asked.data.stem), tuple(asked.metrics.split(","))
    parts = parts_of(asked.data)
    if asked.patches:
        measure_baselines(store, parts, [int(number) for number in asked.patches.split(",")], metrics)
    for name, _, run in (run.partition("=") for run in asked.runs):
        measure_run(store, parts, name, Path(run), asked.feature, asked.every, metrics)
    draw([row for row in store.rows if row["data"] == store.data], asked.out / "curves.svg")


if __name__ == "__main__":
    main()
