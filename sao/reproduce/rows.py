"""What a table is made of: rows, and for each data set and seed a run, with its evaluation."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from sao.config import Config, load, load_preset
from sao.config.overrides import current_name, nearest, option_names, suggestion
from sao.config.presets import preset_text
from sao.errors import InputError
from sao.methods import METHODS, FeatureName, MethodOptions, OtherRun

Scale = Literal["cpu", "paper"]
# same_run: that of the row it needs
Kind = Literal["trained", "same_run", "reference", "untrained", "raw", "pca", "patches", "rival"]
REFERENCE = "supervised"
WIRING = " (check that the code runs)"  # in the title of a row that cannot learn much in minutes
DEFAULT = Config().method.name  # of a row that names no method
LEARNING_RATE = "method.optimiser.learning_rate"  # what a search sets
FITTED = 10_000  # training samples that classifiers are fitted to, at the scale of a processor


@dataclass(frozen=True)
class Row:
    """`changes` make the row what it is; `recipe`, and `recipes` of a data set, suit it, and give way to options by hand.

    `rates` are learning rates to choose from; none: that of the recipe.
    `paper` holds the paper's numbers by data set and metric, accuracies as shares of 1.
    """

    name: str
    title: str
    changes: Mapping[str, str] = field(default_factory=dict)
    recipe: Mapping[str, str] = field(default_factory=dict)
    paper: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    recipes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    kind: Kind = "trained"
    rates: tuple[str, ...] = ()
    samples: bool = True  # whether images that it makes are judged too
    on_request: bool = False  # only where it is named
    without: tuple[str, ...] = ()  # data sets that it is not made for
    needs: str | None = None  # the row whose run it learns from
    feature: FeatureName = "backbone"  # of a network, what is judged
    clusters: int | None = None  # where given, clusters are compared with labels: the row's own, and so many of k-means

    @property
    def method(self) -> type[MethodOptions]:
        return METHODS[self.changes.get("method", DEFAULT)]

    @property
    def generates(self) -> bool:
        return self.kind == "trained" and self.method.generates and self.samples

    def suits(self, data: str) -> Mapping[str, str]:
        return {**self.recipe, **self.recipes.get(data, {})}


COLUMNS = {"kmeans": "k-means", "kmeans_best": "best", "svm": "SVM", "knn1": "1-NN", "minutes": "minutes"}


@dataclass(frozen=True)
class Table:
    """A table of the paper at a scale. `presets` says which data sets it can be made for; `data` those it is made for.

    `columns` are the metrics that people are shown, with their headings; the JSON file has all.
    """

    name: str
    scale: Scale
    title: str
    rows: tuple[Row, ...]
    presets: Mapping[str, str]
    data: tuple[str, ...]
    notes: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=lambda: COLUMNS)


@dataclass(frozen=True)
class StudyRun:
    row: Row
    data: str
    config: Config
    folder: Path
    reference: Path  # the run of the classifier in whose features generated images are compared
    tried: str | None = None  # a learning rate, where this is a trial of it instead of a part of the table
    quick: bool = False  # classifiers are fitted to `FITTED` samples, and generated images do not pass through Inception

    @property
    def name(self) -> str:
        which = f"seed {self.config.seed}" if self.tried is None else f"learning rate {self.tried}"
        return f"{self.row.name} on {self.data}, {which}"

    @property
    def evaluation(self) -> Path:
        return self.folder / "eval.json"

    @property
    def finished(self) -> bool:
        """Whether it was trained with these options, and evaluated."""
        file = self.folder / "config.yaml"
        return self.evaluation.exists() and file.exists() and load(file).learns_as(self.config)


Scores = Mapping[tuple[str, str], Mapping[str, float]]  # of each learning rate that was tried, by row and data set
Rates = Mapping[tuple[str, str], Mapping[str, str]]  # what a search found, as options, by row and data set


CPU_PRESETS = {"cifar10": "cifar32", "cifar100": "cifar100-32", "imagenette": "imagenette64"}
CPU_PRESETS |= {"fashion_mnist": "fashion16", "mnist": "fashion16", "digits": "digits"}
OF_IMAGENETTE = "imagenette is read from a folder of that name (train/CLASS/*, val/CLASS/*) where the command is given."
PAPER_PRESETS = {"cifar10": "cifar10", "cifar100": "cifar100"}


# A validation takes as long as 40 steps of methods without a generator.
SELDOM = {"log.evaluate_every": "500", "log.checkpoint_every": "500"}
SUPERVISED_CPU = {"train.steps": "2500", "train.batch": "128", "train.schedule": "cosine", **SELDOM}  # about as long as ours


def controls(scale: Scale) -> tuple[Row, ...]:
    """Both ends of every comparison: the baselines, and training with labels."""
    length = SUPERVISED_CPU if scale == "cpu" else {"train.epochs": "100"}
    return (
        Row("raw", "raw pixels", kind="raw"),
        Row("patches", "k-means patches", kind="patches"),
        Row("untrained", "untrained network", {"method": "random"}, kind="untrained"),
        Row(REFERENCE, "supervised, with labels", {"method": "supervised"}, length, kind="reference"),
    )


def runs_of(
    table: Table,
    rows: Sequence[Row],
    data: Sequence[str],
    seeds: Sequence[int],
    options: Mapping[str, str],
    where: Path,
    rates: Rates | None = None,
) -> list[StudyRun]:
    """In the order of the table. The reference has one seed: runs must not be compared in different features."""
    made = []
    for source in data:
        for row in (row for row in rows if source not in row.without):
            found = (rates or {}).get((row.name, source), {})
            for seed in (0,) if row.kind == "reference" else seeds:
                config = config_of(table, row, source, seed, options, found)
                folder = where / f"{row.name}-{source}-seed{seed}"
                reference = where / f"{REFERENCE}-{source}-seed0"
                made.append(StudyRun(row, source, config, folder, reference, quick=table.scale == "cpu"))
    return [_learning_from(run, made) for run in made]


def _learning_from(run: StudyRun, runs: Sequence[StudyRun]) -> StudyRun:
    """A row whose method names another row learns from the run of that row with the same data and seed."""

    def run_of(name: str) -> OtherRun:
        (other,) = (one for one in runs if (one.row.name, one.data, one.config.seed) == (name, run.data, run.config.seed))
        return OtherRun(str(other.folder), other.config.method, other.config.encoder, other.config.seed)

    method = run.config.method.with_runs(run_of)
    return replace(run, config=run.config.model_copy(update={"method": method}))


def config_of(
    table: Table, row: Row, source: str, seed: int, options: Mapping[str, str], found: Mapping[str, str] | None = None
) -> Config:
    """What makes the row goes first, then options by hand, then what a search found, then what suits the row."""
    threads = {"train.threads": "1"} if table.scale == "cpu" else {}  # a second core makes a second run instead
    fixed = {**row.changes, "data.source": source, "seed": str(seed)}
    suits = {**threads, **row.suits(source), **(found or {})}
    by_hand = applying(options, load_preset(table.presets[source], {**suits, **fixed}))
    return load_preset(table.presets[source], {**suits, **by_hand, **fixed})


def applying(options: Mapping[str, str], config: Config) -> dict[str, str]:
    return {key: text for key, text in options.items() if _applies(key, config)}


def _applies(key: str, config: Config) -> bool:
    """An option of methods or encoders holds for the rows that have it, a micro-batch for example for the GANs."""
    key = current_name(key)
    return not key.startswith(("method.", "encoder.")) or key in option_names(Config, config.model_dump(mode="json"))


def add_finished_runs(
    table: Table, runs: Sequence[StudyRun], options: Mapping[str, str], where: Path, rates: Rates | None = None
) -> list[StudyRun]:
    """The runs, and those that earlier commands with the same options have finished in the same folder."""
    names = {run.name for run in runs}
    seeds = {path.parent.name.rpartition("-seed")[2] for path in where.glob("*-seed*/eval.json")}
    seeds = {run.config.seed for run in runs} | {int(seed) for seed in seeds if seed.isdecimal()}
    known = runs_of(table, table.rows, list(table.presets), sorted(seeds), options, where, rates)
    return [run for run in known if run.name in names or run.finished]


def chosen_rows(table: Table, names: Sequence[str] | None, data: Sequence[str] | None = None) -> list[Row]:
    """Rows by name, and those that they learn from or, to compare generated images in, the reference."""
    data = table.data if data is None else data
    made = [row for row in table.rows if not set(data) <= set(row.without)]
    if names is None:
        return [row for row in made if not row.on_request]
    wanted = _checked("row", names, [row.name for row in table.rows], table)
    if others := [name for name in wanted if name not in [row.name for row in made]]:
        raise InputError(
            f"{table.name} does not make {', '.join(others)} for {', '.join(data)}: leave it out, or name other --data"
        )
    wanted += [row.needs for row in table.rows if row.name in wanted and row.needs is not None]
    if any(row.generates for row in table.rows if row.name in wanted):
        wanted.append(REFERENCE)
    return [row for row in table.rows if row.name in wanted]


def chosen_data(table: Table, names: Sequence[str] | None) -> list[str]:
    return list(table.data) if names is None else _checked("data set", names, list(table.presets), table)


def _checked(what: str, names: Sequence[str], known: Sequence[str], table: Table) -> list[str]:
    for name in names:
        if name not in known:
            there_are = f"there are {', '.join(known)}"
            raise InputError(f"{table.name} has no {what} {name!r}{nearest(name, known)}; {there_are}")
    return list(dict.fromkeys(names))


def check_options(table: Table, rows: Sequence[Row], options: Mapping[str, str]) -> None:
    """An option that makes the difference between rows cannot hold for all of them."""
    fixed = {"data.source", "seed", "method"} | {key for row in rows for key in row.changes}
    for key in options:
        if current_name(key) in fixed:
            raise InputError(f"{table.name} sets {key} for each row itself: leave --{key} out")
    presets = {(preset, row.changes.get("method")): row for preset in set(table.presets.values()) for row in table.rows}
    plain = [load_preset(preset, {**row.recipe, **row.changes}) for (preset, _), row in presets.items()]
    for key in options:
        if not any(_applies(key, config) for config in plain):
            raise InputError(f"no row of {table.name} has an option --{key}{suggestion(Config, key)}")


# --- options, and a preset, as the recipe of a row ------------------------------------------------------------------------


def of_method(own: Mapping[str, str]) -> dict[str, str]:
    """Options of a method, from their names within it."""
    return {f"method.{key}": value for key, value in own.items()}


def recipe_of(preset: str) -> dict[str, str]:
    """Its options as a person types them, but for the data, which a table chooses."""
    values = yaml.safe_load(preset_text(preset))
    return {key: text for part, value in values.items() if part != "data" for key, text in _typed(part, value).items()}


def _typed(key: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        return {key.removesuffix(".name"): value if isinstance(value, str) else json.dumps(value)}
    return {inner: text for name, one in value.items() for inner, text in _typed(f"{key}.{name}", one).items()}
