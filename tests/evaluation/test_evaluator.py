"""The one evaluator: which rows, which references, what it costs, and how it is stopped."""

import os
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch

from sao.data.dataset import Dataset, Images, Vectors
from sao.evaluation.budget import Budget
from sao.evaluation.evaluator import (
    LEARNT,
    PATCHES,
    SUMMARISED,
    VALIDATED,
    ChosenRows,
    Plan,
    chosen_rows,
    measure,
    raw_columns,
    representations,
    weights_used,
)
from sao.evaluation.extract import raw_inputs
from sao.evaluation.patches import SECONDS
from sao.evaluation.result import as_grid
from sao.runtime.interrupt import interruptible
from sao.training.log import Stages

FEW = Plan(("svm", "knn5", "effective_rank"), rows=150)


def test_every_representation_is_measured_on_the_same_rows_and_says_how_many():
    method = tiny.method()
    found = representations(method, tiny.dataset(), FEW, seed=3, untrained=tiny.method(seed=1), facts={"weights": "ema"})
    assert list(found) == [LEARNT, "raw", "pca", "untrained", "patches"]
    for train, test in found.values():
        assert test is not None
        np.testing.assert_array_equal(train.labels, found[LEARNT][0].labels)
        assert (len(train), len(test)) == (150, 150)
    evaluation = measure(found, FEW, seed=3)
    assert (evaluation.n_train, evaluation.n_test) == (150, 150)
    by_name = {metric.name: metric for metric in evaluation.metrics}
    assert {metric.protocol["n_train"] for name, metric in by_name.items() if name.endswith("svm")} == {150}
    assert by_name["svm"].protocol["weights"] == "ema"
    assert by_name["raw/svm"].protocol["weights"] == "none"
    assert by_name["untrained/svm"].protocol["weights"] == "untrained"
    assert by_name["raw/svm"].protocol["feature"] == "raw inputs"
    assert by_name["svm"].protocol["compared"]["corrected_for"] == 2
    assert evaluation.verdict is not None


def test_patches_have_as_many_centroids_as_training_had_time_for():
    data = Images(np.random.default_rng(0).integers(0, 256, (60, 12, 12, 1), dtype=np.uint8))
    chosen = ChosenRows.of(data, None, 0)
    few, more = (chosen.patches(seconds, {})[0] for seconds in (0.0, 60 * 2 * SECONDS))
    assert [one.protocol["centroids"] for one in (few, more)] == [256, 512]
    assert [one.values.shape for one in (few, more)] == [(60, 1024), (60, 2048)]
    assert few.protocol["patch"] == 6
    assert few.protocol["feature"] == "k-means patches of 6x6, 256 centroids"
    assert 0 <= few.protocol["seconds"] < 60


def test_vectors_have_no_patches():
    data = Vectors(np.random.default_rng(0).standard_normal((60, 3)).astype(np.float32), np.arange(60) % 2)
    method = tiny.config(encoder="perceptron", method="random").build_method((3,), 60, 2)
    assert list(representations(method, data, FEW, untrained=method)) == [LEARNT, "raw", "pca", "untrained"]


def test_patches_that_do_not_fit_into_the_budget_are_left_out_and_named():
    budget = Budget(1e-9)
    found = representations(tiny.method(), tiny.dataset(), FEW, untrained=tiny.method(), budget=budget)
    assert PATCHES not in found
    evaluation = measure(found, replace(FEW, metrics=("knn5",)))
    assert evaluation.verdict is not None
    assert PATCHES not in evaluation.verdict.sentence
    assert f"– patches: {budget.reason}" in as_grid(evaluation.metrics).splitlines()


def test_chosen_rows_keep_every_class():
    labels = np.array([0] * 900 + [1] * 97 + [2] * 3)
    rows = chosen_rows(1000, labels, 100, seed=0)
    assert np.bincount(labels[rows]).tolist() == [89, 10, 1]
    assert (np.diff(rows) > 0).all()
    assert (rows != chosen_rows(1000, labels, 100, seed=1)).any()
    np.testing.assert_array_equal(chosen_rows(1000, labels, None, 0), np.arange(1000))
    assert len(chosen_rows(1000, None, 7, 0)) == 7


def test_one_split_is_cross_validated():
    evaluation = measure(representations(tiny.method(), tiny.dataset().test, FEW, untrained=tiny.method(seed=1)), FEW)
    assert evaluation.n_test is None
    svm = next(metric for metric in evaluation.metrics if metric.name == "svm")
    assert svm.protocol["split"] == "one split, 5-fold cross-validation"
    assert svm.protocol["n_test"] == 150


@pytest.mark.parametrize("name", ["structural", "simclr", "supervised"])
def test_both_splits_are_cross_validated_as_one_only_where_training_saw_no_labels(name):
    """A network that learnt the labels of the training set would score itself on them."""
    method, data = tiny.method(method=name), tiny.dataset()
    few = Dataset("few", data.train.select(np.arange(60)), data.test.select(np.arange(40)))
    train, test = representations(method, few, Plan(("knn1",), few=500))[LEARNT]
    assert (len(train), None if test is None else len(test)) == ((60, 40) if method.needs_labels else (100, None))
    assert method.needs_labels == (name == "supervised")


def test_without_labels_or_with_one_class_what_needs_none_is_measured():
    data = tiny.dataset()
    for labels in (None, 0):
        parts = [
            Images(part.pixels, None if labels is None else np.zeros(len(part), int))  # pyright: ignore[reportAttributeAccessIssue]
            for part in (data.train, data.test)
        ]
        plan = Plan(("svm",), unlabelled=("effective_rank", "cluster_agreement"))
        found = measure(representations(tiny.method(), Dataset("bare", *parts), plan, untrained=tiny.method(seed=1)), plan)
        assert [metric.name for metric in found.metrics if "/" not in metric.name] == ["effective_rank", "cluster_agreement"]
        assert found.verdict is not None
        assert found.verdict.sentence.startswith("Without labels")


def test_large_images_are_averaged_down_and_the_protocol_says_so(monkeypatch):
    monkeypatch.setattr("sao.evaluation.evaluator.RAW_COLUMNS", 16)
    monkeypatch.setattr("sao.evaluation.evaluator.RAW_CELLS", 150 * 16)
    found = representations(tiny.method(), tiny.dataset(), FEW, untrained=tiny.method())
    assert found["raw"][0].values.shape == (150, 16)
    assert found["raw"][0].protocol["feature"] == "raw inputs, averaged to 4x4"
    test = tiny.dataset().test
    whole = raw_inputs(test).reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(len(test), -1)
    np.testing.assert_allclose(raw_inputs(test, columns=16), whole, rtol=1e-6)


def test_the_columns_of_raw_inputs_are_bounded_by_rows_and_classes():
    assert raw_columns(160, 3) >= 128 * 128 * 3  # two hundred photographs stay as they are
    assert raw_columns(10_000, 10) >= 32 * 32 * 3  # so does CIFAR-10
    assert raw_columns(10_000, 200) < 64 * 64 * 3


def test_weights_are_called_ema_only_where_there_are_some():
    assert weights_used(tiny.method()) == "ema"
    assert weights_used(tiny.method(), "raw") == "raw"
    assert weights_used(tiny.method(method="random")) == "raw"


def test_what_does_not_fit_into_the_minutes_is_left_out_and_named():
    plan = Plan(("svm", "knn5", "effective_rank"), rows=150, minutes=1e-9, strict=True)
    found = measure(representations(tiny.method(), tiny.dataset(), plan, untrained=tiny.method(seed=1)), plan)
    assert len(found.metrics) == 15
    assert {metric.protocol["caution"] for metric in found.metrics} == {
        "left out: it does not fit into the 1e-09 minutes of this evaluation"
    }
    assert found.verdict is not None
    assert found.verdict.better is None
    assert "left out" in found.verdict.sentence


def test_starts_of_k_means_are_fewer_only_with_many_classes():
    assert [Plan().restarts_for(classes) for classes in (None, 10, 200, 400, 1000, 10**5)] == [20, 20, 20, 10, 5, 5]
    assert [SUMMARISED.restarts_for(classes) for classes in (10, 50, 100, 1000)] == [20, 20, 10, 5]
    assert VALIDATED.restarts_for(10) == 5


def test_an_interrupt_does_not_wait_for_the_operation_under_way():
    square = torch.randn(1500, 1500, dtype=torch.float64)
    square = square @ square.mT
    released = threading.Event()

    def long() -> None:
        while not released.is_set():  # hundreds of seconds, if nobody interrupts
            torch.linalg.eigh(square)

    interrupted_at = []

    def interrupt() -> None:
        interrupted_at.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.5, interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            interruptible(long)
        assert time.monotonic() - interrupted_at[0] < 1
    finally:
        signal.signal(signal.SIGINT, before)
        released.set()


def test_interruptible_work_returns_and_fails_as_it_would_alone():
    assert interruptible(lambda: 3) == 3
    with pytest.raises(ValueError, match="no"):
        interruptible(lambda: (_ for _ in ()).throw(ValueError("no")))


def test_stages_are_told_now_and_then(capsys):
    stages = Stages("evaluating", every=0)
    stages("raw: svm, C = 0.01")
    assert capsys.readouterr().err == "evaluating: raw: svm, C = 0.01 (0m 00s so far)\n"
    counted = Stages("evaluating", every=0)
    counted("features")
    counted.expect(4)
    for stage in ("kmeans", "svm, C = 0.01", "svm, C = 0.1"):
        counted(stage)
    assert capsys.readouterr().err.splitlines()[-1] == "evaluating: 3 of 5, svm, C = 0.1 (0m 00s so far)"
    counted.terminal = True
    counted("knn1")
    assert "evaluating: ████████████░░░░░░░░ 4 of 5, knn1" in capsys.readouterr().err
    quiet = Stages("evaluating", every=100)
    quiet("raw: svm, C = 0.01")
    quiet.end()
    assert capsys.readouterr().err == ""
