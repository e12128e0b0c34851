"""Runs that version 0.2 wrote, with its names of options and networks. tests/runs_of_0_2 holds two, and their features."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tiny
import yaml
from safetensors.torch import load_file

import sao
from sao.cli.main import main
from sao.training import checkpoint

RUNS = Path(__file__).parents[1] / "runs_of_0_2"


@pytest.fixture(params=["structural", "byol"])
def run(request, tmp_path) -> Path:
    return Path(shutil.copytree(RUNS / request.param, tmp_path / request.param))


def test_a_run_of_version_0_2_gives_the_same_features_without_a_word(run, capsys):
    found = sao.load(run).embed(tiny.dataset().test)[:8]
    np.testing.assert_allclose(found, np.load(RUNS / f"{run.name}.npy"), rtol=1e-4, atol=1e-6)
    assert capsys.readouterr().err == ""


def test_the_whole_method_of_version_0_2_is_restored(run):
    path = run / "checkpoints" / "step-00000003"
    restored, stored = sao.load(run).method, load_file(path / "method.safetensors")
    values = dict(restored.state_dict())
    names = checkpoint._current_names(path, stored)
    assert names.keys() == values.keys()
    assert all(np.array_equal(values[new], stored[old]) for new, old in names.items())


def test_a_run_of_version_0_2_goes_on_in_the_form_of_today(run):
    assert main(["resume", str(run), "--train.steps", "4", "--log.evaluate_minutes", "1e-9", "--log.report", "false"]) == 0
    latest = run / "checkpoints" / "step-00000004"
    assert json.loads((latest / "state.json").read_text())["format"] == checkpoint.FORMAT
    assert not any("average" in name or "partner" in name for name in load_file(latest / "method.safetensors"))
    assert "average" not in yaml.safe_load((run / "config.yaml").read_text())["method"]


def test_networks_inside_others_are_renamed_too(tmp_path):
    """GenRep holds the generator of another run."""
    (tmp_path / "state.json").write_text('{"format": 1}')
    names = ["source.average_generator.network.first.weight", "network.head.average_of_nothing.weight_average_"]
    expected = {"source.ema_generator.network.first.weight": names[0], names[1].replace(".average_", ".ema_"): names[1]}
    assert checkpoint._current_names(tmp_path, names) == expected
    (tmp_path / "state.json").write_text(f'{{"format": {checkpoint.FORMAT}}}')
    assert checkpoint._current_names(tmp_path, names) == {name: name for name in names}
