"""The evaluation after training keeps to `log.evaluate_minutes`, says so beforehand, and names what it leaves out."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch

from sao.data.dataset import Dataset
from sao.evaluation import budget as budgets
from sao.evaluation.evaluator import SUMMARISED
from sao.evaluation.rank import effective_rank
from sao.training import summary as summaries
from sao.training.log import Log, Stages
from sao.training.run_folder import DataFacts, Run
from sao.training.summary import print_summary

METRICS = {"kmeans", "kmeans_best", "manifold", "svm", "knn1", "knn5", "effective_rank"}
OUT = "left out: it does not fit into the {:g} minutes of this evaluation"


@pytest.fixture(scope="module")
def data() -> Dataset:
    digits = tiny.dataset()
    return Dataset("digits", digits.train.select(np.arange(400)), digits.test.select(np.arange(110)))


def summary(folder: Path, data: Dataset, minutes: str) -> dict[str, dict]:
    """The metrics by name."""
    config = tiny.config(log__evaluate_minutes=minutes)
    run = Run.create(folder, config, DataFacts.of(data))
    log = Log(run.folder)
    try:
        print_summary(run, config, data, tiny.method(seed=5), log, 0.0)
    finally:
        log.close()
    found = json.loads((run.evaluations / "summary.json").read_text())
    return {metric["name"]: metric for metric in found}


@pytest.mark.parametrize(("minutes", "announced"), [("10", True), ("null", False)])
def test_with_time_enough_nothing_is_left_out(minutes, announced, data, tmp_path, capsys):
    found, said = summary(tmp_path / "run", data, minutes), capsys.readouterr().out
    assert {name.rpartition("/")[2] for name in found} >= METRICS
    assert {name.rpartition("/")[0] for name in found} == {"", "raw", "pca", "untrained", "patches"}
    assert all(metric["value"] is not None for metric in found.values())
    assert {metric["protocol"]["step"] for metric in found.values()} == {8}  # the report and a card ask for it
    assert "left out:" not in said
    inputs = data.test.inputs(slice(None))
    for name, method in (("", tiny.method(seed=5)), ("untrained/", tiny.method())):  # the latter as the configuration says
        rank = effective_rank(method.features(inputs)).value
        assert found[f"{name}effective_rank"]["value"] == pytest.approx(rank, rel=1e-4)
    line = "evaluation    at most 10 minutes (log.evaluate_minutes); metrics that do not fit are left out and named"
    assert (line in said) == announced
    assert not announced or said.index(line) < said.index("fitted to 400 training samples")


def test_everything_is_drawn_by_the_seed_of_the_run(data, tmp_path, monkeypatch):
    config = tiny.config(seed=7, log__evaluate_every=1, log__sample_every=1, train__steps=1)
    run = Run.create(tmp_path / "run", config, DataFacts.of(data))
    method = tiny.method(seed=7)

    def evaluated() -> object:
        return summaries._evaluated(run, config, data, method, Stages("evaluating"))

    chosen = tiny.arrival(monkeypatch, "sao.training.summary.representations", evaluated)
    assert (chosen["seed"], chosen["method"], chosen["plan"].minutes) == (7, method, SUMMARISED.minutes)
    fresh = tiny.method(seed=7).state_dict()
    assert all(torch.equal(value, fresh[name]) for name, value in chosen["untrained"].state_dict().items())
    monkeypatch.setattr(summaries, "representations", lambda *given, **more: {})
    assert tiny.arrival(monkeypatch, "sao.training.summary.measure", evaluated)["seed"] == 7
    seeds: list[int] = []
    monkeypatch.setattr("sao.training.loop.validate", lambda method, dataset, seed: seeds.append(seed) or {})
    monkeypatch.setattr("sao.training.loop.save_samples", lambda to, method, like, seed, inside: seeds.append(seed))
    tiny.go_on(run, config, data, method, 0)
    assert seeds == [7, 7]


def test_without_time_every_metric_is_left_out_and_named(data, tmp_path, capsys):
    found, said = summary(tmp_path / "run", data, "1e-9"), capsys.readouterr().out
    assert {metric["value"] for metric in found.values()} == {None}
    assert {metric["protocol"]["caution"] for metric in found.values()} == {OUT.format(1e-9)}
    assert "at most 1e-09 minutes (log.evaluate_minutes)" in said
    first, patches = (line for line in said.splitlines() if line.startswith("–"))
    assert {*first.removeprefix("– ").partition(":")[0].split(", ")} == METRICS
    assert patches == f"– patches: {OUT.format(1e-9)}"


def test_the_budget_runs_while_features_are_made(data, tmp_path, monkeypatch):
    clock, made = [0.0], summaries.representations

    def slow(*arguments, **keywords):
        clock[0] += 61.0
        return made(*arguments, **keywords)

    monkeypatch.setattr(summaries, "representations", slow)
    monkeypatch.setattr(budgets, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    found = summary(tmp_path / "run", data, "1")
    assert {metric["value"] for metric in found.values()} == {None}


def test_of_a_slow_network_fewer_rows_are_looked_at(data, tmp_path, capsys, monkeypatch):
    """Its features alone may take longer than the whole budget."""
    monkeypatch.setattr(summaries, "FEATURE_SECONDS", 0.0)
    monkeypatch.setattr(summaries, "FEWEST_ROWS", 70)
    summary(tmp_path / "run", data, "1e-9")
    assert "fitted to 70 of 400 training samples, scored on 70 held-out ones" in capsys.readouterr().out
    monkeypatch.setattr(summaries, "FEATURE_SECONDS", 60.0)
    summary(tmp_path / "other", data, "1e-9")
    assert "fitted to 400 training samples, scored on 110 held-out ones" in capsys.readouterr().out
