"""A run as a small folder for others: EMA weights only, no path of this machine, and a card that says what it is."""

import json
import os
from pathlib import Path
from typing import Any

from sao import __version__
from sao import config as configuration
from sao.config import Config, Data, Train, load_preset, outside
from sao.config.presets import preset_names
from sao.data.named import NAMES
from sao.errors import InputError, typed
from sao.evaluation.result import read_json, read_summary
from sao.methods import Use
from sao.runtime.files import write_text
from sao.training import checkpoint
from sao.training.model import Model
from sao.training.partial_method import PartialMethod
from sao.training.run_folder import CONFIG, FACTS, FORMAT, MARK, DataFacts, Run

CARD = "README.md"
SHOWN = ("kmeans", "kmeans_best", "manifold", "manifold_nmi", "manifold_ari", "svm", "knn1", "knn5")
DATA = {
    "digits": "the 1,797 digits inside scikit-learn (UCI, Optical Recognition of Handwritten Digits; CC BY 4.0)",
    "mnist": "MNIST, handwritten digits (LeCun, Cortes, Burges; CC BY-SA 3.0)",
    "fashion_mnist": "Fashion-MNIST, pictures of clothes (Zalando; MIT licence)",
    "cifar10": "CIFAR-10, photographs (Krizhevsky 2009; no licence is stated)",
    "cifar100": "CIFAR-100, photographs (Krizhevsky 2009; no licence is stated)",
    "spirals": "two spirals, made by sao",
}


def shared_config(config: Config, name: str) -> Config:
    """Without what is true of one machine only: where data lies, threads, device."""
    source = config.data.source if config.data.source in NAMES else name
    data = config.data.model_copy(update={"source": source, "folder": Data().folder, "label_file": None})
    begun = config.train.start_from
    begun = Path(begun).name if os.path.isabs(begun) else begun
    train = config.train.model_copy(update={"threads": Train().threads, "device": Train().device, "start_from": begun})
    return config.model_copy(update={"data": data, "train": train})


def check_no_paths(config: Config) -> None:
    """A method that learnt from another run knows where that was."""
    for key, value in config.by_name().items():
        if isinstance(value, str) and os.path.isabs(value):
            raise InputError(f"the run's option {key} is a path of this machine, {value}: such a run cannot be given away")


def write_copy(
    folder: Path, partial: PartialMethod, config: Config, facts: DataFacts, step: int, half: bool, card: str
) -> list[Use]:
    """A folder that `sao.load` opens; returns what it can be used for."""
    kept: list[Use] = []
    names: set[str] = set()
    uses: list[Use] = ["backbone", "embedding"]
    if partial.outline is not None and partial.outline.has_layers:
        uses.append("layers")
    if config.method.generates:
        uses.append("decode")
    for use in uses:
        needed = partial.names_for(use)
        if needed is not None:
            kept.append(use)
            names |= needed
    if "backbone" not in kept:
        raise InputError(f"a {config.method.name} run needs more than its checkpoint holds, so it cannot be shipped")
    write_text(folder / MARK, json.dumps({"sao": __version__, "format": FORMAT, "copy": True}) + "\n")
    write_text(folder / FACTS, facts.as_text())
    configuration.save(config, folder / CONFIG)
    write_text(folder / CARD, card)
    checkpoint.save_some(folder / "checkpoints", checkpoint.some_tensors(partial.path, sorted(names)), step, kept, half)
    return kept


# --- the card ------------------------------------------------------------------------------------------------------------


def card_of(run: Run, model: Model, config: Config, licence: str) -> str:
    """Data, command, numbers and licence, in Markdown."""
    facts = model.facts
    shape = "x".join(map(str, facts.shape))
    lines = [
        f"# {config.method.name} on {facts.name}, {shape}",
        "",
        f"Written by `sao ship` (sao {__version__}): the EMA weights after step {model.step}, for embedding, "
        "clustering and sampling. It cannot be trained further.",
        "",
        f"- data: {DATA.get(config.data.source, facts.name)}; {facts.samples} training samples of {shape}, labels not seen",
        f"- command: `{command_of(config)}`",
        f"- licence of the weights: {licence}",
        *(f"- needs: {line}" for line in needs(config)),
        "",
    ]
    return "\n".join([*lines, *_numbers(run, model.step)]) + "\n"


def needs(config: Config) -> list[str]:
    """What whoever gets the copy must have beside it: code from outside the package is not copied."""
    found = []
    for kind, record in outside.records(config).items():
        what = f"{kind} {getattr(config, kind).name}"
        if kind == "data":
            continue  # only training reads it
        if "package" in record:
            found.append(f"{what} of the package {record['package']}")
        elif "file" in record:
            found.append(
                f"{record['file']} (class {record['name']}, sha256 {record['sha256']}) for {what}: give the file along; "
                f"commands take it as --code {record['file']}"
            )
        else:
            found.append(f"the class {record['name']} for {what}, which was in no file")
    return found


def command_of(config: Config) -> str:
    """What to type for this configuration: the preset that is nearest to it, and the options that differ."""
    own = _comparable(config)
    found = []
    for name in preset_names():
        other = _comparable(load_preset(name))
        if any(own.get(kind) != other.get(kind) for kind in ("method.name", "encoder.name")):
            continue
        found.append((name, {key: own.get(key) for key in sorted(own | other) if own.get(key) != other.get(key)}))
    if not found:
        return typed("train", "--data", config.data.source, "--method", outside.origin_of(config.method) or config.method.name)
    name, changes = min(found, key=lambda one: len(one[1]))
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in changes.items()}
    words = [word for key, text in texts.items() for word in (f"--{key}", text)]
    return typed("train", name, *words)


def _comparable(config: Config) -> dict[str, Any]:
    """Options by their dotted names, but for what decides nothing that is learnt."""
    return {
        key: value
        for key, value in config.by_name().items()
        if not key.startswith("log.")
        and key not in ("data.folder", "train.threads", "train.device", "train.timeout_seconds", "train.start_weights")
    }


def _numbers(run: Run, step: int) -> list[str]:
    """Of the evaluation of this very step; of raw inputs too, where that was measured."""
    last = run.config.steps_for(run.facts.samples)
    file = run.evaluations / f"step-{step:08d}-backbone-ema.json"
    summary = run.evaluations / "summary.json"
    rows = read_json(file, run.folder) if file.exists() else read_summary(summary, step, last, run.folder)
    if not rows:
        return ["Not evaluated: `sao eval` of the run, before `sao ship`, fills in numbers."]
    found = {metric["name"]: metric for metric in rows if metric["value"] is not None}
    shown = [name for name in SHOWN if name in found]
    sides = {"learnt": "", "raw inputs": "raw/"}
    if not any(f"raw/{name}" in found for name in shown):
        del sides["raw inputs"]
    lines = [f"Measured on {_scored(found, shown)}:", "", f"| metric | {' | '.join(sides)} |", "|---" * (1 + len(sides)) + "|"]
    for name in shown:
        values = [found.get(f"{prefix}{name}") for prefix in sides.values()]
        lines.append(f"| {name} | {' | '.join('–' if one is None else format(one['value'], '.3f') for one in values)} |")
    if "manifold" in shown:  # there are two kinds of it
        lines += ["", f"manifold: {found['manifold']['protocol']['algorithm']}."]
    return lines


def _scored(found: dict[str, dict], shown: list[str]) -> str:
    protocol = found[shown[0]]["protocol"] if shown else {}
    return f"{protocol.get('n_test', 'the')} held-out samples, evaluation seed {protocol.get('seed', 0)}"
