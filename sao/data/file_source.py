"""What a source of image files is: files listed in a fixed order, whose contents are handed out in that order."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from sao.data.files.decode import Loaded

# What file managers leave behind is nobody's data: not an image, and not worth a line in the list of skipped files.
LITTER = ("thumbs.db", "desktop.ini")


@dataclass(frozen=True)
class Skipped:
    """One item that was not used, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Entry:
    """One file that may be an image: its path inside the source with "/" between the parts, and its length in bytes."""

    name: str
    size: int


class Source(Protocol):
    """Files in a fixed order; `load` gives one item for each entry, in that order."""

    entries: list[Entry]
    skipped: list[Skipped]

    def load(self) -> Iterator[Loaded]: ...

    def digest(self) -> bytes | None:
        """A digest of all contents if one is cheaper than reading every file, else None."""
        ...


def is_litter(name: str) -> bool:
    return name.startswith(".") or name.lower() in LITTER


def is_litter_path(name: str) -> bool:
    parts = name.split("/")
    hidden = any(part.startswith(".") and part not in (".", "..") for part in parts)
    return hidden or "__MACOSX" in parts or parts[-1].lower() in LITTER
