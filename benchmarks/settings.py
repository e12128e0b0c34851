"""Which settings matter at small scale: one changed at a time, everything else as in the preset.

python benchmarks/settings.py --out DIR [--preset fashion16] [--folder DATA] [--steps 300] [--seeds 0] [--jobs 2]
    [--only preset,batch]

Runs are ordinary run folders in --out: a killed study goes on where it was. The table is printed after each of them.
"""

import argparse
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sao.cli import keep_freed_memory
from sao.commands.reproduce import seeds_in
from sao.commands.training import open_config_data
from sao.config import Config, load_preset
from sao.data.samples import Samples
from sao.engine.features import extract
from sao.engine.loop import Diverged
from sao.errors import InputError
from sao.evaluation import Features, evaluate
from sao.methods import structural
from sao.reproduce.pool import run_each
from sao.reproduce.runs import check_folder, train_run

METRICS = ("kmeans", "svm", "knn1")
ENOUGH = 10_000  # samples for the evaluator, from each split


def varied(preset: Config) -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """Settings, and of each the values that the preset does not have."""
    method, batch = preset.method, preset.train.batch
    if not isinstance(method, structural.Options):
        raise InputError("the settings are those of the structural method: give a preset of it")
    width, embedding, rate = method.generator.width, method.embedding_size, method.discriminator_optimiser.learning_rate
    players = ("discriminator", "generator")
    rates = [{f"method.{player}_optimiser.learning_rate": share * rate for player in players} for share in (0.3, 2)]
    return {
        "preset": [("as it is", {})],
        "distance": [("Bhattacharyya", {"method.distance": "bhattacharyya"})],
        "covariance": [("diagonal", {"method.covariance": "diagonal"})],
        "norm": [("ceiling", {"method.norm_side": "ceiling"}), ("free", {"method.norm_weight": 0})],
        "neighbours": [("K = 5", {"method.neighbours": 5}), ("none", {"method.cluster_weight": 0})],
        "bank": [(f"{size:,}", {"method.bank": size}) for size in (method.bank // 4, 4 * method.bank)],
        "average": [("0.9", {"method.average": 0.9}), ("0.999", {"method.average": 0.999})],
        "batch": [(f"{size}", {"train.batch": size}) for size in (batch // 2, 2 * batch)],
        "embedding": [(f"p = {size}", {"method.embedding_size": size}) for size in (embedding // 2, 2 * embedding)],
        "learning rate": [(f"{share:g} times", {**one}) for share, one in zip((0.3, 2), rates, strict=True)],
        "generator": [(f"width {size}", {"method.generator.width": size}) for size in (width // 2, 2 * width)],
        "smoothness": [("every 4th step", {"method.smooth_every": 4}), ("none", {"method.smoothness_weight": 0})],
    }


@dataclass(frozen=True)
class Trial:
    setting: str
    value: str
    config: Config
    folder: Path


def trials(options: argparse.Namespace) -> Iterator[Trial]:
    fixed = {"train.steps": options.steps, "train.threads": 1} | ({"data.folder": options.folder} if options.folder else {})
    preset = load_preset(options.preset, {name: str(value) for name, value in fixed.items()})
    settings = varied(preset)
    for setting in options.only.split(",") if options.only else settings:
        if setting not in settings:
            raise InputError(f"there is no setting {setting!r}; there are {', '.join(settings)}")
        for value, changes in settings[setting]:
            for seed in seeds_in(options.seeds):
                said = {name: str(given) for name, given in {**fixed, **changes, "seed": seed}.items()}
                config = load_preset(options.preset, said)
                assert not changes or config != preset.model_copy(update={"seed": seed}), f"{setting}: {value} is no change"
                name = f"{setting}-{value}-seed{seed}".replace(" ", "_").replace(",", "")
                yield Trial(setting, value, config, options.out / name)


def finish(trial: Trial) -> dict[str, float]:
    warnings.simplefilter("ignore")  # a bank near the size of the data set
    dataset = open_config_data(trial.config).dataset
    try:
        method = train_run(trial.folder, trial.config, dataset)
    except Diverged:
        return dict.fromkeys(METRICS, float("nan"))

    def features(split: str, samples: Samples) -> Features:
        samples = samples.select(np.arange(min(ENOUGH, len(samples))))
        return Features(extract(method.features, samples, torch.device("cpu")), samples.labels, {"split": split})

    found = evaluate(features("train", dataset.train), features("test", dataset.test), METRICS, seed=trial.config.seed)
    by_name = {metric.name: metric.value for metric in found}
    return {name: by_name[name] for name in METRICS}


def table(found: dict[tuple[str, str], list[dict[str, float]]]) -> str:
    lines = ["| setting | value | " + " | ".join(METRICS) + " | seeds |", "|---" * (3 + len(METRICS)) + "|"]
    for (setting, value), results in found.items():
        cells = []
        for metric in METRICS:
            values = [result[metric] for result in results]
            spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
            cells.append(f"{np.mean(values):.3f}{spread}")
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
    parser.add_argument("--only", help="settings with commas between them, for example preset,batch")
    options = parser.parse_args()
    keep_freed_memory()
    try:
        study(options)
    except InputError as error:
        raise SystemExit(f"settings: {error}") from None


def study(options: argparse.Namespace) -> None:
    everything = list(trials(options))
    for trial in everything:
        check_folder(trial.folder, trial.config)
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for trial, result in run_each(finish, everything, options.jobs):
        found.setdefault((trial.setting, trial.value), []).append(result)
        print(table(found), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
