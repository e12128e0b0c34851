"""Everything that is known of a finished cell, as numbers with their protocols."""

import statistics
from itertools import pairwise

import numpy as np
import torch

from sao.data.dataset import Dataset, Images
from sao.data.named import NAMES
from sao.engine.evaluate import LEARNT, ChosenRows, Pair, Plan, measure, representations, weights_used
from sao.engine.pictures import save_samples
from sao.evaluation import Metric, evaluate_generation
from sao.machine import processor_name
from sao.methods import Method
from sao.model import Model
from sao.networks import Encoder
from sao.reproduce.tables.cells import Cell
from sao.reproduce.tables.classifier import compare_in_classifier
from sao.reproduce.tables.clusterings import clusterings
from sao.training.run_folder import DataFacts, Run

METRICS = ("kmeans", "svm", "probe", "knn1", "knn5")
UNLABELLED = ("effective_rank", "cluster_agreement")
TRIAL = Plan(("svm",), rows=10_000, strict=True)
GENERATED = 10_000
SMALLEST = 32  # pixels a side; features of ImageNet mean little for smaller images


def measured(cell: Cell, method: Method, dataset: Dataset) -> list[Metric]:
    """Representation for every cell; generation, samples and costs for those that have them."""
    plan = _plan(cell) if cell.tried is None else TRIAL
    found = _representation(cell, method, dataset, plan)
    metrics = measure(found, plan, cell.config.seed).metrics
    if cell.tried is not None:
        return metrics
    if cell.row.clusters is not None:
        metrics += clusterings(found[LEARNT][1], method, dataset, cell.row.clusters, cell.config.seed)
    if cell.row.kind in ("trained", "reference"):
        metrics += _costs(cell, method)
    if cell.row.generates:
        metrics += _generation(cell, method, dataset)
    return metrics


def _plan(cell: Cell) -> Plan:
    """All rows of every cell, so that no two cells are compared that were fitted to different numbers of samples.

    Anyone's own data may have no labels, or too few for a measure.
    """
    return Plan(METRICS, rows=None, unlabelled=UNLABELLED, strict=cell.config.data.source in NAMES)


def _representation(cell: Cell, method: Method, dataset: Dataset, plan: Plan) -> dict[str, Pair]:
    seed, facts = cell.config.seed, {"weights": weights_used(method)}
    if cell.row.kind == "raw":
        return {LEARNT: ChosenRows.of(dataset, plan.rows, seed).raw(columns=None, facts={})}
    return representations(method, dataset, plan, seed, facts=facts)


def _generation(cell: Cell, method: Method, dataset: Dataset) -> list[Metric]:
    real, seed = dataset.test, cell.config.seed
    assert isinstance(real, Images), "the tables are of images"
    save_samples(cell.folder / "samples.png", method, real, seed)
    count = min(GENERATED, len(real))
    steps = cell.config.steps_for(len(dataset.train))
    drawn = Model(cell.config, DataFacts.of(dataset), method, steps).sample(count, seed)
    metrics = compare_in_classifier(cell.reference, real.select(np.arange(count)), drawn)
    if real.shape[1] >= SMALLEST:
        metrics += evaluate_generation(real.pixels[:count], drawn, seed=seed, device=next(method.parameters()).device)
    return metrics


def _costs(cell: Cell, method: Method) -> list[Metric]:
    device = next(method.parameters()).device
    facts = {"device": device.type, "threads": torch.get_num_threads(), "machine": processor_name()}
    found = [Metric("minutes", training_seconds(Run.open(cell.folder)) / 60, None, facts)]
    encoder = next((module for module in method.modules() if isinstance(module, Encoder)), None)
    if encoder is not None:
        found.append(Metric("parameters_encoder", sum(p.numel() for p in encoder.parameters())))
    for name, optimiser in method.optimisers.items():
        trained = sum(p.numel() for group in optimiser.param_groups for p in group["params"])
        found.append(Metric("parameters_g" if name == "generator" else "parameters_d", trained))
    return found


def training_seconds(run: Run) -> float:
    """All steps at the median time of one: evaluations on the way, and stops, where the clock begins anew, do not count."""
    rows = [(0, 0.0), *((row["step"], row["time/seconds"]) for row in run.rows() if "time/seconds" in row)]
    each = [(then - now) / (later - step) for (step, now), (later, then) in pairwise(rows) if then > now]
    return rows[-1][0] * statistics.median(each)
