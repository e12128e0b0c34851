"""sao options: what can be set, what it means, which values it takes and which one it has."""

import shutil
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator

from sao.errors import InputError

NARROWEST = 60


def add_options(parser: ArgumentParser) -> None:
    parser.set_defaults(computes=False)
    parser.add_argument("group", metavar="GROUP", nargs="?", help="data, train, log, method, encoder, or the name of a method")


def run(arguments: Namespace) -> None:
    for line in _lines(arguments.group):
        print(line)


def _lines(group: str | None) -> Iterator[str]:
    from sao.config import Config
    from sao.config.help import option_lines
    from sao.config.outside import find_all_installed, register
    from sao.config.overrides import every_option, nearest
    from sao.methods import ENCODERS, METHODS
    from sao.runtime.code_files import import_file, split

    find_all_installed()
    kinds = {"method": METHODS, "encoder": ENCODERS}
    if group is None:
        yield from _overview()
        return
    if (typed := split(group)) is not None:
        group = register(import_file(typed[0]).member(typed[1]))
    word = group.removeprefix("--").removesuffix(".").removeprefix("method.name=").replace("-", "_")
    if word in kinds:
        yield f"--{word} NAME: {Config.model_fields[word].description}"
        for name, member in kinds[word].items():
            yield f"  {name:17} {_first_line(member)}"
        yield f"  `sao options {word}.NAME` shows the options of one"
        return
    named = [(kind, name) for kind, members in kinds.items() for name in members if word in (name, f"{kind}.{name}")]
    for kind, name in named:
        yield f"--{kind} {name}: {_first_line(kinds[kind][name])}"
        yield from _shown(option_lines(kinds[kind][name], f"{kind}."))
    if named:
        return
    rows = list(option_lines(Config, ""))
    for kind, members in kinds.items():
        for member in members.values():
            rows += option_lines(member, f"{kind}.")
    found = list(_shown(dict.fromkeys(row for row in rows if row[0] == word or row[0].startswith(f"{word}."))))
    if not found:
        known = [*Config.model_fields, *METHODS, *ENCODERS, *every_option(Config)]
        raise InputError(f"there is no group of options {group!r}{nearest(word, known)}; `sao options` lists them")
    yield from found


def _overview() -> Iterator[str]:
    from sao.config import Config
    from sao.methods import ENCODERS, METHODS

    yield "Options are set by their dotted names: sao train --train.batch 64 --method.embedding_size 32"
    for name, field in Config.model_fields.items():
        yield f"{name:9} {field.description}"
    for kind, members in (("methods", METHODS), ("encoders", ENCODERS)):
        yield f"\n{kind}:"
        for name, member in members.items():
            yield f"  {name:17} {_first_line(member)}"
    yield "\nsao options GROUP shows every option of a group, of a method or of an encoder: sao options train"


def _shown(rows: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    width = max(NARROWEST, min(120, shutil.get_terminal_size((100, 24)).columns))
    for name, kind, meaning in rows:
        if "." not in name and kind == "group":
            continue  # its options follow
        yield f"--{name}  ({kind})"
        yield from textwrap.wrap(meaning, width, initial_indent="    ", subsequent_indent="    ")


def _first_line(member: type) -> str:
    return (member.__doc__ or "").strip().splitlines()[0]
