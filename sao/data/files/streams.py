"""Streams that can be read only once, and may be larger than memory: written to the cache as they come, with an index.

A stream that was cut short goes on where it stopped: what is in the index is not asked for again as files, only passed over.
"""

import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock

from sao.data.file_source import Entry, Skipped
from sao.data.files.cache import Cache
from sao.data.files.decode import Failure, Loaded, read
from sao.data.files.images import Progress
from sao.data.items import encoded
from sao.errors import InputError, printable

KNOWN_BY = 8  # items by which a stream is known again
BODY, INDEX, END = "items.bin", "index.jsonl", "complete"


class Spool:
    """The images of a stream, as files one behind another, and where each begins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._places = [json.loads(line) for line in (folder / INDEX).read_text(encoding="utf-8").splitlines()]
        self.entries = [Entry(f"row {row}", length) for row, (_, length, _) in enumerate(self._places)]
        self.skipped: list[Skipped] = []

    def load(self) -> Iterator[Loaded]:
        with (self.folder / BODY).open("rb") as body:
            for start, length, reason in self._places:
                body.seek(start)
                yield body.read(length) if reason is None else Failure(reason)

    def digest(self) -> bytes | None:
        return hashlib.blake2b(self.folder.name.encode() + str(len(self._places)).encode(), digest_size=16).digest()


def spooled(stream: Iterable[Any], cache: Cache, progress: Progress | None = None) -> Spool:
    items = _images(stream)
    first = list(itertools.islice(items, KNOWN_BY))
    if not first:
        raise InputError("the stream has no samples: give at least one")
    key = hashlib.blake2b(digest_size=16)
    for item in first:
        key.update(repr(item).encode())
    folder = cache.folder / f"stream-{key.hexdigest()}"
    with cache.explained():
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "lock"):
            if not (folder / END).exists():
                _append(folder, itertools.chain(first, items), progress or (lambda done, total: None))
    return Spool(folder)


def _images(stream: Iterable[Any]) -> Iterator[Loaded]:
    try:
        for item in stream:
            yield encoded(_image(item))
    except InputError:
        raise
    except Exception as error:  # a stream may come from anywhere
        reason = f"{type(error).__name__}: {printable(str(error))[:100]}"
        raise InputError(f"the stream broke off ({reason}); what came before is kept: begin again to go on") from None


def _image(item: Any) -> Any:
    """Of (image, label), or of a mapping of columns, the image."""
    if isinstance(item, Mapping) and "bytes" not in item:
        return next((item[key] for key in ("image", "img", "picture", "path") if key in item), item)
    return item[0] if isinstance(item, tuple | list) else item


def _append(folder: Path, items: Iterable[Loaded], progress: Progress) -> None:
    """A line of the index is written after its image: one that a kill cut short is not counted."""
    index, body = folder / INDEX, folder / BODY
    text = index.read_text(encoding="utf-8") if index.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    done = [json.loads(line) for line in whole.splitlines()]
    end = max((start + length for start, length, _ in done), default=0)
    with body.open("ab") as content, index.open("a", encoding="utf-8") as lines:
        content.truncate(end)
        lines.truncate(len(whole.encode()))
        count = len(done)
        for count, item in enumerate(itertools.islice(items, len(done), None), len(done) + 1):
            found = read(item)
            data, reason = (b"", found.reason) if isinstance(found, Failure) else (found, None)
            content.write(data)
            content.flush()
            lines.write(json.dumps([end, len(data), reason]) + "\n")
            lines.flush()
            end += len(data)
            progress(count, 0)  # nobody knows how many there will be
        os.fsync(content.fileno())
        os.fsync(lines.fileno())
    (folder / END).touch()
    progress(count, count)
