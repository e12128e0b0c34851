"""Whole steps of the methods with a teacher, a queue or prototypes, against a slow reference."""

from dataclasses import dataclass
from typing import Any

import product
import pytest
import reference_views
import torch
from reference_baselines import LARS
from reference_step import EMA, AdamW
from test_structural_step import assert_alike
from torch import Tensor

from sao.config import build
from sao.methods import dino
from sao.methods.nnclr import NNCLR
from sao.methods.swav import SwAV
from sao.methods.two_view import TeacherViews, TwoViews

BATCH, SAMPLES, STEPS = 6, 12, 5  # two steps in an epoch
VIEW = {"flip": True, "crop": 0.5}
SECOND = {"flip": True, "solarise": 0.5}
HEAD = {"hidden_size": 16, "projection_size": 8}
OPTIMISER = {"learning_rate": 3e-3, "betas": (0.4, 0.9), "weight_decay": 0.2}


@dataclass(frozen=True)
class Case:
    name: str
    own: dict[str, Any]
    shape: tuple[int, ...] = (1, 8, 8)
    kind: str = "adamw"
    ema: float | None = None
    norm: str = "group"


CASES = {
    "byol": Case("byol", {"predictor_size": 12, "momentum": 0.7}),
    "byol, with an EMA, on a network with BatchNorm": Case(
        "byol", {"predictor_size": 12, "momentum": 0.7}, ema=0.8, norm="batch"
    ),
    "byol, lars, vectors": Case("byol", {"predictor_size": 12, "momentum": 0.0}, shape=(7,), kind="lars"),
    "nnclr": Case("nnclr", {"predictor_size": 12, "temperature": 0.3, "queue": 15}),
    "nnclr, a queue of less than a batch": Case("nnclr", {"predictor_size": 12, "temperature": 0.3, "queue": 4}),
    "nnclr, same views": Case("nnclr", {"predictor_size": 12, "same_views": True, "queue": 15}, ema=0.8),
    "swav": Case("swav", {"prototypes": 10, "frozen_epochs": 0.5, "queue": 8, "queue_epochs": 1.5, "temperature": 0.3}),
    "swav, no queue": Case("swav", {"prototypes": 10, "frozen_epochs": 0, "queue": 0, "epsilon": 0.2, "sinkhorn_steps": 2}),
    "swav, a queue that is not full yet": Case(
        "swav", {"prototypes": 10, "frozen_epochs": 0, "queue": 8, "queue_epochs": 0}, kind="lars"
    ),
    "swav, small views": Case(
        "swav", {"prototypes": 10, "frozen_epochs": 1, "queue": 0, "small_views": {"count": 2, "size": 8, "crop": 0.2}}
    ),
    "dino": Case("dino", {"outputs": 10, "momentum": 0.7, "frozen_epochs": 1, "centre_decay": 0.6}),
    "dino, warmed up": Case(
        "dino", {"outputs": 10, "frozen_epochs": 0, "warm_up": {"temperature": 0.03, "epochs": 3}}, ema=0.8
    ),
}


def built(case: Case) -> TwoViews:
    encoder: dict[str, Any] = {"name": "resnet", "widths": [4, 8], "blocks": 1, "norm": case.norm}
    if len(case.shape) == 1:
        encoder = {"name": "perceptron", "width": 8, "depth": 2}
    views = {"view": VIEW} if case.own.get("same_views") else {"view": VIEW, "second_view": SECOND}
    optimiser = {**OPTIMISER, "kind": case.kind}
    method = {"name": case.name, **HEAD, **views, "optimiser": optimiser, "ema_decay": case.ema, **case.own}
    config = build({"method": method, "encoder": encoder, "train": {"batch": BATCH, "steps": STEPS}})
    built_method = config.build_method(case.shape, SAMPLES, None).double()
    assert isinstance(built_method, TwoViews)
    product.unsettle(built_method)
    return built_method


def reference(case: Case, method: TwoViews) -> reference_views.Reference:
    network, predictor = product.stock(method.network), product.stock(method.predictor)
    rate, decay = OPTIMISER["learning_rate"], OPTIMISER["weight_decay"]
    optimisers = tuple(LARS(rate, decay) if case.kind == "lars" else AdamW(**OPTIMISER) for _ in range(2))
    shared: dict[str, Any] = {"network": network, "predictor": predictor, "optimisers": optimisers, "steps": STEPS}
    shared["ema"] = None
    if method.ema_network is not None:
        assert case.ema is not None
        shared["ema"] = EMA(product.stock(method.ema_network.network), case.ema)
    if isinstance(method, TeacherViews):
        copies = [product.stock(copy) for copy in method.teacher.networks]
        shared |= {"teacher": reference_views.teacher_of(*copies), "momentum": case.own.get("momentum", 0.9995)}
    shared["frozen"] = round(case.own.get("frozen_epochs", 0) * SAMPLES / BATCH)
    own = {"temperature": case.own["temperature"]} if "temperature" in case.own else {}
    match case.name:
        case "byol":
            return reference_views.BYOL(**shared)
        case "nnclr":
            assert isinstance(method, NNCLR)
            return reference_views.NNCLR(**shared, **{"temperature": 0.2, **own}, queue=list(method.queue.rows.clone()))
        case "swav":
            settings = {
                "temperature": 0.1,
                "epsilon": case.own.get("epsilon", 0.05),
                "rounds": case.own.get("sinkhorn_steps", 3),
            }
            begins = max(round(case.own.get("queue_epochs", 0) * SAMPLES / BATCH), -(-case.own["queue"] // BATCH))
            queues = {"capacity": case.own["queue"], "queue_from": begins}
            return reference_views.SwAV(**shared, **{**settings, **own}, **queues)
        case _:
            sharp = [0.03, 0.03, 0.05, 0.05, 0.07] if "warm_up" in case.own else [0.07] * 5
            centre = torch.zeros(10, dtype=torch.float64)
            settings = {"temperature": 0.1, "sharp": sharp, "centre_decay": case.own.get("centre_decay", 0.9)}
            return reference_views.DINO(**shared, **settings, centre=centre)


def state(parts: dict[str, torch.nn.Module]) -> dict[str, Tensor]:
    return {prefix + name: value for prefix, part in parts.items() for name, value in part.state_dict().items()}


def state_of(method: TwoViews) -> dict[str, Tensor]:
    parts = product.trained(method)
    if method.ema_network is not None:
        parts["ema."] = method.ema_network.network
    if isinstance(method, TeacherViews):
        parts |= dict(zip(("teacher.network.", "teacher.predictor."), method.teacher.networks, strict=False))
    found = state(parts)
    if isinstance(method, NNCLR):
        found["queue"] = in_order(method.queue.rows)
    if isinstance(method, SwAV):
        found |= {f"queue {index}": in_order(queue.get_buffer("rows")) for index, queue in enumerate(method.queues)}
    if isinstance(method, dino.DINO):
        found["centre"] = method.centre
    return found


def state_of_reference(expected: reference_views.Reference) -> dict[str, Tensor]:
    parts: dict[str, torch.nn.Module] = {"": expected.network, "predictor.": expected.predictor}
    if expected.ema is not None:
        parts["ema."] = expected.ema.network
    if expected.teacher is not None:
        parts["teacher."] = expected.teacher
    found = state(parts)
    if isinstance(expected, reference_views.NNCLR):
        found["queue"] = in_order(torch.stack(expected.queue))
    if isinstance(expected, reference_views.SwAV) and expected.capacity > 0:
        for index, queue in enumerate(expected.queues):
            empty = [torch.zeros(8, dtype=torch.float64)] * (expected.capacity - len(queue))
            found[f"queue {index}"] = in_order(torch.stack([*empty, *queue]))
    if isinstance(expected, reference_views.DINO):
        found["centre"] = expected.centre
    return found


def in_order(rows: Tensor) -> Tensor:
    """Rows of a set, by their first number."""
    return rows[rows[:, 0].argsort()]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_steps_are_those_of_the_reference(case):
    method = built(case)
    expected = reference(case, method)
    options = product.BaselineOptions(shape=case.shape, batch=BATCH)
    for number, inputs in enumerate(product.batches(options, STEPS)):
        found = product.baseline_step(method, inputs, number)
        assert len(found.views) == len(method.views)
        assert_alike(found.scalars, expected.step(found.views, number), f"step {number}, logged", rtol=1e-8)
        assert_alike(found.gradients, expected.gradients, f"step {number}, gradient", rtol=1e-8)
        assert_alike(state_of(method), state_of_reference(expected), f"step {number}, after it", rtol=1e-7)
    if "frozen_epochs" in case.own:
        assert any(name.startswith("predictor.") for name in found.gradients), "it is learnt in the end"
