"""Methods, encoders and data sources from outside the package: in a file that a person names, or in an installed package.

A class of options is all that is registered. From then on it is a member of the configuration like those of the package. A run
records the class, the file name and the file's digest. It opens only after a person has named the file again.
"""

import hashlib
import inspect
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from pydantic import BaseModel

from sao.errors import InputError, printable
from sao.methods import ENCODERS, METHODS, AnyEncoderOptions, MethodOptions
from sao.runtime import code_files

if TYPE_CHECKING:
    from sao.config.schema import Config

MEMBERS: dict[str, dict[str, Any]] = {"method": METHODS, "encoder": ENCODERS}
BASES: dict[str, type[BaseModel]] = {"method": MethodOptions, "encoder": AnyEncoderOptions}
OWN = {kind: frozenset(members) for kind, members in MEMBERS.items()}
SOURCE = "data.source"


@dataclass(frozen=True)
class Origin:
    """Where a class of options, or a function that returns data, comes from."""

    file: str | None  # without its folder; None for what was typed into a notebook
    name: str  # in the file
    sha256: str | None
    package: str | None = None  # that has the entry point

    def __str__(self) -> str:
        """As it is typed behind --method."""
        return f"{self.file}:{self.name}" if self.file is not None else self.name


_origins: dict[type, Origin] = {}


def register(options: type[BaseModel], package: str | None = None) -> str:
    """Let runs use, and open with, a class of options: of a method or of an encoder. Returns its name."""
    kind = next((kind for kind, base in BASES.items() if isinstance(options, type) and issubclass(options, base)), None)
    if kind is None:
        raise InputError(f"{_shown(options)} is no method and no encoder: derive it from MethodOptions or AnyEncoderOptions")
    name = _name(options)
    if name is None:
        raise InputError(f'{_shown(options)} has no name: give it one, for example name: Literal["mine"] = "mine"')
    if name in OWN[kind]:
        raise InputError(f"{_shown(options)} is called {name}, as a {kind} of sao is: give it another name")
    if inspect.isabstract(options):
        missing = ", ".join(sorted(options.__abstractmethods__))
        raise InputError(f"{_shown(options)} lacks {missing}: see docs/extending.md")
    if MEMBERS[kind].get(name) is not options:
        _origins[options] = _origin(options, package)
        MEMBERS[kind][name] = options
        _rebuild()
    return name


def forget() -> None:
    """Go back to what is in the package."""
    if not _origins and not code_files.IMPORTED:
        return
    for kind, members in MEMBERS.items():
        for name in members.keys() - OWN[kind]:
            _origins.pop(members.pop(name), None)
    code_files.IMPORTED.clear()
    code_files.CODE.clear()
    _rebuild()


def use_file(path: str) -> None:
    """Run a file, and register every method and encoder that it defines."""
    found = code_files.import_file(path)
    for member in vars(found.module).values():
        own = isinstance(member, type) and member.__module__ == found.module.__name__
        if own and issubclass(member, tuple(BASES.values())) and _name(member) and not inspect.isabstract(member):
            register(member)


def named(key: str, text: str) -> str:
    """The value of an option as a person typed it; FILE.py:NAME is imported, and becomes the name that it has."""
    kind = key.removesuffix(".name")
    parts = code_files.split(text) if kind in BASES or key == SOURCE else None
    if parts is None:
        if kind in BASES and text.endswith(".py"):
            raise InputError(f"{text} is a file: name a class in it too, {text}:CLASS")
        if kind in BASES:
            find_installed(kind, text)
        return text
    path, name = parts
    known = code_files.IMPORTED.get(path)  # named by --code, wherever it is
    found = known if known is not None and not os.path.exists(path) else code_files.import_file(path)
    if key == SOURCE:
        found.function(name)
        return f"{found.path.name}:{name}"
    member = found.member(name)
    if not isinstance(member, type) or not issubclass(member, BASES[kind]):
        raise InputError(f"{text} is no {kind}: its class must be derived from {BASES[kind].__name__}")
    return register(member)


def find_installed(kind: str, name: Any) -> None:
    """Register what an installed package offers by an entry point of the group sao.methods or sao.encoders."""
    if not isinstance(name, str) or name in MEMBERS[kind]:
        return
    for point in entry_points(group=f"sao.{kind}s", name=name):
        package = "" if point.dist is None else f"{point.dist.name} {point.dist.version}"
        try:
            options = point.load()
        except Exception as error:
            raise InputError(f"{kind} {name} of the package {package} cannot be imported: {error}") from None
        if (called := register(options, package)) != name:
            raise InputError(f"the package {package} calls its {kind} {name} in its entry point and {called} in its class")


def find_all_installed() -> None:
    for kind in BASES:
        for point in entry_points(group=f"sao.{kind}s"):
            find_installed(kind, point.name)


# --- what a run records --------------------------------------------------------------------------------------------------


def origin_of(options: BaseModel | None) -> Origin | None:
    """None for what is in the package."""
    return _origins.get(type(options))


def records(config: "Config") -> dict[str, dict[str, str]]:
    """What a run needs from outside, by the group of the configuration that needs it."""
    origins = {kind: origin_of(getattr(config, kind)) for kind in BASES} | {"data": _origin_of_data(config.data.source)}
    known = {kind: vars(origin) for kind, origin in origins.items() if origin is not None}
    return {kind: {key: value for key, value in facts.items() if value is not None} for kind, facts in known.items()}


def check(recorded: Any, values: Mapping[str, Any], run: str) -> None:
    """Refuse a run whose file nobody has named; say where the file is another one than the run began with."""
    for kind, record in recorded.items() if isinstance(recorded, dict) else ():
        group = values.get(kind)
        if kind not in (*BASES, "data") or not isinstance(record, dict) or not isinstance(group, dict):
            continue
        file, name = (printable(str(record.get(key, "unknown"))) for key in ("file", "name"))
        now = _origin_of_data(group.get("source")) if kind == "data" else _origins.get(_member(kind, group.get("name")))
        if now is None and (kind == "data" or str(group.get("name")) in OWN[kind]):  # only what reads the data needs its file
            continue
        if now is None:
            raise InputError(_missing(run, f"{kind} {group.get('name')}", file, name, record))
        if now.sha256 != record.get("sha256"):
            _hint(run, file)


def _missing(run: str, what: str, file: str, name: str, record: dict[str, Any]) -> str:
    if "package" in record:
        return f"{run} needs {what} of the package {record['package']}: install it"
    if "file" not in record:
        return f"{run} needs {what}, a class {name} that was in no file: define it again, and call sao.register({name})"
    return f"{run} needs {file}:{name} ({what}): add --code PATH/{file} if you trust it; in Python sao.register({name})"


@cache  # once for each run
def _hint(run: str, file: str) -> None:
    if os.environ.get("RANK", "0") == "0":
        print(f"sao: {file} has changed since the run of {printable(run)} began", file=sys.stderr)


def _member(kind: str, name: Any) -> Any:
    find_installed(kind, name)
    return MEMBERS[kind].get(name) if isinstance(name, str) else None


def _origin_of_data(source: Any) -> Origin | None:
    parts = code_files.split(source) if isinstance(source, str) else None
    known = None if parts is None else code_files.IMPORTED.get(parts[0])
    return None if parts is None or known is None else Origin(parts[0], parts[1], known.sha256)


# --- classes -------------------------------------------------------------------------------------------------------------


def _origin(options: type, package: str | None) -> Origin:
    try:
        path = Path(inspect.getfile(options))
        known = code_files.IMPORTED.get(path.name)
        if known is not None and known.path.resolve() == path.resolve():  # what was run, though the file was changed since
            typed, sha256 = known.path, known.sha256
        else:
            typed = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
            sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    except (TypeError, OSError):  # of a notebook
        return Origin(None, options.__qualname__, None, package)
    if package is None:
        code_files.record(typed)
    return Origin(path.name, options.__qualname__, sha256, package)


def _name(options: type[BaseModel]) -> str | None:
    field = options.model_fields.get("name")
    if field is None or get_origin(field.annotation) is not Literal or get_args(field.annotation) != (field.default,):
        return None
    return field.default if re.fullmatch(r"[A-Za-z]\w*", str(field.default)) else None


def _shown(options: Any) -> str:
    return f"{options.__module__}.{options.__qualname__}" if isinstance(options, type) else repr(options)


def _rebuild() -> None:
    """Let the configuration take the members that are registered now."""
    from sao.config.schema import rebuild

    rebuild()
