"""Python files that a person names: a method, an encoder or a data source from outside the package.

No other file is imported. A run says which one it needs, by name and digest, and never where it is: a run may be a stranger's.
"""

import hashlib
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from sao.errors import CODE, InputError


@dataclass(frozen=True)
class CodeFile:
    path: Path
    module: ModuleType
    sha256: str

    def member(self, name: str) -> Any:
        """What the file defines under a name."""
        if not hasattr(self.module, name):
            raise InputError(f"{self.path} defines no {name}: name one of its classes or functions, {self.path.name}:NAME")
        return getattr(self.module, name)

    def function(self, name: str) -> Callable[[], Any]:
        """A function of the file itself: a run that is a stranger's must not choose among all that the file imports."""
        found = self.member(name)
        if not isinstance(found, FunctionType) or found.__module__ != self.module.__name__:
            raise InputError(f"{self.path}:{name} is no function of that file: name one that returns the data")
        return found


IMPORTED: dict[str, CodeFile] = {}  # by file name


def split(text: str) -> tuple[str, str] | None:
    """("mine.py", "Options") of mine.py:Options; None for a text that names no member of a file."""
    path, _, name = text.rpartition(":")
    return (path, name) if path.endswith(".py") and name.isidentifier() else None


def import_file(path: str) -> CodeFile:
    """Run a file that a person named, once for each of its versions; files beside it can be imported by it."""
    place = Path(path)
    if place.suffix != ".py":
        raise InputError(f"{path} is not a Python file: give one that ends in .py")
    try:
        source = place.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; say where the file is") from None
    sha256 = hashlib.sha256(source).hexdigest()
    known = IMPORTED.get(place.name)
    if known is not None and known.path.resolve() == place.resolve() and known.sha256 == sha256:
        return known
    found = IMPORTED[place.name] = CodeFile(place, _run(place, source), sha256)
    record(place)
    return found


def record(place: Path) -> None:
    """Let commands that are printed from now on name the file too."""
    if str(place) not in CODE:
        CODE.append(str(place))


def _run(place: Path, source: bytes) -> ModuleType:
    name = f"sao_code_{place.stem}"
    module = ModuleType(name)
    module.__file__ = os.path.abspath(place)
    folder = os.path.dirname(module.__file__)
    if folder not in sys.path:
        sys.path.append(folder)
    sys.modules[name] = module  # pydantic looks up the names of annotations there
    try:
        exec(compile(source, module.__file__, "exec"), module.__dict__)
    except Exception as error:
        del sys.modules[name]
        frames = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == module.__file__]
        line = frames[-1] if frames else getattr(error, "lineno", None)
        what = str(error).splitlines()[0] if str(error) else "no message"
        raise InputError(f"{place}, line {line}: {type(error).__name__}: {what}") from error
    return module
