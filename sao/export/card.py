"""The model card of a copy: README.md with front matter for the Hugging Face Hub, then what people ask of a model."""

import json
from typing import Any

import yaml

from sao import __version__
from sao.config import Config, load_preset, outside
from sao.config.presets import preset_names
from sao.errors import printable, typed
from sao.evaluation.result import INTERVAL, read_json, read_summary
from sao.export.any_size import preparation
from sao.training.model import Model
from sao.training.run_folder import Run

# The metrics on a card, by their type on the Hub and what they are called there.
SHOWN = {
    "kmeans": ("accuracy", "k-means accuracy, mean of the restarts"),
    "kmeans_best": ("accuracy", "k-means accuracy, best restart by its objective"),
    "manifold": ("accuracy", "accuracy of clusters on a manifold"),
    "manifold_nmi": ("nmi", "NMI of clusters on a manifold"),
    "manifold_ari": ("ari", "ARI of clusters on a manifold"),
    "svm": ("accuracy", "linear SVM accuracy"),
    "knn1": ("accuracy", "1-nearest-neighbour accuracy"),
    "knn5": ("accuracy", "5-nearest-neighbour accuracy"),
}
# Of a metric's protocol, what decides its value.
TOLD = (
    "objective", "algorithm", "similarity", "vote", "normalisation", "C", "C_chosen_on", "k", "restarts", "chosen",
    "fitted_on", "matching", "split", "n_train", "n_test",
)  # fmt: skip
DATA = {
    "digits": "the 1,797 digits inside scikit-learn (UCI, Optical Recognition of Handwritten Digits; CC BY 4.0)",
    "mnist": "MNIST, handwritten digits (LeCun, Cortes, Burges; CC BY-SA 3.0)",
    "fashion_mnist": "Fashion-MNIST, pictures of clothes (Zalando; MIT licence)",
    "cifar10": "CIFAR-10, photographs (Krizhevsky 2009; no licence is stated)",
    "cifar100": "CIFAR-100, photographs (Krizhevsky 2009; no licence is stated)",
    "spirals": "two spirals, made by sao",
}
ON_THE_HUB = {
    "mnist": "ylecun/mnist",
    "fashion_mnist": "zalando-datasets/fashion_mnist",
    "cifar10": "uoft-cs/cifar10",
    "cifar100": "uoft-cs/cifar100",
}
# Those of the Hub's identifiers that people give weights away under; another licence is "other", with its name.
LICENCES = (
    "apache-2.0", "mit", "bsd-2-clause", "bsd-3-clause", "gpl-3.0", "lgpl-3.0", "agpl-3.0", "mpl-2.0", "unlicense",
    "cc0-1.0", "cc-by-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0", "cc-by-nc-4.0", "cc-by-nc-sa-4.0", "openrail",
)  # fmt: skip
NOT_STATED = "not stated"
TASK = "image-feature-extraction"


def card_of(run: Run, model: Model, config: Config, licence: str) -> str:
    """Front matter and sections, in Markdown."""
    metrics, images = _metrics(run, model.step), len(model.facts.shape) == 3
    title = f"{printable(config.method.name)} on {printable(model.facts.name)}, {_shape(model)}"
    front = yaml.safe_dump(_front_matter(model, config, licence, metrics, title), sort_keys=False, allow_unicode=True)
    given = "a folder of images, a list of pictures, or an array" if images else "a table, or an array (n, columns)"
    sections = {
        "Intended use": _intended_use(config, "images" if images else "rows"),
        "Training data": _training_data(model, config),
        "Training": _training(model, config),
        "Metrics": _table(metrics),
        "Limits": _limits(model),
        "How to load it": [
            "```python",
            "import sao",
            "",
            'model = sao.load("FOLDER")  # this folder; of the Hugging Face Hub: sao.load("hf:OWNER/NAME")',
            f"features = model.embed(data)  # {given}",
            "```",
        ],
        "Licence": [f"- licence of the weights: {printable(licence)}"],
    }
    lines = [
        f"# {title}",
        "",
        f"Written by `sao ship` (sao {__version__}): the EMA weights after step {model.step}, for embedding, "
        "clustering and sampling. It cannot be trained further.",
    ]
    for name, section in sections.items():
        lines += ["", f"## {name}", "", *section]
    return f"---\n{front}---\n\n" + "\n".join(lines) + "\n"


# --- front matter --------------------------------------------------------------------------------------------------------


def _front_matter(model: Model, config: Config, licence: str, metrics: dict[str, dict], title: str) -> dict[str, Any]:
    images = len(model.facts.shape) == 3
    found: dict[str, Any] = _licence(licence)
    found |= {"library_name": "sao", "pipeline_tag": TASK} if images else {"library_name": "sao"}
    found["tags"] = ["sao", "feature-extraction", printable(config.method.name)]
    if not _sees_labels(model):
        found["tags"].insert(2, "self-supervised-learning")
    if config.data.source in ON_THE_HUB:
        found["datasets"] = [ON_THE_HUB[config.data.source]]
    if metrics:
        found["model-index"] = [{"name": title, "results": [_result(model, config, metrics)]}]
    return found


def _licence(licence: str) -> dict[str, str]:
    if licence == NOT_STATED:
        return {}
    known = licence.lower()
    return {"license": known} if known in LICENCES else {"license": "other", "license_name": printable(licence)}


def _result(model: Model, config: Config, metrics: dict[str, dict]) -> dict[str, Any]:
    """One result of the Hub's model index: every metric is of the same data and the same frozen features."""
    name = printable(model.facts.name)
    split = next(iter(metrics.values()))["protocol"].get("split", "test")
    return {
        "task": {"type": TASK if len(model.facts.shape) == 3 else "feature-extraction", "name": "frozen features"},
        "dataset": {"type": ON_THE_HUB.get(config.data.source, name), "name": name, "split": split},
        "metrics": [
            {
                "type": SHOWN[metric][0],
                "name": SHOWN[metric][1],
                "value": round(row["value"], 4),
                "args": _told(row["protocol"]) | ({INTERVAL: list(ends)} if (ends := _interval(row)) else {}),
            }
            for metric, row in metrics.items()
            if "/" not in metric
        ],
    }


# --- sections ------------------------------------------------------------------------------------------------------------


def _shape(model: Model) -> str:
    return "x".join(map(str, model.facts.shape))


def _sees_labels(model: Model) -> bool:
    return model.method_for("backbone").needs_labels


def _intended_use(config: Config, kind: str) -> list[str]:
    lines = [
        f"Features of {kind} like those that it was trained on: to search, to cluster, to find duplicates and odd ones, and as "
        "input of a classifier that you fit to your own labels. It is no classifier by itself.",
    ]
    if config.method.generates:
        lines += ["", f"It also draws {kind}, to see what was learnt; they are not meant to pass for real ones."]
    return lines


def _training_data(model: Model, config: Config) -> list[str]:
    facts = model.facts
    labels = "with their labels" if _sees_labels(model) else "labels not seen"
    data = DATA.get(config.data.source, printable(facts.name))
    lines = [f"- data: {data}; {facts.samples} training samples of {_shape(model)}, {labels}"]
    if len(facts.shape) == 3:
        lines.append(f"- preparation of an image: {preparation(config, facts.shape)}")
    return lines


def _training(model: Model, config: Config) -> list[str]:
    encoder = "" if config.encoder is None else f", encoder {printable(config.encoder.name)}"
    return [
        f"- command: `{command_of(config)}`",
        f"- method {printable(config.method.name)}{encoder}, {model.step} steps with batches of {config.train.batch}, "
        f"seed {config.seed}, {config.train.precision}",
        *(f"- needs: {line}" for line in needs(config)),
    ]


def _table(metrics: dict[str, dict]) -> list[str]:
    """The numbers, with their intervals where they were measured, and below them how each was measured."""
    if not metrics:
        return ["Not evaluated: `sao eval` of the run, before `sao ship`, fills in numbers."]
    shown = [name for name in SHOWN if name in metrics]
    columns = {"learnt": [_value(metrics[name]) for name in shown]}
    intervals = [_interval(metrics[name]) for name in shown]
    if any(intervals):
        columns["95 % interval"] = ["–" if ends is None else "{:.3f} to {:.3f}".format(*ends) for ends in intervals]
    if any(f"raw/{name}" in metrics for name in shown):
        columns["raw inputs"] = [_value(metrics.get(f"raw/{name}")) for name in shown]
    first = metrics[shown[0]]["protocol"]
    lines = [
        f"Measured on {first.get('n_test', 'the')} held-out samples, evaluation seed {first.get('seed', 0)}:",
        "",
        f"| metric | {' | '.join(columns)} |",
        "|---" * (1 + len(columns)) + "|",
        *(f"| {name} | {' | '.join(row)} |" for name, *row in zip(shown, *columns.values(), strict=True)),
        "",
        "How each was measured:",
        "",
    ]
    for name in shown:
        told = "; ".join(f"{key} {printable(str(value))}" for key, value in _told(metrics[name]["protocol"]).items())
        lines.append(f"- {name}: {SHOWN[name][1]}" + (f"; {told}" if told else ""))
    return lines


def _told(protocol: dict[str, Any]) -> dict[str, Any]:
    return {key: protocol[key] for key in TOLD if key in protocol}


def _value(row: dict | None) -> str:
    return "–" if row is None else format(row["value"], ".3f")


def _interval(row: dict) -> tuple[float, float] | None:
    match row["protocol"].get(INTERVAL):
        case [float() | int() as low, float() | int() as high]:
            return low, high
    return None


def _limits(model: Model) -> list[str]:
    lines = [
        f"- It knows {model.facts.samples} training samples and what is like them. On other data measure it first: "
        "`sao eval MODEL --data FOLDER -o numbers.json`.",
        "- It repeats what is uneven in its training data. Do not decide about people by it.",
    ]
    if len(model.facts.shape) == 3:
        _, height, width = model.facts.shape
        lines.insert(1, f"- It sees images of {width}x{height} pixels: what is too small to see at that size is lost to it.")
    return lines


# --- what it was made by -------------------------------------------------------------------------------------------------


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


def _metrics(run: Run, step: int) -> dict[str, dict]:
    """Those that a card shows, of the evaluation of this very step; of raw inputs too, where that was measured."""
    last = run.config.steps_for(run.facts.samples)
    files = [run.evaluations / f"step-{step:08d}-{feature}-ema.json" for feature in ("layers", "backbone")]
    file = next((one for one in files if one.exists()), None)
    summary = run.evaluations / "summary.json"
    rows = read_summary(summary, step, last, run.folder) if file is None else read_json(file, run.folder)
    found = {row["name"]: row for row in rows if row["value"] is not None and row["name"].removeprefix("raw/") in SHOWN}
    return found if any(name in SHOWN for name in found) else {}
