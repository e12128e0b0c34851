"""The direction of imports, as the drawing of the design has it: nothing imports from a line below its own."""

import ast
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from sao.methods import METHODS

PACKAGE = Path(__file__).parents[1] / "sao"
# Every part of the package, the first line imported by all that follow. A module that drives others has a line of its own.
LINES: list[set[str]] = [
    {"core"},
    {"networks"},
    {"data", "evaluation", "runtime.launch"},
    {"methods"},
    {"config"},
    {"evaluation.evaluator", "evaluation.extract", "training"},
    {"report.cluster_sheet", "search"},
    {"training.model", "config.auto"},
    {"training.warm_start"},
    {"benchmark", "export", "report"},
    {"training.summary", "training.trainer"},
    {"api", "estimator"},
    {"cli", "reproduce", "sweeps"},
    {"__main__", "__init__"},
]
# Small modules that know nothing of the rest; presets and models are data.
ANYWHERE = {
    "config.types",
    "config.overrides",
    "config.help",
    "config.presets",
    "core.agreement",
    "data.files.npz",
    "errors",
    "models",
    "runtime",
}
PARTS = set().union(*LINES, ANYWHERE)
TORCH_ALONE = LINES[0] | LINES[1]
ALLOWED_SIDEWAYS = {"core": {"core"}, "networks": {"core", "networks"}}


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
    return {part_of(name.split(".")[1:]) for name in names if name.startswith("sao.")}


def part_of(words: Sequence[str]) -> str:
    """The longest beginning of a dotted name that has a line."""
    return next((part for length in (3, 2, 1) if (part := ".".join(words[:length])) in PARTS), words[0])


def modules(part: str) -> list[Path]:
    path = PACKAGE / part.replace(".", "/")
    there = [path.with_suffix(".py")] if path.with_suffix(".py").exists() else sorted(path.rglob("*.py"))
    return [one for one in there if part_of(one.relative_to(PACKAGE).with_suffix("").parts) == part]


def imports_of(path: Path) -> set[str]:
    return imported(path.read_text(encoding="utf-8"), ".".join(path.relative_to(PACKAGE.parent).parts[:-1]))


def line_of(part: str) -> int:
    return next(number for number, line in enumerate(LINES) if part in line)


def test_the_reader_sees_every_way_to_import():
    source = """
import sao.training.loop as loop
from sao import cli
from sao.methods.structural import Structural
from sao.config import Config
from sao.config.types import Strict
from ..commands import train
from . import sibling
def late():
    from sao.reproduce import table1
    importlib.import_module("sao.estimator")
"""
    expected = {"config", "config.types", "training", "cli", "methods", "commands", "data", "reproduce", "estimator"}
    assert parts(imported(source, "sao.data")) == expected


def test_modules_of_a_method_are_known():
    assert module_of_a_method("sao.methods.two_view.TwoViews")
    assert module_of_a_method("sao.methods.byol")
    assert not module_of_a_method("sao.methods.base.Method")
    assert not module_of_a_method("sao.methods.generative")


def test_every_part_of_the_package_has_its_line():
    there = {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if not path.name.startswith("__pycache__")}
    assert there == {part.split(".")[0] for part in PARTS} | {"py.typed"}
    assert all(modules(part) for part in PARTS)


@pytest.mark.parametrize("part", sorted(set().union(*LINES[:-1])))
def test_no_part_imports_from_below(part):
    below = set().union(*LINES[line_of(part) + 1 :])
    wrong = {path.name: parts(imports_of(path)) & below for path in modules(part)}
    assert not {name: found for name, found in wrong.items() if found}


@pytest.mark.parametrize("part", sorted(ANYWHERE))
def test_small_modules_know_nothing_of_the_rest(part):
    for path in modules(part):
        assert parts(imports_of(path)) <= ANYWHERE, path.name


@pytest.mark.parametrize("part", sorted(TORCH_ALONE))
def test_the_mathematics_imports_torch_alone(part):
    for path in modules(part):
        names = imports_of(path)
        others = {name.split(".")[0] for name in names} - {"torch", "sao", *sys.stdlib_module_names}
        assert not others, path.name
        assert parts(names) <= ALLOWED_SIDEWAYS.get(part, set()), path.name


# Methods may be named in their folder, where rows of a table are defined, and where one of them is arranged literally.
NAMED_IN = ("methods/", "reproduce/table", "reproduce/rows.py", "reproduce/figure2", "benchmark/literal.py")


OF_ALL_METHODS = {"base", "encoders"}  # modules of their folder that are of no method alone


def module_of_a_method(name: str) -> bool:
    """Whether an import is of one method's own module, or of what some of them share: sao.methods.two_view.TwoViews."""
    module = name.removeprefix("sao.methods.").split(".")[0]
    return name.startswith("sao.methods.") and (PACKAGE / "methods" / f"{module}.py").exists() and module not in OF_ALL_METHODS


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_methods_are_not_told_apart_outside_their_folder(path):
    """Neither by name nor by type, whatever the variable is called: a type that is not imported cannot be asked for."""
    if str(path.relative_to(PACKAGE)).startswith(NAMED_IN):
        return
    text = path.read_text(encoding="utf-8")
    special = {name for name in imports_of(path) if module_of_a_method(name)}
    default = {"sao.methods.structural"} if path == PACKAGE / "config/schema.py" else set()
    assert special <= default, "the default method alone"
    names = {node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)}
    assert not names & set(METHODS), "compare what a method says of itself, not its name"
    assert not re.search(r"isinstance\((\w+\.)?method\b", text)
