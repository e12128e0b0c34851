"""The command line: which commands there are. Each adds its own options, and is imported when it is typed."""

import argparse
import importlib
import os
import sys
from typing import NoReturn

from sao import __version__
from sao.errors import InputError, printable
from sao.runtime.processor import choose_how_threads_wait, keep_freed_memory

EPILOG = """\
first steps:
  sao explore FOLDER                   look at a folder of images: map, groups, duplicates, odd ones
  sao train                            learn from the digits inside scikit-learn, in a few minutes
  sao train --data FOLDER --out RUN    learn from your own images, arrays or tables
  sao embed RUN DATA -o features.npz   use what was learnt
"""
OPTIONS = (
    "Every option of the configuration is a flag too, for example --train.batch 64. `sao options` lists them, "
    "`sao options train` shows the meaning, default and range of each."
)
# Each is a module beside this one, which has `add_options(parser)` and `run(arguments)`.
COMMANDS = {
    "train": "learn a representation, and a generator beside it",
    "sweep": "train every combination of some options with every seed, and compare them",
    "resume": "go on with a run that was stopped or killed, or for longer",
    "presets": "list the presets, or show one with every option",
    "options": "what can be set: every option with its meaning, default and range",
    "eval": "evaluate a run, or a file of features from any other library",
    "embed": "write features of data to .npz, .csv or .parquet",
    "cluster": "group data, and show each group's most central images",
    "search": "the images of a folder that are most like one or many others",
    "duplicates": "groups of equal and near-equal images, and which to keep; changes none of them",
    "explore": "one HTML page of a folder of images, without training: map, groups, duplicates, odd ones",
    "report": "one HTML page of a run, or of several side by side: metrics, curves, samples, map, clusters",
    "sample": "generate images or vectors",
    "export": "write the encoder, or the generator, for those who do not have sao",
    "ship": "write a small copy of a run to give away: what embed, cluster and sample read, and a model card",
    "bench": "measure a training step on this machine",
    "cache": "show what decoded images are kept, or remove them; they are made again when they are needed",
    "doctor": "check what is installed and whether training works, with a remedy for what does not",
    "reproduce": "a table or figure of the paper, from training to the file",
}


class Parser(argparse.ArgumentParser):
    """One line for an error, exit code 2."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; `{self.prog} --help` shows what it takes")


def build_parser(typed: str | None = None) -> Parser:
    """Of all commands; the options are those of the command that was typed, which alone is imported, or of all of them."""
    parser = Parser(
        prog="sao", description="Representations without labels and without augmented views.", epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"sao {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    for name, summary in COMMANDS.items():
        added = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        added.set_defaults(takes_options=False, computes=True)
        code = "a file of your own with a method, an encoder or data"
        added.add_argument("--code", metavar="FILE.py", action="append", help=code)
        if typed in (None, name):
            importlib.import_module(f"sao.cli.{name}").add_options(added)
        if added.get_default("takes_options"):
            added.epilog = OPTIONS
    return parser


def main(arguments: list[str] | None = None) -> int:
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # what a lost process means is said in one line, without a stack
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # the profiler of sao bench says when it starts and stops, at level 5
    keep_freed_memory()
    try:
        words, options = split_options(sys.argv[1:] if arguments is None else arguments)
        parser = build_parser(words[0] if words else "")
        parsed, rest = parser.parse_known_args(words)
        if rest or (options and not parsed.takes_options):
            wrong = rest[0] if rest else f"--{next(iter(options))}"
            near = _nearest(parser, wrong, parsed.command) if wrong.startswith("--") else ""
            name = f"sao {parsed.command}"
            raise InputError(f"{name} does not take {wrong}{near}; `{name} --help` shows what it takes")
        parsed.options = options
        if parsed.code:
            from sao.config.outside import use_file

            for path in parsed.code:
                use_file(path)
        if parsed.computes:
            choose_how_threads_wait()
        return importlib.import_module(f"sao.cli.{parsed.command}").run(parsed) or 0
    except InputError as error:
        if os.environ.get("RANK", "0") == "0":  # what is wrong before processes meet is wrong for all that torchrun started
            print(f"sao: {printable(str(error))}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output went away, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("sao: interrupted", file=sys.stderr)
        return 130


def split_options(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """Take the configuration flags out: `--train.batch 64`, `--train.batch=64`, and the two without a dot."""
    others: list[str] = []
    options: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        key, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not (
            "." in key or (key in ("seed", "method", "encoder") and words[0] in ("train", "sweep"))
        ):
            others.append(word)
            continue
        if not equals:
            value = next(rest, "--")
            if value.startswith("--"):
                raise InputError(f"--{key} needs a value, for example --{key}=VALUE")
        options[key.replace("-", "_").removesuffix(".name")] = value  # each option has one spelling from here on
    return others, options


def _nearest(parser: Parser, flag: str, command: str) -> str:
    """ " (did you mean …?)" for a flag that a command does not have; train has every option of the configuration too."""
    from sao.config import Config
    from sao.config.overrides import nearest, suggestion

    subparsers = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    flags = [known for known in subparsers.choices[command]._option_string_actions if known.startswith("--")]
    word = flag.partition("=")[0]
    if command == "train" and (meant := suggestion(Config, word)):
        return meant
    return nearest(word, flags)
