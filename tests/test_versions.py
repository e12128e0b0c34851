"""The versions that the workflow tests are those that pyproject.toml and constraints.txt declare."""

import importlib.util
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]


def versions():
    spec = importlib.util.spec_from_file_location("versions", ROOT / ".github" / "versions.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_oldest_and_newest_are_read_from_the_project():
    found = versions().declared()
    assert found["python"][0] == "3.11"
    assert found["torch"][1:] == ["tested", "newest"]
    assert f'"torch>={found["torch"][0]}"' in (ROOT / "pyproject.toml").read_text()


def test_another_torch_takes_the_place_of_the_tested_one():
    pinned = versions().pinned("numpy==2.4\ntorch==2.13.0\ntorchvision==0.28\n", "2.6")
    assert pinned.splitlines() == ["numpy==2.4", "torch~=2.6.0"]
    assert "torch" not in versions().pinned("numpy==2.4\ntorch==2.13.0\n", "newest")


def test_the_workflow_runs_the_command_of_the_readme():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    steps = [step.get("run") for step in workflow["jobs"]["test"]["steps"]]
    assert "make test" in steps
