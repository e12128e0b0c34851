"""The direction of imports, as the drawing of the design has it: nothing imports from a line below its own."""

import ast
import re
import sys
from pathlib import Path

import pytest

from sao.methods import METHODS

PACKAGE = Path(__file__).parents[1] / "sao"
# Every part of the package, the first line imported by all that follow.
LINES: list[set[str]] = [
    {"objectives", "smoothness", "memory", "randomness", "distributed", "precision"},
    {"networks"},
    {"data", "evaluation", "processes"},
    {"methods"},
    {"config"},
    {"engine"},
    {"model", "automatic"},
    {"other_runs"},
    {"benchmark", "estimator", "export", "report", "shipping"},
    {"commands", "reproduce", "learning"},
    {"cli", "__main__", "__init__"},
]
# Small modules that know nothing of the rest; presets and models are data.
ANYWHERE = {
    "csv_files",
    "errors",
    "options",
    "option_words",
    "option_text",
    "files",
    "machine",
    "npz",
    "torchvision_import",
    "presets",
    "models",
    "py.typed",
}
TORCH_ALONE = LINES[0] | LINES[1]
ALLOWED_SIDEWAYS = {"networks": {"distributed", "networks", "precision"}, "objectives": {"precision"}}


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


def line_of(part: str) -> int:
    return next(number for number, line in enumerate(LINES) if part in line)


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


def test_modules_of_a_method_are_known():
    assert module_of_a_method("sao.methods.views.TwoViews")
    assert module_of_a_method("sao.methods.byol")
    assert not module_of_a_method("sao.methods.method.Method")
    assert not module_of_a_method("sao.methods.generative")


def test_every_part_of_the_package_has_its_line():
    there = {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if not path.name.startswith("__pycache__")}
    assert there == set().union(*LINES, ANYWHERE)


@pytest.mark.parametrize("part", sorted(set().union(*LINES[:-1])))
def test_no_part_imports_from_below(part):
    below = set().union(*LINES[line_of(part) + 1 :])
    wrong = {path.name: parts(imports_of(path)) & below for path in modules(part)}
    assert modules(part)
    assert not {name: found for name, found in wrong.items() if found}


@pytest.mark.parametrize("part", sorted(ANYWHERE - {"py.typed"}))
def test_small_modules_know_nothing_of_the_rest(part):
    (path,) = modules(part)
    assert parts(imports_of(path)) <= ANYWHERE


@pytest.mark.parametrize("part", sorted(TORCH_ALONE))
def test_the_mathematics_imports_torch_alone(part):
    for path in modules(part):
        names = imports_of(path)
        others = {name.split(".")[0] for name in names} - {"torch", "sao", *sys.stdlib_module_names}
        assert not others, path.name
        assert parts(names) <= ALLOWED_SIDEWAYS.get(part, set()), path.name


# Methods may be named in their folder, where rows of a table are defined, and where one of them is arranged literally.
NAMED_IN = (
    "methods/",
    "reproduce/tables/table",
    "reproduce/tables/cells.py",
    "reproduce/figure2/",
    "benchmark/literal.py",
    "benchmark/reference.py",
)


OF_ALL_METHODS = {"method", "architecture", "health"}  # modules of their folder that are of no method alone


def module_of_a_method(name: str) -> bool:
    """Whether an import is of one method's own module, or of what some of them share: sao.methods.views.TwoViews."""
    module = name.removeprefix("sao.methods.").split(".")[0]
    return name.startswith("sao.methods.") and (PACKAGE / "methods" / f"{module}.py").exists() and module not in OF_ALL_METHODS


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_methods_are_not_told_apart_outside_their_folder(path):
    """Neither by name nor by type, whatever the variable is called: a type that is not imported cannot be asked for."""
    if str(path.relative_to(PACKAGE)).startswith(NAMED_IN):
        return
    text = path.read_text(encoding="utf-8")
    special = {name for name in imports_of(path) if module_of_a_method(name)}
    assert special <= ({"sao.methods.structural"} if path.name == "config.py" else set()), "the default method alone"
    names = {node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)}
    assert not names & set(METHODS), "compare what a method says of itself, not its name"
    assert not re.search(r"isinstance\((\w+\.)?(method|learner)\b", text)
