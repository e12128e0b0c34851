"""What is said to people: the one exception for what a person can put right, in one line, with names and commands escaped."""

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CODE: list[str] = []  # Python files that the person named: a run that needs one is not opened without it


class InputError(ValueError):
    """Bad input; the command line prints the message and exits with code 2."""


def printable(text: str) -> str:
    """The text with control characters and undecodable bytes escaped: safe to print, to log and to write as JSON."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


@contextmanager
def explained(path: str | os.PathLike[str], kind: str, advice: str) -> Iterator[None]:
    """Whatever is wrong with a file, as one line: libraries let parser, codec, system and memory errors through."""
    where = printable(os.fspath(path))
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"there is no file {where}: check the path") from None
    except Exception as error:
        reason = printable(str(error).split("\n")[0])[:120] or type(error).__name__
        raise InputError(f"{where} cannot be read{kind} ({reason}): {advice}") from None


def counted(count: int, one: str, several: str | None = None) -> str:
    """1 image, 2 images, 3 copies."""
    return f"{count} {one if count == 1 else several or one + 's'}"


def typed(*words: Any) -> str:
    """A command of `sao` that a person can paste into a shell, whatever its paths are called."""
    code = [word for path in CODE for word in ("--code", path)] if words[0] != "train" else []
    return shlex.join(["sao", *map(str, words), *code])
