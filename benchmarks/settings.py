"""Which settings matter at small scale: one changed at a time, everything else as in the preset.

python benchmarks/settings.py --out DIR [--preset fashion16] [--folder DATA] [--steps 300] [--seeds 0] [--jobs 2] [--only batch]

Runs are ordinary run folders in --out: a killed study goes on where it was. The table is printed after each of them.
"""

import argparse
import statistics
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sao.cli import keep_freed_memory
from sao.commands.training import open_config_data
from sao.config import Config, load_preset
from sao.data.samples import Samples
from sao.engine.features import extract
from sao.engine.loop import Diverged
from sao.evaluation import Features, evaluate
from sao.reproduce.pool import work_through
from sao.reproduce.runs import check_folder, train_run

METRICS = ("kmeans", "svm", "knn1")
ENOUGH = 10_000  # samples for the evaluator, from each split
VARIED: dict[str, list[tuple[str, dict[str, str]]]] = {
    "preset": [("as it is", {})],
    "distance": [("Bhattacharyya", {"objective.distance": "bhattacharyya"})],
    "covariance": [("diagonal", {"objective.covariance": "diagonal"})],
    "norm": [("ceiling", {"objective.norm_side": "ceiling"}), ("free", {"objective.norm_weight": "0"})],
    "neighbours": [("K = 1", {"objective.neighbours": "1"}), ("none", {"objective.cluster_weight": "0"})],
    "bank": [("1,024", {"objective.bank": "1024"}), ("16,384", {"objective.bank": "16384"})],
    "average": [("0.9", {"train.ema": "0.9"}), ("0.999", {"train.ema": "0.999"})],
    "batch": [("64, half the samples", {"train.batch": "64"}), ("256, twice the samples", {"train.batch": "256"})],
    "embedding": [("p = 32", {"discriminator.embedding_size": "32"}), ("p = 128", {"discriminator.embedding_size": "128"})],
    "learning rate": [("both 3e-4", {"both": "3e-4"}), ("both 2e-3", {"both": "2e-3"})],
    "generator": [("half as wide", {"generator.width": "16"}), ("twice as wide", {"generator.width": "64"})],
    "smoothness": [("every 4th step", {"objective.smooth_every": "4"}), ("none", {"objective.smoothness_weight": "0"})],
}


@dataclass(frozen=True)
class Trial:
    setting: str
    value: str
    config: Config
    folder: Path


def trials(options: argparse.Namespace) -> Iterator[Trial]:
    for setting, values in VARIED.items():
        if options.only not in (None, setting):
            continue
        for value, changes in values:
            for seed in map(int, options.seeds.split(",")):
                said = dict(changes)
                if "both" in said:
                    rate = said.pop("both")
                    said |= {"train.discriminator.learning_rate": rate, "train.generator.learning_rate": rate}
                fixed = {"train.steps": str(options.steps), "train.threads": "1", "seed": str(seed)}
                fixed |= {"data.folder": str(options.folder)} if options.folder else {}
                name = f"{setting}-{value}-seed{seed}".replace(" ", "_").replace(",", "")
                yield Trial(setting, value, load_preset(options.preset, {**said, **fixed}), options.out / name)


def finish(trial: Trial) -> dict[str, float]:
    warnings.simplefilter("ignore")  # a bank near the size of the data set
    dataset = open_config_data(trial.config).dataset
    try:
        method = train_run(trial.folder, trial.config, dataset)
    except Diverged:
        return dict.fromkeys(METRICS, float("nan"))

    def features(split: str, samples: Samples) -> Features:
        samples = samples.select(np.arange(min(ENOUGH, len(samples))))
        return Features(extract(method.features, samples), samples.labels, {"split": split})

    found = evaluate(features("train", dataset.train), features("test", dataset.test), METRICS, seed=trial.config.seed)
    by_name = {metric.name: metric.value for metric in found}
    return {name: by_name[name] for name in METRICS}


def table(found: dict[tuple[str, str], list[dict[str, float]]]) -> str:
    lines = ["| setting | value | " + " | ".join(METRICS) + " | seeds |", "|---" * (3 + len(METRICS)) + "|"]
    for (setting, value), results in found.items():
        cells = []
        for metric in METRICS:
            values = [result[metric] for result in results]
            spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):.3f}{spread}")
        lines.append(f"| {setting} | {value} | {' | '.join(cells)} | {len(results)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--preset", default="fashion16")
    parser.add_argument("--folder", type=Path, help="where the data set's files are")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", choices=VARIED)
    options = parser.parse_args()
    keep_freed_memory()
    everything = list(trials(options))
    for trial in everything:
        check_folder(trial.folder, trial.config)
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for trial, result in work_through(finish, everything, options.jobs):
        found.setdefault((trial.setting, trial.value), []).append(result)
        print(table(found), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
