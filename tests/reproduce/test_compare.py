"""Ours beside the two-view methods on a folder of images, as a person types it."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import tiny
from PIL import Image

from sao.cli.main import main
from sao.reproduce.compare import comparison
from sao.reproduce.table1 import TWO_VIEWS
from sao.training.run_folder import Run

DRAWS = np.random.default_rng(0)
NARROW = ["--encoder.widths", "[4, 8]", "--method.hidden_size", "16", "--method.generator.width", "4"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SAO_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """Bright and dark ones."""
    folder = tmp_path_factory.mktemp("pictures") / "birds"
    for name, level in (("bright", 180), ("dark", 40)):
        (folder / name).mkdir(parents=True)
        for index in range(60):
            pixels = DRAWS.normal(level, 30, (8, 8, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{index}.png")
    return folder


def words(folder: Path, out: Path, *more: str, jobs: int = 1) -> list[str]:
    given = ["--data", str(folder), "--out", str(out), "--steps", "3", "--jobs", str(jobs), "--data.held_out", "0.4"]
    return ["reproduce", "compare", *given, *NARROW, *more]


@pytest.mark.slow
def test_rows_are_trained_with_what_fits_the_data_and_measured(pictures, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(words(pictures, out, "--rows", "byol,ours,raw", jobs=2)) == 0
    found = {line["row"]: line for line in json.loads((out / "compare.json").read_text())["rows"]}
    assert list(found) == ["byol", "ours", "raw"]
    for line in found.values():
        assert line["data"] == "birds"
        assert line["metrics"]["svm"]["mean"] > 0.8
    assert {"minutes", "parameters_encoder"} <= found["byol"]["metrics"].keys() & found["ours"]["metrics"].keys()
    byol, ours = (Run(out / f"runs/{name}-seed0").config for name in ("byol", "ours"))
    assert byol.encoder == ours.encoder
    assert byol.train.batch == ours.train.batch == 36, "half of the samples"
    assert byol.train.steps == 3
    assert "# Comparison on birds" in (out / "compare.md").read_text()
    capsys.readouterr()
    assert main(words(pictures, out, "--rows", "byol,ours,raw")) == 0
    assert "3 runs, 3 of them done already" in capsys.readouterr().out


def test_every_row_can_be_built(pictures, tmp_path):
    import torch

    _, runs = comparison(str(pictures), None, [0, 1], {"train.steps": "2", "data.held_out": "0.4"}, str(tmp_path))
    assert pickle.loads(pickle.dumps(runs)) == runs, "they are sent to processes"
    names = [*TWO_VIEWS, "ours", "raw", "patches", "untrained", "supervised"]
    assert [(run.row.name, run.config.seed) for run in runs] == [(name, seed) for name in names for seed in (0, 1)]
    for run in runs:
        assert run.config.train.batch <= 36
        with torch.device("meta"):
            run.config.build_method((3, 8, 8), 72, 2)


def test_without_labels_there_is_no_row_with_labels_and_other_measures(pictures, tmp_path):
    out = tmp_path / "out"
    assert main(words(pictures, out, "--rows", "simclr,supervised", "--data.labels", "false")) == 0
    (line,) = json.loads((out / "compare.json").read_text())["rows"]
    assert line["row"] == "simclr"
    assert "effective_rank" in line["metrics"]
    assert "svm" not in line["metrics"]


def test_a_dry_run_prices_it(pictures, tmp_path, capsys):
    assert main(words(pictures, tmp_path / "out", "--rows", "byol,raw", "--dry-run")) == 0
    said = capsys.readouterr().out
    assert "byol on birds, seed 0: 3 steps of" in said
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_compared_is_one_line(pictures, tmp_path, capsys):
    np.save(tmp_path / "rows.npy", DRAWS.normal(0, 1, (40, 3)))
    for given in (
        ["--data", str(tmp_path / "rows.npy")],
        ["--data", str(pictures), "--out", str(pictures / "out")],
        ["--data", str(pictures), "--rows", "mae"],
        ["--data", str(pictures), "--rows", "supervised", "--data.labels", "false"],
        ["--data", str(pictures), "--method.nothing", "3"],
    ):
        tiny.refused(capsys, "reproduce", "compare", *given)
    assert not (pictures / "out").exists()


def test_too_few_held_out_samples_are_said_before_anything_is_trained(pictures, tmp_path, capsys):
    out = tmp_path / "out"
    given = words(pictures, out, "--rows", "byol,raw")
    given[given.index("0.4")] = "0.1"
    said = tiny.refused(capsys, *given)
    assert "12 samples are held out, too few to score: add --data.held_out 0.27" in said
    assert not out.exists()
