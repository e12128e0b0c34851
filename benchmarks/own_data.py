"""Data that no preset knows, trained with what --auto chooses, beside raw inputs, their PCA and the untrained network.

python benchmarks/own_data.py --npz data/cifar10.npz [--images 5000] [--size 16] [--steps 500] [--seeds 3] [--only photographs]

Photographs: CIFAR-10 written out as JPEG in class folders and given to `sao train --data` and nothing else but an image size
that a processor can train in minutes. Tables: wine, breast cancer and the digits as vectors, of scikit-learn,
given to the estimator.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from sklearn import datasets

import sao
from sao.data.dataset import Dataset, Images, Samples, Vectors
from sao.data.files.open import open_path
from sao.data.split import held_out_rows
from sao.evaluation import Features, Verdict, judge
from sao.evaluation.extract import extract, raw_inputs
from sao.methods import Method
from sao.training.model import Model

TABLES = ("wine", "breast_cancer", "digits")
HELD_OUT = 0.3
SHOWN = ("kmeans", "svm", "knn1")
ROWS = {"": "learnt features", "raw/": "raw inputs", "pca/": "PCA", "untrained/": "untrained network"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--npz", type=Path, help="CIFAR-10 as x_train and y_train")
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--steps", type=int, help="for the photographs, instead of what --auto chooses")
    parser.add_argument("--seeds", type=int, default=3, help="for the tables")
    parser.add_argument("--only", choices=("photographs", *TABLES))
    options = parser.parse_args()
    for table in TABLES:
        if options.only in (None, table):
            report(table, [judged_table(table, seed) for seed in range(options.seeds)])
    if options.only in (None, "photographs"):
        if options.npz is None:
            parser.error("the photographs need --npz")
        with tempfile.TemporaryDirectory() as temporary:
            report("photographs", [judged_photographs(Path(temporary), options)])


def judged_photographs(folder: Path, options: argparse.Namespace) -> Verdict:
    """One run of the command line on a folder of JPEGs, judged on another folder of as many."""
    pictures, others, run = folder / "photographs", folder / "others", folder / "run"
    with np.load(options.npz, allow_pickle=False) as arrays:
        write_photographs(pictures, arrays["x_train"][: options.images], arrays["y_train"][: options.images])
        write_photographs(others, arrays["x_test"][: options.images], arrays["y_test"][: options.images])
    command = ["train", "--data", str(pictures), "--out", str(run), "--data.size", str(options.size)]
    steps = [] if options.steps is None else ["--train.steps", str(options.steps)]
    started = time.monotonic()
    subprocess.run([sys.executable, "-m", "sao", *command, *steps], check=True)
    print(f"sao train took {time.monotonic() - started:.0f} s", flush=True)
    model = sao.load(run)
    train, test = (open_path(place, size=options.size).dataset for place in (pictures, others))
    return judged(model, model.method, train.train, together(test), seed=0, components=None)


def write_photographs(folder: Path, images: np.ndarray, labels: np.ndarray) -> None:
    for index, (image, label) in enumerate(zip(images, labels.reshape(-1), strict=True)):
        place = folder / f"class{label}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{index:05d}.jpg", quality=95)


def together(dataset: Dataset) -> Images:
    """Both parts: none of these images was trained on."""
    pixels, labels = [], []
    for part in (dataset.train, dataset.test):
        assert isinstance(part, Images)
        assert part.labels is not None
        pixels.append(part.pixels)
        labels.append(part.labels)
    return Images(np.concatenate(pixels), np.concatenate(labels))


def judged_table(name: str, seed: int) -> Verdict:
    values, labels = getattr(datasets, f"load_{name}")(return_X_y=True)
    train, test = held_out_rows(len(values), labels, HELD_OUT, seed)
    started = time.monotonic()
    estimator = sao.StructuralEmbedding(len(np.unique(labels)), random_state=seed).fit(values[train])
    print(f"{name}, seed {seed}: {estimator.n_steps_} steps in {time.monotonic() - started:.0f} s", flush=True)
    for note in estimator.notes_ if seed == 0 else []:
        print(note)
    parts = [Vectors(_rows(estimator.model_, values[rows]), labels[rows]) for rows in (train, test)]
    return judged(estimator.model_, estimator.model_.method, *parts, seed=seed, components=max(2, values.shape[1] // 2))


def _rows(model: Model, values: np.ndarray) -> np.ndarray:
    samples = model.samples(values)
    assert isinstance(samples, Vectors)
    return samples.rows


def judged(model: Model, learnt: Method, train: Samples, test: Samples, seed: int, components: int | None) -> Verdict:
    untrained = model.config.build_method(model.facts.shape, model.facts.samples, model.facts.classes).to(model.device).eval()

    def features(method: Method) -> tuple[np.ndarray, np.ndarray]:
        return extract(method.features, train, model.device), extract(method.features, test, model.device)

    train_features, test_features = (
        Features(values, part.labels, {"split": split})
        for values, part, split in zip(features(learnt), (train, test), ("train", "test"), strict=True)
    )
    raw = raw_inputs(train), raw_inputs(test)
    return judge(train_features, test_features, raw, features(untrained), seed=seed, components=components)


def report(name: str, verdicts: list[Verdict]) -> None:
    """Mean (and spread) over the seeds as a Markdown table, then each seed's verdict."""
    found: list[dict[str, Any]] = [{metric.name: metric for metric in verdict.metrics} for verdict in verdicts]
    first = found[0]["svm"].protocol
    print(f"\n{name}: {first['n_train']} training and {first['n_test']} held-out samples, {len(verdicts)} seeds\n")
    print(f"| | {' | '.join(SHOWN)} |\n|---|{'---|' * len(SHOWN)}")
    for prefix, row in ROWS.items():
        cells = []
        for metric in SHOWN:
            values = [metrics[prefix + metric].value for metrics in found]
            cells.append(f"{np.mean(values):.3f}" + (f" ± {np.std(values):.3f}" if len(values) > 1 else ""))
        print(f"| {row} | {' | '.join(cells)} |")
    for seed, verdict in enumerate(verdicts):
        print(f"\nseed {seed}: {verdict.sentence}")
    print(flush=True)


if __name__ == "__main__":
    main()
