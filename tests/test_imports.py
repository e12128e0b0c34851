"""The direction of imports, as the drawing of the design has it: nothing imports from a line below its own."""

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "sao"
ENTRY_POINTS = {"commands", "cli", "estimator", "report", "reproduce", "__main__"}

# What each part of the package must not import from the package.
FORBIDDEN = {
    **{part: {"methods", "engine", *ENTRY_POINTS} for part in ("data", "evaluation", "config")},
    "methods": {"engine", *ENTRY_POINTS},
    "engine": {"commands", "cli", "reproduce", "estimator"},
}
# What the mathematics may import: of the package only these parts, and of everything else torch and the standard library.
ALLOWED = {
    "objectives": set(),
    "smoothness": set(),
    "memory": set(),
    "randomness": set(),
    "distributed": set(),
    "networks": {"distributed", "networks"},
    "benchmark/reference": set(),  # an oracle shares nothing with what it is compared with
}


def imported(source: str, package: str) -> set[str]:
    """Dotted names of everything a module imports, at the top or inside a function; `package` resolves relative imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import():
                names |= {alias.name for alias in node.names}
            case ast.ImportFrom():
                parents = package.split(".")
                base = parents[: len(parents) - node.level + 1] if node.level else []
                module = ".".join([*base, *([node.module] if node.module else [])])
                names |= {f"{module}.{alias.name}" for alias in node.names}
            case ast.Call(func=ast.Name("import_module") | ast.Attribute(attr="import_module"), args=[ast.Constant(name), *_]):
                names.add(str(name))
    return names


def parts(names: set[str]) -> set[str]:
    """The parts of the package among imported names: sao.networks.resnet.Block → networks."""
    return {name.split(".")[1] for name in names if name.startswith("sao.")}


def modules(part: str) -> list[Path]:
    single = PACKAGE / f"{part}.py"
    return [single] if single.exists() else sorted((PACKAGE / part).rglob("*.py"))


def imports_of(path: Path) -> set[str]:
    return imported(path.read_text(encoding="utf-8"), ".".join(path.relative_to(PACKAGE.parent).parts[:-1]))


def test_the_reader_sees_every_way_to_import():
    source = """
import sao.engine.loop as loop
from sao import cli
from sao.methods.structural import Structural
from ..commands import train
from . import sibling
def late():
    from sao.reproduce import tables
    importlib.import_module("sao.estimator")
"""
    expected = {"engine", "cli", "methods", "commands", "data", "reproduce", "estimator"}
    assert parts(imported(source, "sao.data")) == expected


@pytest.mark.parametrize("part", FORBIDDEN)
def test_no_part_imports_from_below(part):
    wrong = {path.name: parts(imports_of(path)) & FORBIDDEN[part] for path in modules(part)}
    assert not {name: found for name, found in wrong.items() if found}


@pytest.mark.parametrize("part", ALLOWED)
def test_the_mathematics_imports_torch_alone(part):
    paths = modules(part)
    assert paths
    for path in paths:
        names = imports_of(path)
        others = {name.split(".")[0] for name in names} - {"torch", "sao", *sys.stdlib_module_names}
        assert not others, path.name
        assert parts(names) <= ALLOWED[part], path.name
