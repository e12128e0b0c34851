"""Which settings matter at small scale: one changed at a time, everything else as in the preset.

python benchmarks/settings.py --out DIR [--preset fashion16] [--data mnist] [--folder DATA] [--steps 300] [--seeds 0] [--jobs 2]
    [--only preset,batch] [--try "wide: method.generator.width 128, train.steps 200"] [--hold-back] [--manifold]

--try changes options by hand, several at a time; it can be given again, and then no other settings are tried unless --only
names them. --hold-back trains on five sixths of the training set and judges on the rest, a validation set, so that settings
are not chosen on the test set. --manifold judges clusters along the manifold too (UMAP). A change of the batch keeps the
number of images.

Runs are ordinary run folders in --out: a killed study goes on where it was. The table is printed after each of them, and
what was measured is kept in --out/settings.jsonl.
"""

import argparse
import json
import re
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sao.cli.reproduce import seeds_in
from sao.config import Config, load_preset
from sao.data.dataset import Dataset, Samples
from sao.errors import InputError
from sao.evaluation import Features, evaluate
from sao.evaluation.extract import extract
from sao.methods import Method, structural
from sao.reproduce.pool import check_folder, run_each
from sao.reproduce.study import within_training_set
from sao.runtime.processor import keep_freed_memory
from sao.training.loop import Diverged
from sao.training.run_data import open_config_data
from sao.training.trainer import train_run

METRICS = ("kmeans", "kmeans_best", "nmi", "svm", "knn1")
MANIFOLD = ("manifold", "manifold_nmi")
HELD_BACK = 1 / 6
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
        "ema_decay": [("0.9", {"method.ema_decay": 0.9}), ("0.999", {"method.ema_decay": 0.999})],
        "batch": [
            (f"{size}, steps {steps}", {"train.batch": size, "train.steps": steps})
            for size, steps in ((batch // 2, 2 * preset.train.steps), (2 * batch, preset.train.steps // 2))
        ],
        "embedding": [(f"p = {size}", {"method.embedding_size": size}) for size in (embedding // 2, 2 * embedding)],
        "learning rate": [(f"{share:g} times", {**one}) for share, one in zip((0.3, 2), rates, strict=True)],
        "generator": [(f"width {size}", {"method.generator.width": size}) for size in (width // 2, 2 * width)],
        "smoothness": [
            *((f"every {every}", {"method.smooth_every": every}) for every in (1, 2, 4) if every != method.smooth_every),
            ("twice the weight", {"method.smoothness_weight": 2 * method.smoothness_weight}),
            ("none", {"method.smoothness_weight": 0}),
        ],
        "lipschitz": [(f"{share:g} times", {"method.lipschitz": share * method.lipschitz}) for share in (0.5, 2)],
        "clustering": [("twice", {"method.cluster_weight": 2 * method.cluster_weight})],
        "G's rate": [("twice", {"method.generator_optimiser.learning_rate": 2 * rate})],
        "augmentation": [
            ("flips", {"method.augmentation.flip": True}),
            ("flips on both sides", {"method.augmentation.flip": True, "method.augment_generated": True}),
            ("crops on both sides", {"method.augmentation.crop": 0.7, "method.augment_generated": True}),
        ],
        "patch": [(f"{side}", {"encoder.patch": side}) for side in (1, 2) if side != getattr(preset.encoder, "patch", side)],
        "passes": [("one" if not method.one_pass else "two", {"method.one_pass": not method.one_pass})],
        "schedule": [(other, {"train.schedule": other}) for other in {"constant", "cosine"} - {preset.train.schedule}],
    }


@dataclass(frozen=True)
class Trial:
    setting: str
    value: str
    config: Config
    folder: Path
    hold_back: bool
    manifold: bool


def trials(options: argparse.Namespace) -> Iterator[Trial]:
    asked = {"data.folder": options.folder, "data.source": options.data, "train.schedule": options.schedule}
    fixed = {"train.steps": options.steps, "train.threads": 1} | {name: value for name, value in asked.items() if value}
    preset = load_preset(options.preset, {name: str(value) for name, value in fixed.items()})
    settings, tried = varied(preset), [by_hand(text) for text in options.tried]
    chosen = options.only.split(",") if options.only else list(settings) if not tried else []
    settings["tried"] = tried
    for setting in [*chosen, "tried"]:
        if setting not in settings:
            raise InputError(f"there is no setting {setting!r}; there are {', '.join(settings)}")
        for value, changes in settings[setting]:
            for seed in seeds_in(options.seeds):
                said = {name: str(given) for name, given in {**fixed, **changes, "seed": seed}.items()}
                config = load_preset(options.preset, said)
                assert not changes or config != preset.model_copy(update={"seed": seed}), f"{setting}: {value} is no change"
                name = f"{setting}-{value}-seed{seed}".replace(" ", "_").replace(",", "")
                yield Trial(setting, value, config, options.out / name, options.hold_back, options.manifold)


def asked(trial: Trial) -> dict[str, Any]:
    """What a result depends on: one that was kept is of a trial only if all of it is the same."""
    config = trial.config.model_dump(mode="json")
    return {"run": trial.folder.name, "hold_back": trial.hold_back, "manifold": trial.manifold, "config": config}


def by_hand(text: str) -> tuple[str, dict[str, Any]]:
    """A name, and the options it stands for: "wide: method.generator.width 128, train.steps 200"."""
    name, colon, changes = text.partition(":")
    pairs = [tuple(change.split(maxsplit=1)) for change in re.split(r",(?![^\[]*\])", changes)]  # not inside a list
    if not colon or not name.strip() or any(len(pair) != 2 for pair in pairs):
        raise InputError(f'--try takes "NAME: option value, option value", got {text!r}')
    return name.strip(), {option: value.strip() for option, value in pairs}


def finish(trial: Trial) -> dict[str, float]:
    warnings.simplefilter("ignore")  # a bank near the size of the data set
    dataset = open_config_data(trial.config).dataset
    if trial.hold_back:
        dataset = within_training_set(dataset, HELD_BACK)
    names = (*METRICS, *(MANIFOLD if trial.manifold else ()))
    started = time.process_time()
    try:
        method = train_run(trial.folder, trial.config, dataset)
    except Diverged:
        return dict.fromkeys((*names, "minutes"), float("nan"))
    minutes = (time.process_time() - started) / 60  # of the processor, with the evaluations on the way
    return {**judged(method, dataset, names, trial.config.seed), "minutes": minutes}


def judged(method: Method, dataset: Dataset, names: Sequence[str], seed: int) -> dict[str, float]:
    """The metrics by name, of the test set; classifiers are fitted to the training set."""

    def features(split: str, samples: Samples) -> Features:
        samples = samples.select(np.arange(min(ENOUGH, len(samples))))
        return Features(extract(method.features, samples, torch.device("cpu")), samples.labels, {"split": split})

    parts = features("train", dataset.train), features("test", dataset.test)
    by_name = {metric.name: metric.value for metric in evaluate(*parts, names, seed=seed, manifold="umap")}
    return {name: by_name[name] for name in names}


def table(found: dict[tuple[str, str], list[dict[str, float]]]) -> str:
    names = list(next(iter(found.values()))[0])
    lines = ["| setting | value | " + " | ".join(names) + " | seeds |", "|---" * (3 + len(names)) + "|"]
    for (setting, value), results in found.items():
        shown = []
        for metric in names:
            values = [result[metric] for result in results]
            spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
            shown.append(f"{np.mean(values):.3f}{spread}")
        lines.append(f"| {setting} | {value} | {' | '.join(shown)} | {len(results)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--preset", default="fashion16")
    parser.add_argument("--data", help="another data set than the preset's")
    parser.add_argument("--folder", type=Path, help="where the data set's files are")
    parser.add_argument("--schedule", choices=("constant", "cosine"), help="of the learning rates (default: the preset's)")
    parser.add_argument("--try", dest="tried", action="append", default=[], help="a name and options: 'wide: method.bank 512'")
    parser.add_argument("--hold-back", action="store_true", help="judge on a validation set, kept out of training")
    parser.add_argument("--manifold", action="store_true", help="judge clusters along the manifold too")
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
    options.out.mkdir(parents=True, exist_ok=True)
    kept = options.out / "settings.jsonl"
    rows = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()] if kept.exists() else []
    done = {trial.folder.name: row["found"] for trial in everything for row in rows if row["asked"] == asked(trial)}
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for trial in everything:
        if trial.folder.name in done:
            found.setdefault((trial.setting, trial.value), []).append(done[trial.folder.name])
    if found:
        print(table(found), end="\n\n", flush=True)
    left = [trial for trial in everything if trial.folder.name not in done]
    for trial, result in run_each(finish, left, options.jobs):
        found.setdefault((trial.setting, trial.value), []).append(result)
        with kept.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"asked": asked(trial), "found": result}) + "\n")
        print(table(found), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
