import json
import math
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
import torch
from given import refused

from sao.evaluation import Metric, as_grid, as_table, read_json, write_json
from sao.evaluation.result import accuracy, with_interval


def test_json_round_trip_of_numpy_and_torch_values(tmp_path):
    value: Any = np.float32(0.5)
    std: Any = torch.tensor(0.25)
    metric = Metric("svm", value, std, {"k": np.int64(3), "ks": (1, 5), "C": {1: np.inf}})
    write_json(tmp_path / "eval" / "a.json", [metric])
    (row,) = json.loads((tmp_path / "eval" / "a.json").read_text())
    assert row == {"name": "svm", "value": 0.5, "std": 0.25, "protocol": {"k": 3, "ks": [1, 5], "C": {"1": "inf"}}}
    assert [path.name for path in (tmp_path / "eval").iterdir()] == ["a.json"]


def test_what_is_not_a_number_is_null(tmp_path):
    write_json(tmp_path / "a.json", [Metric("svm", math.nan, math.inf)])
    (row,) = json.loads((tmp_path / "a.json").read_text())
    assert row["value"] is None
    assert row["std"] is None
    assert read_json(tmp_path / "a.json") == [row]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    write_json(tmp_path / "a.json", [Metric("svm", 1)])

    def full(_):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="disk full"):
        write_json(tmp_path / "a.json", [Metric("svm", 2)])
    assert json.loads((tmp_path / "a.json").read_text())[0]["value"] == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_table_is_aligned_markdown():
    table = as_table([Metric("svm", 0.9, None, {"split": "test"}), Metric("kmeans", 0.81234, 0.01, {"n_test": 10})])
    lines = table.splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[0].split() == ["|", "metric", "|", "value", "|", "split", "|", "n_test", "|"]
    assert "0.8123 ± 0.0100" in lines[3]


def test_the_metrics_own_facts_win():
    metric = Metric("svm", 1, None, {"k": 1}).with_protocol({"k": 2, "split": "test"})
    assert metric.protocol == {"k": 1, "split": "test"}


def test_grid_has_a_row_for_each_representation_and_a_column_for_each_metric():
    metrics = [Metric(f"{prefix}{name}", 0.5) for prefix in ("", "raw/", "pca/") for name in ("svm", "knn1")]
    metrics.append(Metric("raw/kmeans", math.nan, None, {"caution": "3 samples are too few"}))
    lines = as_grid(metrics).splitlines()
    assert lines[0].split() == ["|", "|", "svm", "|", "knn1", "|", "kmeans", "|"]
    assert [line.split()[1] for line in lines[2:5]] == ["learnt", "raw", "pca"]
    assert lines[3].split() == ["|", "raw", "|", "0.500", "|", "0.500", "|", "–", "|"]
    assert lines[5] == "– kmeans: 3 samples are too few"


def test_grid_keeps_to_the_width():
    metrics = [Metric(f"metric_number_{i}", 0.5) for i in range(9)]
    lines = as_grid(metrics, width=60).splitlines()
    assert max(map(len, lines)) <= 60
    assert sum(line.startswith("| learnt") for line in lines) == 5
    assert sum(line.count("0.500") for line in lines) == 9


def test_an_accuracy_is_a_share_of_samples_and_over_restarts_its_mean_and_deviation():
    once = accuracy("svm", torch.tensor([True, False, True, True]), {"C": 1})
    assert (once.value, once.std, once.protocol) == (0.75, None, {"C": 1})
    restarts = np.array([[True, True, False, False], [True, True, True, True], [True, True, True, False]])
    often = accuracy("kmeans", restarts, {"k": 2})
    assert often.value == pytest.approx(0.75)
    assert often.std == pytest.approx(np.std([0.5, 1, 0.75]))
    assert often.protocol == {"k": 2}
    assert often.right is restarts


@pytest.mark.parametrize("restarts", [1, 20])
def test_an_interval_is_of_samples_however_many_restarts_there_were(restarts):
    """Wilson's, literally: a sample that is looked at twenty times is one sample."""
    right = np.arange(40) < 10
    metric = with_interval(accuracy("kmeans", right if restarts == 1 else np.tile(right, (restarts, 1)), {}))
    z, n, p = 1.959964, 40, 0.25
    half = z * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    expected = [(p + z**2 / (2 * n) + side * half) / (1 + z**2 / n) for side in (-1, 1)]
    assert metric.protocol["interval_95"] == pytest.approx(expected, abs=1e-4)


def test_a_metric_stays_what_was_measured():
    with pytest.raises(FrozenInstanceError):
        Metric("svm", 0.5).value = 0.9  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '[{"name": "svm"}]', '[{"name": "svm", "value": "0.5", "std": null, "protocol": {}}]']
)
def test_what_holds_no_metrics_is_refused(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    refused(r"a\.json is there and holds no metrics", read_json, tmp_path / "a.json")
