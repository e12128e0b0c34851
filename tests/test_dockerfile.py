"""The image of the Dockerfile, without an engine for it: its lines are read, and what they do is done here."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", " ", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]


def of(name: str) -> list[str]:
    return [rest for one, rest in instructions() if one == name]


def copied(folder: Path) -> None:
    """What its COPY lines bring into an empty image, of what .dockerignore lets through."""
    let = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for line in of("COPY"):
        *sources, target = line.split()
        for source in sources:
            assert source in let, f"{source} is not in the build's context"
            here = folder / target.strip("/") / ("" if (ROOT / source).is_dir() else source)
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, here, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                here.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / source, here)


def test_it_is_a_slim_python_that_the_project_names():
    (image,) = of("FROM")
    version = re.fullmatch(r"python:(3\.\d+)-slim", image)
    assert version is not None
    assert f"Programming Language :: Python :: {version[1]}" in PROJECT["classifiers"]


def test_the_command_is_run_by_a_user_who_is_not_root():
    names = [name for name, _ in instructions()]
    (user,) = of("USER")
    assert user != "root"
    assert any(f" {user} " in f"{line} " and line.startswith("useradd") for line in of("RUN"))
    assert "RUN" not in names[names.index("USER") :]
    (entry,), (default,) = of("ENTRYPOINT"), of("CMD")
    assert json.loads(entry) == ["sao"]
    assert json.loads(entry)[0] in PROJECT["scripts"]
    assert json.loads(default) == ["--help"]


def test_it_installs_tested_versions_and_extras_that_there_are():
    (words,) = (shlex.split(line) for line in of("RUN") if line.startswith("pip "))
    assert words[words.index("--constraint") + 1] == "/sao/constraints.txt"
    assert words[words.index("--extra-index-url") + 1] == "https://download.pytorch.org/whl/cpu"
    extras = re.fullmatch(r"/sao\[(.*)\]", words[-1])
    assert extras is not None
    assert set(extras[1].split(",")) <= PROJECT["optional-dependencies"].keys()


@pytest.mark.slow
def test_what_it_copies_installs_and_its_entry_point_runs(tmp_path):
    """Without what the package asks for, which is here already."""
    copied(tmp_path / "image")
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    words += ["--target", str(tmp_path / "site"), str(tmp_path / "image" / "sao")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (entry,), (default,) = of("ENTRYPOINT"), of("CMD")
    command = [sys.executable, str(tmp_path / "site" / "bin" / json.loads(entry)[0]), *json.loads(default)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "sao train --data FOLDER" in done.stdout
