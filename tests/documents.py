"""Run what a document says: its commands and its Python, in order, in a folder of its own, as a reader would type them.

A fenced block names its language. `bash` and `python` are run, `yaml` and `json` are parsed, `text` and `bibtex` are for the
eye. Python whose first line is `# NAME.py` is a file that the reader makes. A comment right above a block changes that:

    <!-- takes: minutes -->    a training is run with networks and steps that are next to nothing; Python is compiled only
    <!-- needs: network -->    not run: commands are parsed with their options and presets (also gpu, cluster)

Read briefly, every training is as short as that, and nothing is benchmarked.
"""

import ast
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tiny
import yaml

ROOT = Path(__file__).parents[1]
NEEDS = ("gpu", "network", "cluster")
SHALLOW = {"encoder.blocks": "1", "method.generator.depth": "1", "method.bank": "8", "train.batch": "8", "train.steps": "2"}
SHORT = {"log.evaluate_every": "2", "log.sample_every": "2", "log.checkpoint_every": "1"}
SMALL = tiny.OPTIONS | tiny.METHODS["structural"] | SHALLOW | SHORT


class Wrong(AssertionError):
    """Something in a document that does not work."""


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int
    marks: dict[str, str]

    @property
    def runs(self) -> bool:
        return "needs" not in self.marks

    @property
    def long(self) -> bool:
        return "takes" in self.marks


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a document, with the marks right above each."""
    found: list[Block] = []
    lines = text.splitlines()
    start: int | None = None
    for index, line in enumerate(lines):
        if not line.lstrip().startswith("```"):
            continue
        if start is None:
            start = index
            continue
        indent = len(lines[start]) - len(lines[start].lstrip())
        body = "\n".join(row[indent:] for row in lines[start + 1 : index])
        found.append(Block(lines[start].strip().strip("`"), body, start + 1, _marks(lines[:start])))
        start = None
    if start is not None:
        raise Wrong(f"line {start + 1}: the block does not end")
    return found


def files(found: list[Block]) -> Iterator[tuple[str, str]]:
    """Names and texts of the files that a reader makes."""
    for block in found:
        first, _, text = block.text.partition("\n")
        if block.language == "python" and (name := re.fullmatch(r"# (\w+\.py)", first)):
            yield name[1], text + "\n"


def _marks(above: list[str]) -> dict[str, str]:
    marks: dict[str, str] = {}
    for line in reversed(above):
        match = re.fullmatch(r"\s*<!-- (needs|takes): ([a-z]+) -->\s*", line)
        if match is None:
            break
        marks[match[1]] = match[2]
    if "needs" in marks and marks["needs"] not in NEEDS:
        raise Wrong(f"a block needs {marks['needs']}: known are {', '.join(NEEDS)}")
    return marks


def commands(script: str) -> list[list[str]]:
    """The words of each command of a shell block: continued lines joined, comments and settings of variables left out."""
    found = []
    for line in script.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while words and re.match(r"[A-Za-z_][A-Za-z0-9_]*=", words[0]):
            words = words[1:]
        if words and words[0] not in ("export", "set"):
            found.append(words)
    return found


def sao_words(words: list[str]) -> list[str] | None:
    """What is given to sao by a command that runs it: by itself, through Python, or through torchrun."""
    for index, word in enumerate(words):
        if Path(word).name == "sao" and (index == 0 or words[index - 1] == "-m" or "torchrun" in words[:index]):
            return words[index + 1 :]
    return None


def check(arguments: list[str]) -> Any:
    """Parse the arguments of a sao command, and load the preset that it names with the options that it gives."""
    from sao.cli import main as cli
    from sao.config import load_preset
    from sao.errors import InputError

    try:
        others, options = cli.split_options(arguments)
        parsed, rest = cli.build_parser().parse_known_args(others)
        if rest or (options and not parsed.takes_options):
            raise Wrong(f"sao {' '.join(arguments)}: it does not take {(rest or [*options])[0]}")
        parsed.options = options
        if parsed.takes_options:
            load_preset(getattr(parsed, "preset", None) or "digits", parsed.options)
        elif parsed.command == "presets" and parsed.name:
            load_preset(parsed.name)
    except InputError as error:
        raise Wrong(f"sao {' '.join(arguments)}: {error}") from None
    return parsed


class Reader:
    """Runs the blocks of one document in the current folder."""

    def __init__(self, brief: bool = False) -> None:
        self.brief = brief
        self.names: dict[str, Any] = {"__name__": "__main__"}

    def read(self, text: str) -> None:
        for block in blocks(text):
            try:
                self._read(block)
            except Exception as error:
                raise Wrong(f"line {block.line}: {type(error).__name__}: {error}") from error

    def _read(self, block: Block) -> None:
        from sao.config import build

        match block.language:
            case "bash":
                self._shell(block)
            case "python":
                self._python(block)
            case "yaml":
                build(yaml.safe_load(block.text))
            case "json":
                json.loads(block.text)
            case other if other not in ("text", "bibtex"):
                raise Wrong(f"a block must name its language, bash, python, yaml, json, text or bibtex, not {other!r}")

    def _python(self, block: Block) -> None:
        for name, text in files([block]):
            Path(name).write_text(text, encoding="utf-8")
            return
        code = compile(block.text, f"line {block.line}", "exec")
        if block.runs and not block.long:
            exec(code, self.names)
        else:
            check_imports(block.text)

    def _shell(self, block: Block) -> None:
        for words in commands(block.text):
            arguments = sao_words(words)
            if arguments is not None:
                self._sao(arguments, block, alone=Path(words[0]).name == "sao")
            elif words[0] == "make":
                check_target(words[1:])
            elif words[0] == "cat" and block.runs:
                for name in words[1:]:
                    Path(name).read_bytes()
            elif block.runs:
                raise Wrong(f"{' '.join(words)!r} cannot be run here: mark the block, or leave it out")

    def _sao(self, arguments: list[str], block: Block, alone: bool) -> None:
        parsed = check(arguments)
        if not block.runs or not alone:
            return
        training = parsed.command == "train"
        if (block.long and not training) or (self.brief and parsed.command == "bench"):
            return
        if training and (block.long or self.brief):
            arguments = [*_without_minutes(arguments), *_small_options(parsed)]
        if parsed.command == "explore":
            arguments = [*arguments, "--overwrite"]  # another document may have asked the same of the same folder
        from sao.cli.main import main

        code = main(arguments)
        if code != 0:
            raise Wrong(f"sao {' '.join(arguments)} ended with exit code {code}")


def _without_minutes(words: list[str]) -> list[str]:
    """Steps are given in their place."""
    at = words.index("--minutes") if "--minutes" in words else len(words)
    return words[:at] + words[at + 2 :]


def _small_options(parsed: Any) -> list[str]:
    """Those that the method and the encoder of a training have."""
    from sao.config import Config, load_preset
    from sao.config.overrides import option_names

    preset = parsed.preset or ("digits" if parsed.source is None else "own")
    values = load_preset(preset, parsed.options).model_dump(mode="json")
    if values["encoder"] is None:  # chosen for the data: what is said of a ResNet would not fit vectors
        known = {name for name in SMALL if not name.startswith("encoder")}
    else:
        known = set(option_names(Config, values))
    return [word for name, value in SMALL.items() if name in known for word in (f"--{name}", value)]


def check_imports(source: str) -> None:
    """That what a program imports from sao is there."""
    import importlib

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sao":
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                getattr(module, alias.name)


def check_target(words: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for word in words:
        if "=" not in word and not re.search(rf"^{re.escape(word)}:", makefile, re.MULTILINE):
            raise Wrong(f"the Makefile has no target {word}")


def prepare(folder: Path) -> None:
    """What a reader is supposed to have: folders of photographs and of things, a photograph beside them, and a table."""
    import numpy as np
    from PIL import Image

    draws = np.random.default_rng(0)
    tiny.draw_pictures(folder / "photos", 24, (20, 24, 3), classes=("indoors", "outdoors"))
    tiny.draw_pictures(folder / "things", 24, (28, 28, 3), seed=1, classes=("church", "parachute", "spaniel"))
    Image.fromarray(draws.integers(0, 256, (40, 50, 3), dtype=np.uint8)).save(folder / "one.jpg")
    rows = draws.normal(size=(60, 3))
    lines = ["height,width,weight", *(",".join(f"{value:.4f}" for value in row) for row in rows)]
    (folder / "table.csv").write_text("\n".join(lines) + "\n")
