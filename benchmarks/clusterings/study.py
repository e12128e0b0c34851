"""Train and judge every run that is not done yet, then write what was found."""

import json
import time
import warnings
from dataclasses import replace

import numpy as np
import torch
from benchmark import COMPONENTS
from rivals import MOST_EPOCHS, Epochs, epochs_within, fit, inputs_of
from writing import write_benchmark, write_curves

from sao import config as configuration
from sao.data.dataset import Dataset
from sao.evaluation.clusters import clustering
from sao.evaluation.evaluator import ChosenRows, weights_used
from sao.evaluation.extract import extract
from sao.evaluation.features import Features
from sao.evaluation.manifold import manifold_clustering
from sao.evaluation.partitions import ari, matched_samples, nmi
from sao.evaluation.result import Metric, accuracy, write_json
from sao.evaluation.verdict import pca
from sao.methods import Method
from sao.reproduce.pool import check_out
from sao.reproduce.rows import StudyRun
from sao.reproduce.study import Study, finish_each
from sao.reproduce.table import DIVERGED, read_result
from sao.runtime.files import write_text
from sao.runtime.machine import processor_name
from sao.training.device import choose_device, set_threads
from sao.training.log import clock
from sao.training.loop import Diverged, new_method
from sao.training.model import load
from sao.training.run_data import open_config_data
from sao.training.run_folder import Run
from sao.training.trainer import train_run

EPOCHS = "epochs.json"
Parts = tuple[Features, Features]  # of the training part, and of the test part, which is scored


def make(study: Study, command: str, processes: int) -> list[StudyRun]:
    """Finish the runs. What is found is written after each, so that it can be looked at on the way."""
    started = time.monotonic()
    check_out(study.out)
    runs, shown = study.runs(), study.shown()

    def write() -> None:
        write_benchmark(study.table, shown, study.out, command)

    if finish_each(runs, processes, write, finish) == 0:
        write()
    write_curves(shown, study.out / "curves.png")
    print((study.out / f"{study.table.name}.md").read_text(encoding="utf-8"))
    print(f"everything is in {study.out}; {clock(time.monotonic() - started)} in all", flush=True)
    return runs


def finish(run: StudyRun) -> str:
    """Train a run, from where it was stopped, and judge its clusters; returns what there is to say about it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a bank near the size of a small data set; what ClustPy and UMAP warn of
        write_json(run.evaluation, _metrics(run))
    found = read_result(run)
    if DIVERGED in found:
        return f"diverged at step {found[DIVERGED].value:.0f}"
    return ", ".join(f"{name} {found[name].value:.3f}" for name in ("kmeans", "kmeans_best", "manifold"))


def _metrics(run: StudyRun) -> list[Metric]:
    set_threads(run.config.train.threads)
    dataset = open_config_data(run.config).dataset
    if run.row.kind != "trained":
        run.folder.mkdir(parents=True, exist_ok=True)
        configuration.save(run.config, run.folder / "config.yaml")
    try:
        features, more = _representation(run, dataset)
    except Diverged as error:
        return [Metric(DIVERGED, float(error.step), None, {"what": error.what})]
    return [*judged(*features, run.config.seed), *more]


def judged(train: Features, scored: Features, seed: int) -> list[Metric]:
    """By k-means, the best of it, and along the manifold in three ways: matched accuracy, NMI and ARI of each.

    Features of the training part only help to see the manifold, in the last of the three.
    """
    of_scored = {"features": scored.values, "labels": scored.labels, "seed": seed}
    found = clustering(**of_scored)
    found += manifold_clustering(**of_scored, algorithm="umap")
    found += _renamed("spectral", manifold_clustering(**of_scored, algorithm="spectral"))
    found += _renamed("together", manifold_clustering(**of_scored, algorithm="umap", beside=train.values))
    return [metric.with_protocol({"seed": seed, **scored.protocol}) for metric in found]


def _renamed(name: str, metrics: list[Metric]) -> list[Metric]:
    return [metric.renamed(metric.name.replace("manifold", name)) for metric in metrics]


def _representation(run: StudyRun, dataset: Dataset) -> tuple[Parts, list[Metric]]:
    """Features of both parts, and what else there is to say: costs, and clusters of a row's own."""
    seed = run.config.seed
    chosen = ChosenRows.of(dataset, None, seed)
    match run.row.kind:
        case "raw":
            return _both(chosen.raw(columns=None, facts={})), []
        case "pca":
            return _both(pca(*chosen.raw(columns=None, facts={}), components=COMPONENTS)), []
        case "patches":
            return _both(chosen.patches(seconds=0, facts={}, seed=seed)), []
        case "rival":
            return _rival(run, dataset)
        case "untrained":
            method = new_method(run.config, dataset, choose_device(run.config.train.device))
            return _features(run, method, dataset, "untrained"), []
        case "same_run":
            method = load(_needed(run).folder, device=run.config.train.device).method
            return _features(run, method, dataset, weights_used(method)), []
        case _:
            method = train_run(run.folder, run.config, dataset)
            minutes = Metric("minutes", Run.open(run.folder).training_seconds() / 60, None, _machine())
            return _features(run, method, dataset, weights_used(method)), [minutes]


def _features(run: StudyRun, method: Method, dataset: Dataset, weights: str) -> Parts:
    shown, device = method.representation(run.row.feature), next(method.parameters()).device
    train, test = (extract(shown, part, device) for part in (dataset.train, dataset.test))
    facts = {"split": "test", "feature": run.row.feature, "weights": weights}
    return Features(train), Features(test, dataset.test.labels, facts)


def _rival(run: StudyRun, dataset: Dataset) -> tuple[Parts, list[Metric]]:
    train, test, labels = inputs_of(dataset.train), inputs_of(dataset.test), dataset.test.labels
    assert labels is not None, "the benchmark is of data with classes"
    k, seed = len(np.unique(labels)), run.config.seed
    epochs = _epochs(run, train, k)
    started = time.process_time()  # as epochs are counted: other work beside it does not make a row longer
    fitted = fit(run.row.name, train, k, epochs, seed)
    minutes = (time.process_time() - started) / 60
    own = fitted.clusters(test)
    facts = {"epochs": list(epochs), "k": k, "classes": k, "n_test": len(test)}
    more = [
        accuracy("own", matched_samples(own, labels), facts),
        Metric("own_nmi", nmi(own, labels), None, facts),
        Metric("own_ari", ari(own, labels), None, facts),
        Metric("minutes", minutes, None, {**_machine(), "epochs": list(epochs)}),
    ]
    scored = Features(fitted.embed(test), labels, {"split": "test", "feature": f"embedding of {run.row.name}"})
    return (Features(fitted.embed(train)), scored), more


def _epochs(run: StudyRun, train: np.ndarray, k: int) -> Epochs:
    """As many as take the time of ours; written down, so that a row that was killed begins again with as many."""
    file = run.folder / EPOCHS
    if file.exists():
        pretraining, clustering = json.loads(file.read_text(encoding="utf-8"))["epochs"]
        return pretraining, clustering
    ours = read_result(_needed(run)).get("minutes")
    found = MOST_EPOCHS[run.row.name] if ours is None else epochs_within(60 * ours.value, run.row.name, train, k)
    about = {"epochs": list(found), "minutes_of_ours": None if ours is None else ours.value}
    write_text(file, json.dumps(about) + "\n")
    return found


def _needed(run: StudyRun) -> StudyRun:
    """The run of the row that this one learns from."""
    return replace(run, folder=run.folder.with_name(f"{run.row.needs}-{run.data}-seed{run.config.seed}"))


def _both(pair: tuple[Features, Features | None]) -> Parts:
    train, test = pair
    assert test is not None
    return train, test


def _machine() -> dict[str, object]:
    return {"threads": torch.get_num_threads(), "machine": processor_name()}
