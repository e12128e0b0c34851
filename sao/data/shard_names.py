"""Names of many files in one: shards/{000..127}.tar, as WebDataset and the shell write them."""

import os
import re
from pathlib import Path

from sao.errors import InputError, printable

_PATTERN = re.compile(r"(.*)\{(\d+)\.\.(\d+)\}(.*)", re.DOTALL)
MOST = 100_000


def shard_paths(path: str | os.PathLike[str]) -> list[Path] | None:
    """The files that a pattern names, in order; None where it is no pattern, or the name of a file that is there."""
    found = _PATTERN.fullmatch(os.fspath(path))
    if found is None or os.path.exists(path):
        return None
    before, first, last, after = found.groups()
    if not 0 <= int(last) - int(first) < MOST:
        raise InputError(f"{printable(os.fspath(path))} names no shards, or more than {MOST}: write the lower number first")
    width = len(first)
    return [Path(f"{before}{number:0{width}d}{after}") for number in range(int(first), int(last) + 1)]


def data_exists(path: str | os.PathLike[str]) -> bool:
    """Whether something is at this path, or at the first that a pattern names."""
    paths = shard_paths(path)
    return os.path.exists(path if paths is None else paths[0])
