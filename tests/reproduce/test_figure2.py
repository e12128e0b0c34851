"""The figure at a reduced size, as a person types it: every file is there; and, slowly, every panel tells the paper's story."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import structural_options

from sao.cli.main import main
from sao.data.named import spirals
from sao.reproduce import figure2 as study
from sao.reproduce.figure2 import METHOD, UNTRAINED, Row, job, table, trained
from sao.reproduce.figure2_measure import Sizes, pull_on_points, update_directions

FEW = 3
ENOUGH = 500  # with 400 an Intel Xeon, which rounds in another way than an AMD EPYC, has not yet learnt enough for panel e
TINY = Sizes(points=60, probe=60, generated=60, grid=3, updates=1)
REDUCED = Sizes(points=400, probe=1000, generated=1000, grid=12, updates=2)


def draw(out: Path, steps: int, sizes: Sizes) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "Sizes", lambda: sizes)
        assert main(["reproduce", "figure2", "--out", str(out), "--steps", str(steps), "--jobs", "1"]) == 0
    return out


@pytest.fixture(scope="module")
def figure(tmp_path_factory) -> Path:
    return draw(tmp_path_factory.mktemp("figure2"), FEW, TINY)


@pytest.fixture(scope="module")
def panels(tmp_path_factory) -> dict:
    """Of runs that are long enough for the paper's story."""
    return json.loads((draw(tmp_path_factory.mktemp("learnt"), ENOUGH, REDUCED) / "figure2.json").read_text())["panels"]


def test_one_sheet_and_six_panels_twice(figure):
    for name in ("figure2", *"abcdef"):
        assert (figure / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (figure / f"{name}.svg").read_text()
    assert "structural" in (figure / "figure2.md").read_text()


@pytest.mark.slow
def test_a_the_arms_cannot_be_told_apart_by_a_line(panels):
    assert panels["a"]["raw_linear_accuracy"] < 0.75
    assert panels["a"]["data_share_on_arms"] > 0.99


@pytest.mark.slow
def test_b_samples_lie_on_both_arms_along_their_whole_length(panels):
    # A sixth of the box lies so near to an arm. The aim of 0.95 takes the full length: results/figure2.md.
    assert panels["b"]["share_on_arms"] > 0.4
    assert panels["b"]["bins_hit"] >= 36


@pytest.mark.slow
def test_c_the_embedding_tells_the_arms_apart(panels):
    assert panels["c"]["nearest_neighbour_accuracy"] >= 0.99
    assert panels["c"]["linear_accuracy"] >= 0.95


@pytest.mark.slow
def test_d_neighbours_in_the_data_stay_neighbours_in_the_palette(panels):
    assert panels["d"]["shared_neighbours_with_data"] > 0.5
    assert panels["d"]["same_arm_neighbours"] > 0.99


@pytest.mark.slow
def test_e_the_gradient_points_along_optimal_transport_thanks_to_smoothness(panels):
    found = panels["e"]
    assert found["transport_cosine"] > 0.4
    assert found["transport_cosine"] > found["transport_cosine_without_smoothness"] + 0.1


@pytest.mark.slow
def test_f_one_update_moves_an_arm_together_and_the_arms_apart(panels):
    found = panels["f"]
    assert found["update_cosine_neighbours"] > 0.9
    assert found["update_cosine_within"] > found["update_cosine_between"]


def test_a_second_call_trains_nothing_and_measures_the_same(figure):
    before = json.loads((figure / "figure2.json").read_text())
    saved = {path: path.stat().st_mtime_ns for path in figure.glob("runs/*/checkpoints/*/state.json")}
    assert saved
    draw(figure, FEW, TINY)
    assert json.loads((figure / "figure2.json").read_text())["panels"] == before["panels"]
    assert {path: path.stat().st_mtime_ns for path in figure.glob("runs/*/checkpoints/*/state.json")} == saved


def test_runs_of_other_options_are_not_drawn(figure, capsys):
    assert main(["reproduce", "figure2", "--out", str(figure), "--steps", str(FEW + 1)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_fields_leave_the_method_as_it_was(tmp_path):
    one = job(UNTRAINED, 0, tmp_path, {})
    method, dataset = trained(one), spirals()
    before = {name: value.clone() for name, value in method.state_dict().items()}
    points = dataset.test.inputs(slice(0, 50)).numpy()
    batch = dataset.train.inputs(slice(0, one.config.train.batch))
    moved = update_directions(method, batch, points, 0)
    pull = pull_on_points(method, points, points[::-1].copy(), 0)
    assert moved.shape == (50, structural_options(one.config).embedding_size)
    assert np.linalg.norm(moved, axis=1).min() > 0
    assert pull.shape == (50, 2)
    assert all(torch.equal(before[name], value) for name, value in method.state_dict().items())


def test_mean_and_deviation_are_over_the_seeds():
    panels = {panel: {} for panel in "abcdef"}
    rows = []
    for seed, share in ((0, 0.9), (1, 1.0)):
        numbers = {panel: dict(values) for panel, values in panels.items()}
        numbers["b"] = {"share_on_arms": share, "bins_hit": 40}
        numbers["c"] = {"nearest_neighbour_accuracy": 1.0, "linear_accuracy": 1.0}
        numbers["d"] = {"shared_neighbours_with_data": 0.5}
        numbers["e"] = {"transport_cosine": 0.5}
        numbers["f"] = {"update_cosine_within": 0.5, "update_cosine_between": -0.1}
        rows.append(Row(METHOD, seed, 1.0, numbers))
    last = table(rows).splitlines()[-1]
    assert last.startswith("| structural | 0, 1 | 0.950 ± 0.050 | 40 ± 0.000 |")
