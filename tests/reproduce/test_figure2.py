"""The figure at a reduced size, as a person types it: every file is there; and, slowly, every panel tells the paper's story."""

import json
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch

from sao.cli.main import main
from sao.data.named import spirals
from sao.reproduce import figure2 as study
from sao.reproduce.figure2 import COLUMNS, METHOD, UNTRAINED, Row, job, table, trained
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
@pytest.mark.parametrize(
    ("panel", "name", "low", "high"),
    [
        ("a", "raw_linear_accuracy", 0, 0.75),  # a line cannot tell the arms apart
        ("a", "data_share_on_arms", 0.99, 1),
        ("b", "share_on_arms", 0.4, 1),  # 1/6 of the box is so near to an arm; the aim of 0.95 takes long: results/figure2.md
        ("b", "bins_hit", 35, 40),
        ("c", "nearest_neighbour_accuracy", 0.99, 1),
        ("c", "linear_accuracy", 0.95, 1),
        ("d", "shared_neighbours_with_data", 0.5, 1),
        ("d", "same_arm_neighbours", 0.99, 1),
        ("e", "transport_cosine", 0.4, 1),
        ("f", "update_cosine_neighbours", 0.9, 1),
    ],
)
def test_each_panel_tells_the_papers_story(panels, panel, name, low, high):
    assert low < panels[panel][name] <= high


@pytest.mark.slow
def test_smoothness_makes_the_gradient_follow_transport_and_an_update_tells_the_arms_apart(panels):
    assert panels["e"]["transport_cosine"] > panels["e"]["transport_cosine_without_smoothness"] + 0.1
    assert panels["f"]["update_cosine_within"] > panels["f"]["update_cosine_between"]


def test_a_second_call_trains_nothing_and_measures_the_same(figure):
    before = json.loads((figure / "figure2.json").read_text())
    saved = {path: path.stat().st_mtime_ns for path in figure.glob("runs/*/checkpoints/*/state.json")}
    assert saved
    draw(figure, FEW, TINY)
    assert json.loads((figure / "figure2.json").read_text())["panels"] == before["panels"]
    assert {path: path.stat().st_mtime_ns for path in figure.glob("runs/*/checkpoints/*/state.json")} == saved


def test_runs_of_other_options_are_not_drawn(figure, capsys):
    tiny.refused(capsys, "reproduce", "figure2", "--out", figure, "--steps", FEW + 1)


def test_the_fields_leave_the_method_as_it_was(tmp_path):
    one = job(UNTRAINED, 0, tmp_path, {})
    method, dataset = trained(one), spirals()
    before = {name: value.clone() for name, value in method.state_dict().items()}
    points = dataset.test.inputs(slice(0, 50)).numpy()
    batch = dataset.train.inputs(slice(0, one.config.train.batch))
    moved = update_directions(method, batch, points, 0)
    pull = pull_on_points(method, points, points[::-1].copy(), 0)
    assert moved.shape == (50, tiny.structural_options(one.config).embedding_size)
    assert np.linalg.norm(moved, axis=1).min() > 0
    assert pull.shape == (50, 2)
    assert all(torch.equal(before[name], value) for name, value in method.state_dict().items())


def test_mean_and_deviation_are_over_the_seeds():
    numbers: dict[str, dict[str, float]] = {panel: {} for panel in "abcdef"}
    for panel, name in COLUMNS.values():
        numbers[panel][name] = 0.5
    shares = [{"b": {"share_on_arms": share, "bins_hit": 40}} for share in (0.9, 1.0)]
    last = table([Row(METHOD, seed, 1.0, numbers | b) for seed, b in enumerate(shares)]).splitlines()[-1]
    assert last.startswith("| structural | 0, 1 | 0.950 ± 0.050 | 40 ± 0.000 |")
