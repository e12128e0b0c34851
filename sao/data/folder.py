"""A folder of image files, or a single one; nothing outside of it is opened, and what cannot be used is named with a reason."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from sao.data.file_source import Entry, Skipped, is_litter
from sao.data.files.decode import Loaded
from sao.errors import printable


class Folder:
    """Every file below a folder. Links to files inside it are followed, all other links are not."""

    def __init__(self, root: Path, exclude: Path | None = None) -> None:
        self.root = os.path.realpath(root)
        self.entries: list[Entry] = []
        self.skipped: list[Skipped] = []
        self._paths: list[str] = []
        excluded = None if exclude is None else os.path.realpath(exclude)
        found: list[tuple[bytes, str, int, str]] = []
        pending = [""]
        while pending:
            relative = pending.pop()
            try:
                with os.scandir(os.path.join(self.root, relative)) as listing:
                    children = list(listing)
            except OSError as error:
                self._skip(relative or ".", f"this folder cannot be read: {error.strerror}")
                continue
            for child in children:
                name = f"{relative}/{child.name}" if relative else child.name
                if is_litter(child.name) or (excluded is not None and child.path == excluded):
                    continue
                if child.is_dir(follow_symlinks=False):
                    pending.append(name)
                elif (target := self._target(child, name)) is not None:
                    found.append((os.fsencode(name), name, target[1], target[0]))
        # By bytes: the same order on every machine, whatever its locale and file system say.
        for _, name, size, target in sorted(found):
            self.entries.append(Entry(name, size))
            self._paths.append(target)

    def load(self) -> Iterator[Loaded]:
        yield from self._paths

    def digest(self) -> bytes | None:
        return None

    def _target(self, child: os.DirEntry, name: str) -> tuple[str, int] | None:
        """The regular file behind this directory entry (its path and size), or None with the reason noted."""
        try:
            path = os.path.realpath(child.path, strict=True) if child.is_symlink() else child.path
            if child.is_symlink() and os.path.commonpath([path, self.root]) != self.root:
                return self._skip(name, "a link that leaves the folder")
            status = os.lstat(path)
        except (OSError, ValueError) as error:
            return self._skip(name, f"cannot be read: {getattr(error, 'strerror', None) or error}")
        if stat.S_ISDIR(status.st_mode):
            return self._skip(name, "a link to a folder; only links to files are followed")
        if not stat.S_ISREG(status.st_mode):
            return self._skip(name, "not a regular file")
        return path, status.st_size

    def _skip(self, name: str, reason: str) -> None:
        self.skipped.append(Skipped(printable(name), reason))


class SingleFile:
    """One image, named by a person: a link to it is followed."""

    def __init__(self, path: Path) -> None:
        self._path = os.path.realpath(path)
        self.entries = [Entry(path.name, os.path.getsize(self._path))]
        self.skipped: list[Skipped] = []

    def load(self) -> Iterator[Loaded]:
        yield self._path

    def digest(self) -> bytes | None:
        return None
