"""README and docs say nothing that does not work: commands and code are run, names, options, links and files are looked up."""

import pkgutil
import re
import tomllib
from functools import cache
from pathlib import Path

import documents
import extended
import pytest
from documents import ROOT, Reader, Wrong

from sao.cli.main import build_parser
from sao.config import Config
from sao.config.overrides import every_option
from sao.config.presets import preset_names

DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
GROUPS = "|".join(sorted({name.split(".")[0] for name in every_option(Config) if "." in name}))


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture(scope="module", params=["briefly", pytest.param("as typed", marks=pytest.mark.slow)])
def brief(request) -> bool:
    return request.param == "briefly"


@pytest.fixture(scope="module")
def here(brief, tmp_path_factory):
    """One folder in which the documents are read one after another, with what a reader is supposed to have."""
    folder = tmp_path_factory.mktemp("reader")
    documents.prepare(folder)
    return folder


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_every_block_of_a_document_runs(path, brief, here, monkeypatch):
    text = path.read_text(encoding="utf-8")
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(here)  # as for Python in a shell
    monkeypatch.setenv("SAO_CACHE", str(here / "cache"))
    Reader(brief).read(text)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["barlow.py", "nonsaturating.py"])
def test_a_method_of_a_document_is_a_method_like_any_other(name, tmp_path):
    """It is killed, resumed, evaluated, and run in two processes."""
    text = dict(documents.files(documents.blocks((ROOT / "docs" / "extending.md").read_text(encoding="utf-8"))))[name]
    (tmp_path / name).write_text(text, encoding="utf-8")
    extended.check(tmp_path / name, tmp_path)


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_what_a_document_names_is_there(path):
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not target.startswith(("http://", "https://")):
            assert (path.parent / target).exists(), target
    prose = re.sub(r"(?ms)^```.*?^```$", "", text)
    for code in re.findall(r"`([^`\n]+)`", prose):
        check_code(code)


def check_code(code: str) -> None:
    """A span of code in a sentence: a command, an option, a file of the repository, or a name of the package."""
    if (command := re.match(r"sao ([a-z]+)", code)) is not None:
        assert command[1] in subcommands(), code
    for option in re.findall(rf"(?<![\w./])(?:--)?((?:{GROUPS})\.[a-z0-9_.]+)", code):
        assert option in every_option(Config) or option.endswith(".py") or option in sources(), code
    if re.fullmatch(r"(sao|tests|docs|results|benchmarks)/[\w./-]*", code):
        assert (ROOT / code).exists(), code
    if re.fullmatch(r"sao(\.\w+)+", code):
        pkgutil.resolve_name(code)
    if (target := re.match(r"make ([a-z]+)", code)) is not None:
        documents.check_target([target[1]])


@cache
def subcommands() -> set[str]:
    actions = build_parser()._actions
    return {name for action in actions if isinstance(action.choices, dict) for name in action.choices}


@cache
def sources() -> set[str]:
    """Modules written as PART.MODULE."""
    return {f"{path.parent.name}.{path.stem}" for path in (ROOT / "sao").rglob("*.py")}


def test_there_are_at_most_twelve_pages():
    assert len(list((ROOT / "docs").glob("*.md"))) <= 12


def test_every_command_and_every_extra_has_its_line():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    for name in (*(f"sao {command}" for command in subcommands()), *project["optional-dependencies"]):
        assert f"| `{name}` |" in text, name


def test_the_tree_of_the_documents_is_the_tree():
    """Each line of the drawing names a file or folder; each part of the package has a line."""
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    drawing = next(block.text for block in documents.blocks(text) if block.text.startswith("sao/\n"))
    folders: list[str] = []
    shown = set()
    for line in drawing.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        names = line.split("  ")[depth].split()
        folders[depth:] = [names[0]] if names[0].endswith("/") else []
        for name in names:
            path = "".join(folders[:depth]) + name
            assert (ROOT / path).exists(), path
            shown.add(path.rstrip("/"))
    parts = {named(path) for path in (ROOT / "sao").iterdir() if path.name not in ("__pycache__", "__main__.py", "py.typed")}
    assert not parts - shown - {"sao/__init__.py"}


# Tables of measured numbers: which columns hold them. A row links to the file that they are from.
MEASURED = {"README.md": (1, 2), "docs/choosing.md": (2,), "docs/paper-and-code.md": (4,)}


@pytest.mark.parametrize("name", MEASURED)
def test_every_measured_number_stands_in_the_file_that_it_is_from(name):
    compared = 0
    for line in (ROOT / name).read_text(encoding="utf-8").splitlines():
        targets = re.findall(r"\]\(((?:\.\./)?results/[^)]+)\)", line)
        if not line.startswith("| ") or len(targets) != 1:
            continue
        cells = line.strip("| ").split(" | ")
        source = ((ROOT / name).parent / targets[0]).read_text(encoding="utf-8")
        for number in re.findall(r"(?<![\w.])\d+\.\d+", " ".join(cells[column] for column in MEASURED[name])):
            as_share = f"{float(number) / 100:.3f}"  # a page may say percent where the file has shares
            assert re.search(rf"(?<![\d.])(?:{re.escape(number)}|{re.escape(as_share)})(?!\d)", source), (number, line)
            compared += 1
    assert compared >= 4


@pytest.mark.parametrize("path", sorted((ROOT / "results").glob("*.md")), ids=named)
def test_a_page_of_results_is_short_and_links_to_what_is_there(path):
    text = path.read_text(encoding="utf-8")
    if path.name != "mutants.md":  # which lists every survivor
        assert len(text.splitlines()) <= 80
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        assert (path.parent / target).exists(), target


def test_the_readme_is_short():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    for line in text.partition("## What you get")[2].partition("\n## ")[0].splitlines():
        cells = line.strip("| ").split(" | ")
        assert len(re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])", " ".join(cells[1:3]))) <= 3, line


# One spelling, British, in what people read; names of code and titles of others are left as they are.
AMERICAN = r"\b(?:colors?|behaviors?|centers?|centered|(?:un)?labeled|license[sd]?|gray|\w+iz(?:e[ds]?|ing|ations?|ers?))\b"
NAMES = r"Apache License|\b(?:re|R)?[sS]iz(?:e[sd]?|ing)\b"


def american_words(text: str) -> list[str]:
    prose = re.sub(r"(?ms)^```.*?^```$|`[^`\n]*`|\]\([^)]*\)|https?://\S+", "", text)
    return re.findall(AMERICAN, re.sub(NAMES, "", prose), re.IGNORECASE)


@pytest.mark.parametrize("path", [*DOCUMENTS, ROOT / "SECURITY.md", ROOT / "CODE_OF_CONDUCT.md"], ids=named)
def test_one_spelling(path):
    assert american_words(path.read_text(encoding="utf-8")) == []


def test_another_spelling_is_noticed():
    text = "The optimizer normalizes colors; images are resized under the Apache License, see `center`."
    assert american_words(text) == ["optimizer", "normalizes", "colors"]


def test_every_preset_says_its_command_and_that_command_exists():
    from sao.config.presets import preset_text

    for name in preset_names():
        (command,) = re.findall(r"^# command: sao (.*?)(?:  +\(.*)?$", preset_text(name), re.MULTILINE)
        assert documents.check(command.split()).command == "train"


# --- the reader itself: what it must not let pass ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "```bash\nsao tran\n```",
        "```bash\nsao train --train.bacth 3 --dry-run\n```",
        "```bash\nsao presets nothing\n```",
        "```bash\nsao embed nothing digits -o f.npz\n```",
        "```bash\nmake coffee\n```",
        "```bash\ncurl example.org\n```",
        "<!-- needs: gpu -->\n```bash\nsao train cifar11\n```",
        "<!-- needs: gpu -->\n```bash\ntorchrun --nproc-per-node 2 -m sao train --method.nothing 3\n```",
        "<!-- needs: gpu -->\n```bash\nOMP_NUM_THREADS=1 sao train \\\n  --nothing\n```",
        "<!-- takes: minutes -->\n```bash\nsao train --method.distance nothing\n```",
        "<!-- needs: luck -->\n```bash\nsao presets\n```",
        "```python\nimport sao\nsao.nothing\n```",
        "<!-- takes: minutes -->\n```python\nx = = 3\n```",
        "<!-- takes: minutes -->\n```python\nfrom sao.core.objectives import nothing\n```",
        "```yaml\ntrian: {batch: 3}\n```",
        "```json\n{\n```",
        "```\nsao train\n```",
        "```bash\nsao presets",
    ],
)
def test_the_reader_refuses_what_does_not_work(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Wrong):
        Reader().read(text)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        "```bash\nsao presets cifar10  # every option\n```",
        "<!-- needs: network -->\n```bash\npip install sao\nsao train cifar10 --train.batch=64\n```",
        "<!-- needs: cluster -->\n```bash\nsrun torchrun --nnodes 2 -m sao train imagenet10 --data FOLDER\n```",
        "```python\nimport sao\n```\n```python\nassert sao.__version__\n```",
        "```yaml\ntrain: {batch: 64}\n```",
    ],
)
def test_the_reader_accepts_what_works(text):
    Reader().read(text)


@pytest.mark.parametrize("code", ["sao tran", "--train.bacth", "sao/nothing.py", "sao.core.objectives.nothing", "make coffee"])
def test_names_that_are_not_there_are_noticed(code):
    with pytest.raises((AssertionError, AttributeError)):
        check_code(code)
