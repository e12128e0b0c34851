"""Everything that is known of a finished run, as numbers with their protocols."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from sao.data.dataset import Dataset, Images
from sao.data.named import NAMES
from sao.evaluation import evaluate_generation
from sao.evaluation.evaluator import LEARNT, ChosenRows, Pair, Plan, measure, representations, weights_used
from sao.evaluation.extract import extract
from sao.evaluation.features import Features
from sao.evaluation.generation import frechet_in_features, precision_recall
from sao.evaluation.own_clusters import kmeans_clusters, own_clusters
from sao.evaluation.result import Metric
from sao.methods import Method
from sao.networks import Encoder
from sao.reproduce.rows import FITTED, StudyRun
from sao.runtime.machine import processor_name
from sao.training.data_facts import DataFacts
from sao.training.model import Model, load
from sao.training.pictures import save_samples
from sao.training.run_folder import Run

METRICS = ("kmeans", "kmeans_best", "svm", "probe", "knn1", "knn5")
UNLABELLED = ("effective_rank", "cluster_agreement")
TRIAL = Plan(("svm",), rows=10_000, strict=True)
GENERATED = 10_000
SMALLEST = 32  # pixels a side; features of ImageNet mean little for smaller images


def measured(run: StudyRun, method: Method, dataset: Dataset) -> list[Metric]:
    """Representation for every run; generation, samples and costs for those that have them."""
    plan = TRIAL
    if run.tried is None:  # own data may have too few labels for a measure
        rows = FITTED if run.quick else None
        plan = Plan(METRICS, rows=rows, unlabelled=UNLABELLED, strict=run.config.data.source in NAMES)
    found = _representation(run, method, dataset, plan)
    metrics = measure(found, plan, run.config.seed).metrics
    if run.tried is not None:
        return metrics
    if run.row.clusters is not None:
        metrics += clusterings(found[LEARNT][1], method, dataset, run.row.clusters, run.config.seed)
    if run.row.kind in ("trained", "reference"):
        metrics += _costs(run, method)
    if run.row.generates:
        metrics += _generation(run, method, dataset)
    return metrics


def _representation(run: StudyRun, method: Method, dataset: Dataset, plan: Plan) -> dict[str, Pair]:
    seed, facts = run.config.seed, {"weights": weights_used(method)}
    chosen = ChosenRows.of(dataset, plan.rows, seed)
    match run.row.kind:
        case "raw":
            return {LEARNT: chosen.raw(columns=None, facts={})}
        case "patches":
            return {LEARNT: chosen.patches(seconds=0, facts={}, seed=seed)}
    return representations(method, dataset, plan, seed, facts=facts)


def _generation(run: StudyRun, method: Method, dataset: Dataset) -> list[Metric]:
    real, seed = dataset.test, run.config.seed
    assert isinstance(real, Images), "the tables are of images"
    save_samples(run.folder / "samples.png", method, real, seed)
    count = min(GENERATED, len(real))
    steps = run.config.steps_for(len(dataset.train))
    drawn = Model(run.config, DataFacts.of(dataset), method, steps).sample(count, seed)
    metrics = compare_in_classifier(run.reference, real.select(np.arange(count)), drawn)
    if real.shape[1] >= SMALLEST and not run.quick:
        metrics += evaluate_generation(real.pixels[:count], drawn, seed=seed, device=next(method.parameters()).device)
    return metrics


def _costs(run: StudyRun, method: Method) -> list[Metric]:
    device = next(method.parameters()).device
    facts = {"device": device.type, "threads": torch.get_num_threads(), "machine": processor_name()}
    found = [Metric("minutes", Run.open(run.folder).training_seconds() / 60, None, facts)]
    encoder = next((module for module in method.modules() if isinstance(module, Encoder)), None)
    if encoder is not None:
        found.append(Metric("parameters_encoder", sum(p.numel() for p in encoder.parameters())))
    for name, optimiser in method.optimisers.items():
        trained = sum(p.numel() for group in optimiser.param_groups for p in group["params"])
        found.append(Metric("parameters_g" if name == "generator" else "parameters_d", trained))
    return found


# --- generated images in the features of a classifier of the same data: they are too small for a network of ImageNet ------


def compare_in_classifier(run: Path, real: Images, drawn: np.ndarray) -> list[Metric]:
    """Fréchet distance, precision and recall of uint8 images (n, h, w, c), named for the features that they are taken in."""
    classifier = load(run)
    features = classifier.embed(real, "backbone"), classifier.embed(Images(drawn), "backbone")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few samples: the protocol says so
        distance = frechet_in_features("classifier", *features).renamed("frechet_classifier")
    shares = [metric.renamed(f"{metric.name}_classifier") for metric in precision_recall(*features)]
    facts = {"extractor": f"the supervised run {run.name}", "extractor_steps": classifier.step, "split": "test"}
    return [metric.with_protocol(facts) for metric in (distance, *shares)]


# --- clusters beside the classes ------------------------------------------------------------------------------------------

EQUAL = "_equal_k"
CLUSTERED = tuple(
    f"{name}{which}{chance}"
    for which in ("", EQUAL)
    for name in ("nmi", "purity", "purity_swapped")
    for chance in ("", "_chance")
)


def clusterings(test: Features | None, method: Method, dataset: Dataset, k: int, seed: int) -> list[Metric]:
    """NMI, purity and swapped purity of a row's own clusters and, as NAME_equal_k, of k-means with k clusters."""
    assert test is not None
    assert test.labels is not None, "the tables are of data with classes"
    if method.own_clusters is None:
        count = len(np.unique(test.labels))
        own = kmeans_clusters(test.values, test.labels, count, seed=seed)
    else:
        count = method.own_clusters
        own = own_clusters(_clusters(method, dataset), test.labels, count, seed)
    equal = [metric.renamed(metric.name + EQUAL) for metric in kmeans_clusters(test.values, test.labels, k, seed=seed)]
    return [Metric("k", count), *_beside_chance(own), Metric("k" + EQUAL, k), *_beside_chance(equal)]


def _clusters(method: Method, dataset: Dataset) -> np.ndarray:
    device = next(method.parameters()).device
    return extract(lambda inputs: method.clusters_of(inputs)[:, None].float(), dataset.test, device)[:, 0].astype(np.int64)


def _beside_chance(metrics: Sequence[Metric]) -> list[Metric]:
    pairs = [(metric, Metric(f"{metric.name}_chance", metric.protocol["chance"])) for metric in metrics]
    return [metric for pair in pairs for metric in pair]
