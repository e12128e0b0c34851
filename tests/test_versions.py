"""The versions that the workflow tests are those that pyproject.toml and constraints.txt declare."""

import itertools
import re
import runpy
import tomllib
from pathlib import Path
from types import SimpleNamespace

import yaml

import sao

ROOT = Path(__file__).parents[1]


versions = SimpleNamespace(**runpy.run_path(str(ROOT / ".github" / "versions.py")))


def test_oldest_and_newest_are_read_from_the_project():
    found = versions.declared()
    assert found["python"][0] == "3.11"
    assert found["torch"][1:] == ["tested", "newest"]
    assert f'"torch>={found["torch"][0]}"' in (ROOT / "pyproject.toml").read_text()


def test_another_torch_takes_the_place_of_the_tested_one():
    pinned = versions.pinned("numpy==2.4\ntorch==2.13.0\ntorchvision==0.28\n", "2.6")
    assert pinned.splitlines() == ["numpy==2.4", "torch~=2.6.0"]
    assert "torch" not in versions.pinned("numpy==2.4\ntorch==2.13.0\n", "newest")


def test_oldest_and_newest_of_both_meet_on_linux_and_the_newest_on_macos():
    jobs, found = versions.matrix()["include"], versions.declared()
    pairs = {(job["python"], job["torch"]) for job in jobs if job["os"].startswith("ubuntu")}
    assert pairs == set(itertools.product(found["python"], found["torch"]))
    assert [job["python"] for job in jobs if job["os"].startswith("macos")] == [found["python"][-1]]


def test_the_workflow_repeats_no_version():
    text = (ROOT / ".github" / "workflows" / "test.yml").read_text()
    assert not re.findall(r"\b[23]\.\d+", text)


def test_the_version_is_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    newest = re.search(r"(?m)^## (\S+?),", (ROOT / "CHANGELOG.md").read_text())
    assert newest is not None
    assert sao.__version__ == project["version"] == citation["version"] == newest[1]


def test_the_workflow_runs_the_commands_of_the_makefile():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    wheel = [step.get("run") for step in workflow["jobs"]["wheel"]["steps"]]
    assert "make wheel" in wheel
    steps = [step.get("run") for step in workflow["jobs"]["test"]["steps"]]
    assert "make test" in steps
