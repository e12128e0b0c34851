"""What an encoder learnt without labels is worth where there are few: fine-tuned, against the same network from scratch.

python benchmarks/fine_tuning.py RUN DATA.npz [--labels 100,500,2000] [--seeds 0,1] [--test 2000] [--bfloat16]

Both arms are plain torch on what `sao export RUN -o FOLDER` writes: the encoder, a linear layer, AdamW, a cosine schedule, no
augmentation. From scratch the network begins as the run began, and gets twice the steps. Each arm takes the learning rate of
RATES that is best on validation images, with the number of labels in the middle. A frozen encoder with a logistic regression
stands beside them. RUN must not have seen the test images of DATA.npz (x_train, y_train, x_test, y_test).
"""

import argparse
import contextlib
import copy
import platform
import runpy
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.nn import functional as F

import sao
from sao.export import whole_encoder, write
from sao.runtime.machine import processor_name
from sao.training.model import Model

RATES = (1e-4, 3e-4, 1e-3, 3e-3)
BATCH = 32
SCRATCH = 2  # steps from scratch for each step of fine-tuning
VALIDATION = 1000  # images of the training set, for the learning rates alone


@dataclass(frozen=True)
class Labelled:
    images: np.ndarray
    labels: np.ndarray

    def rows(self, rows: np.ndarray) -> "Labelled":
        return Labelled(self.images[rows], self.labels[rows])


def steps_for(labels: int) -> int:
    """60, 130 and 240 for 100, 500 and 2,000 labels: twice for about four times as many."""
    return max(2, round(60 * (labels / 100) ** 0.46 / 10) * 10)


def exported(model: Model, images: np.ndarray, folder: Path) -> nn.Module:
    """The encoder as plain torch, by the file that `sao export` writes."""
    write(folder, whole_encoder(model), images, "An encoder.")
    return runpy.run_path(str(folder / "encoder.py"))["load"]()


def trained(encoder: nn.Module, data: Labelled, classes: int, steps: int, rate: float, seed: int, bfloat16: bool) -> nn.Module:
    """The encoder with a linear layer behind it, trained on these labels."""
    torch.manual_seed(seed)
    network = nn.Sequential(encoder, nn.Linear(int(encoder.num_features), classes))  # pyright: ignore[reportArgumentType]
    optimiser = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    images, labels, draws = torch.from_numpy(data.images), torch.from_numpy(data.labels), np.random.default_rng(seed)
    order = np.concatenate([draws.permutation(len(labels)) for _ in range(-(-steps * BATCH // len(labels)))])
    for rows in order[: steps * BATCH].reshape(steps, BATCH):
        with precision(bfloat16):
            scores = network(images[rows])
        optimiser.zero_grad()
        F.cross_entropy(scores.float(), labels[rows]).backward()
        optimiser.step()
        schedule.step()
    return network


def precision(bfloat16: bool) -> contextlib.AbstractContextManager:
    return torch.autocast("cpu", torch.bfloat16) if bfloat16 else contextlib.nullcontext()


@torch.no_grad()
def accuracy(network: nn.Module, data: Labelled, bfloat16: bool) -> float:
    with precision(bfloat16):
        scores = torch.cat([network(part).float() for part in torch.from_numpy(data.images).split(250)])
    return float((scores.argmax(1) == torch.from_numpy(data.labels)).float().mean())


def balanced(labels: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Rows of so many samples, as many of each class as of any other."""
    draws, classes = np.random.default_rng(seed), np.unique(labels)
    each = -(-count // len(classes))
    rows = np.concatenate([draws.choice(np.flatnonzero(labels == one), each, replace=False) for one in classes])
    return draws.permutation(rows)[:count]


class Measurement:
    def __init__(self, run: str, train: Labelled, test: Labelled, bfloat16: bool, place: Path) -> None:
        model = sao.load(run, device="cpu")
        self.model, self.bfloat16, self.test = model, bfloat16, test
        self.classes = int(train.labels.max()) + 1
        held = np.random.default_rng(0).permutation(len(train.labels))
        self.validation, self.train = train.rows(held[:VALIDATION]), train.rows(held[VALIDATION:])
        before = Model(model.config, model.facts, model.untrained(), 0)
        sources = {"fine-tuned": model, "from scratch": before}
        self.encoders = {name: exported(one, self.train.images[:8], place / name) for name, one in sources.items()}
        self.test_features = model.embed(test.images)

    def arm(self, name: str, data: Labelled, steps: int, rate: float, seed: int) -> nn.Module:
        """A fresh copy of the encoder, trained."""
        encoder = copy.deepcopy(self.encoders[name])
        steps = steps * (1 if name == "fine-tuned" else SCRATCH)
        return trained(encoder, data, self.classes, steps, rate, seed, self.bfloat16)

    def best_rate(self, name: str, labels: int) -> float:
        data = self.train.rows(balanced(self.train.labels, labels, seed=1000))
        found = {r: accuracy(self.arm(name, data, steps_for(labels) // 2, r, 0), self.validation, self.bfloat16) for r in RATES}
        said = ", ".join(f"{rate:g}: {value:.3f}" for rate, value in found.items())
        print(f"{name}: validation accuracy by learning rate {said}", flush=True)
        return max(found, key=found.__getitem__)

    def frozen(self, data: Labelled) -> float:
        classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        classifier.fit(self.model.embed(data.images), data.labels)
        return float(classifier.score(self.test_features, self.test.labels))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("data")
    parser.add_argument("--labels", default="100,500,2000")
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--test", type=int, default=2000, help="images of the test set that are scored")
    parser.add_argument("--bfloat16", action="store_true", help="train by autocast in bfloat16")
    given = parser.parse_args(arguments)
    counts, seeds = ([int(word) for word in text.split(",")] for text in (given.labels, given.seeds))
    torch.set_num_threads(1)
    with np.load(given.data) as file:
        train, test = (Labelled(file[f"x_{part}"], file[f"y_{part}"].astype(np.int64)) for part in ("train", "test"))
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    print(f"{time.strftime('%Y-%m-%d')}, {processor_name()}, one thread, {versions}")
    with tempfile.TemporaryDirectory() as place:
        scored = test.rows(np.arange(min(given.test, len(test.labels))))
        measured = Measurement(given.run, train, scored, given.bfloat16, Path(place))
        rates = {name: measured.best_rate(name, sorted(counts)[len(counts) // 2]) for name in ("fine-tuned", "from scratch")}
        titles = ["labels", "fine-tuned", "from scratch", "gain, points", "frozen, logistic regression", "steps"]
        print(f"\n| {' | '.join(titles)} |\n{'|---' * len(titles)}|")
        for count in counts:
            rows = []
            for seed in seeds:
                data = measured.train.rows(balanced(measured.train.labels, count, seed))
                arms = [measured.arm(name, data, steps_for(count), rate, seed) for name, rate in rates.items()]
                rows.append([*(accuracy(arm, measured.test, given.bfloat16) for arm in arms), measured.frozen(data)])
            tuned, scratch, frozen = np.array(rows).T
            shown = [" ".join(f"{value:.3f}" for value in values) for values in (tuned, scratch, frozen)]
            gain = 100 * float((tuned - scratch).mean())
            steps = steps_for(count)
            print(f"| {count} | {shown[0]} | {shown[1]} | {gain:+.1f} | {shown[2]} | {steps}, {SCRATCH * steps} |", flush=True)
    print(f"\nprocessor time {time.process_time() / 60:.1f} minutes")


if __name__ == "__main__":
    main()
