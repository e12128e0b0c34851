"""The source distribution builds a wheel, and the wheel works where only what it asks for is installed.

Installing torch anew would take minutes, so the environment here is a new one with links to those packages of the present
environment that the wheel's own requirements lead to, and to nothing else: a dependency that is missing in pyproject.toml, or
a file that is missing in the wheel, is missing here. `make wheel` does the same with a true installation.
"""

import fnmatch
import importlib.metadata
import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import sao

ROOT = Path(__file__).parents[1]
pytest.importorskip("build", reason="`build` is not installed: no wheel is made")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from the source distribution, as `python -m build` does it: what the former lacks the wheel lacks too."""
    folder = tmp_path_factory.mktemp("dist")
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert [path.suffixes[-2:] for path in folder.glob("*.gz")] == [[".tar", ".gz"]]
    (built,) = folder.glob("*.whl")
    return built


def requirements(names: list[Requirement]) -> set[str]:
    """The installed packages that some requirements lead to, without extras."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if name in found or (wanted.marker is not None and not wanted.marker.evaluate({"extra": ""})):
            continue
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # of another platform, such as what a CUDA build of torch asks for
        found.add(name)
        waiting += [Requirement(line) for line in distribution.requires or []]
    return found


def link(name: str, target: Path) -> None:
    distribution = importlib.metadata.distribution(name)
    for top in {file.parts[0] for file in distribution.files or [] if file.parts[0] not in ("..", "__pycache__")}:
        source, here = Path(str(distribution.locate_file(top))), target / top
        if source.exists() and not here.exists():
            here.symlink_to(source)


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory) -> Path:
    """The interpreter of an environment with the wheel and the packages that it asks for."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    (metadata,) = packages.glob("sao-*.dist-info/METADATA")
    lines = metadata.read_text().splitlines()
    asked = [Requirement(line.partition(": ")[2]) for line in lines if line.startswith("Requires-Dist:")]
    for name in requirements(asked):
        link(name, packages)
    return folder / "bin" / "python"


def test_every_file_that_is_no_code_is_packed():
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["sao"]
    for path in (ROOT / "sao").rglob("*"):
        name = path.relative_to(ROOT / "sao").as_posix()
        if path.is_file() and path.suffix not in (".py", ".pyc"):
            alike = [pattern for pattern in patterns if pattern.count("/") == name.count("/")]
            assert any(fnmatch.fnmatch(name, pattern) for pattern in alike), name
    assert all((folder / "__init__.py").exists() for folder in {path.parent for path in (ROOT / "sao").rglob("*.py")})


@pytest.mark.slow
def test_the_wheel_has_the_version_and_the_files_that_are_no_code(wheel):
    assert f"-{sao.__version__}-" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    sources = [path for path in (ROOT / "sao").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {str(path.relative_to(ROOT)) for path in sources} <= set(names)
    assert not [name for name in names if name.startswith(("tests/", "docs/", "benchmarks/"))]
    (entry_points,) = [name for name in names if name.endswith("dist-info/entry_points.txt")]
    assert b"sao = sao.cli.main:main" in zipfile.ZipFile(wheel).read(entry_points)


@pytest.mark.slow
def test_an_index_would_take_the_wheel_and_the_source_distribution(wheel):
    pytest.importorskip("twine")
    files = sorted(str(path) for path in wheel.parent.iterdir())
    assert len(files) == 2
    done = subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == 2


@pytest.mark.slow
def test_it_works_in_an_empty_environment_and_names_the_extras_that_it_lacks(python, tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SAO"))}
    environment["SAO_CACHE"] = str(tmp_path / "cache")
    words = [str(python), "-I", str(ROOT / "tests" / "installed.py"), str(tmp_path)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert "installed without extras" in done.stdout
