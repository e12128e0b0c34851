"""Decoded images on disk, memory-mapped: each entry appears whole or not at all, however many runs write or are killed."""

import errno
import json
import math
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from filelock import FileLock, Timeout

from sao.errors import InputError, printable
from sao.runtime.files import sync

Shapes = dict[str, tuple[int, int, int]]  # of one image in each array of an entry
BYTES = np.dtype(np.uint8)

_WRITING = ".writing-"
_LOCK = "lock"
OWN_FOLDERS = re.compile(
    r"[0-9a-f]{16}-[0-9a-f]{32}|arrays-\d+-\d+-\d+-[a-z]+-[0-9a-f]+|stream-[0-9a-f]{32}|\.writing-[0-9a-f]{16}"
)
OWN_FEATURES = re.compile(r"features-[0-9a-f]{32}\.npz")  # of a gallery that was searched
OWN_FILES = {"pixels.npy", "frames.npy", "facts.json", "items.bin", "index.jsonl", "complete", _LOCK}
_ABANDONED_SECONDS = 3600  # only for a folder whose writer died in the instant between making it and locking it


@dataclass(frozen=True)
class Stored:
    """One entry: arrays (n, h, w, c) mapped from disk, by name, with the facts stored beside."""

    arrays: dict[str, np.ndarray]
    facts: dict[str, Any]

    @property
    def pixels(self) -> np.ndarray:
        return self.arrays["pixels"]


@dataclass(frozen=True)
class Kept:
    """An entry as `sao cache` shows it."""

    path: Path
    size: int  # bytes
    made: float  # seconds since 1970
    what: str


class Cache:
    """A folder of entries `KEY/{pixels.npy, facts.json}`, or frames.npy beside; a key names contents: entries never change."""

    def __init__(self, folder: Path | None = None) -> None:
        chosen = folder or os.environ.get("SAO_CACHE") or Path.home() / ".cache" / "sao"
        self.folder = Path(chosen).absolute()

    def keys(self, prefix: str) -> list[str]:
        if not self.folder.is_dir():
            return []
        return [name for name in os.listdir(self.folder) if name.startswith(prefix)]

    def read(self, key: str) -> Stored | None:
        """The entry, or None; one that something else damaged is removed, so that it is made again."""
        entry = self.folder / key
        if not entry.is_dir():
            return None
        try:
            with self.explained():
                facts = json.loads((entry / "facts.json").read_text("utf-8"))
                shapes = {"pixels": facts["shape"]} | ({"frames": facts["frames"]} if "frames" in facts else {})
                arrays = {name: _mapped(entry / f"{name}.npy") for name in shapes}
            kind = np.dtype(np.uint16 if facts.get("bits") == 16 else np.uint8)
            if any(array.dtype != kind or list(array.shape) != shapes[name] for name, array in arrays.items()):
                raise ValueError("not what was written")
        except InputError:
            raise
        except (FileNotFoundError, ValueError, KeyError, TypeError, EOFError):
            shutil.rmtree(entry, ignore_errors=True)
            return None
        return Stored(arrays, facts)

    def kept(self) -> list[Kept]:
        """All that sao wrote here: entries, and what killed runs left. Anything else in the folder is somebody's."""
        found = []
        with self.explained():
            for path in self.folder.iterdir() if self.folder.is_dir() else []:
                with suppress(FileNotFoundError):  # another process removed it just now
                    if OWN_FEATURES.fullmatch(path.name) and path.is_file() and not path.is_symlink():
                        found.append(Kept(path, path.stat().st_size, path.stat().st_mtime, "features of a search"))
                    if path.is_symlink() or not path.is_dir() or not OWN_FOLDERS.fullmatch(path.name):
                        continue
                    files = list(path.iterdir())
                    if all(file.name in OWN_FILES and file.is_file() and not file.is_symlink() for file in files):
                        size = sum(file.stat().st_size for file in files)
                        found.append(Kept(path, size, path.stat().st_mtime, _described(path)))
        return found

    def remove(self, entry: Kept) -> bool:
        """Whether it went: one that a living process writes stays."""
        with self.explained():
            return _removed(entry.path)

    def writer(self, shapes: Shapes, most: int, dtype: np.dtype = BYTES) -> closing["Writer"]:
        """A new entry of about so many images of 8 or 16 bits; it is not visible before `Writer.commit`."""
        with self.explained():
            self.folder.mkdir(parents=True, exist_ok=True)
            self._sweep()
            if shutil.disk_usage(self.folder).free < most * dtype.itemsize * sum(map(math.prod, shapes.values())):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return closing(Writer(self, shapes, dtype))

    @contextmanager
    def explained(self) -> Iterator[None]:
        """A full or forbidden cache folder is the user's to put right, so it is one line and not a traceback."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise InputError(
                f"the cache folder {printable(str(self.folder))} cannot be used ({error.strerror}):"
                " make room there, or set SAO_CACHE to another folder"
            ) from None

    def _sweep(self) -> None:
        """Remove what killed runs left: a living writer holds its lock, and the system lets go of a dead one's."""
        for leftover in self.folder.glob(f"{_WRITING}*"):
            with suppress(OSError):
                if (leftover / _LOCK).exists() or time.time() - leftover.stat().st_mtime > _ABANDONED_SECONDS:
                    _removed(leftover)


class Writer:
    """Appends images to an entry that becomes visible at `commit`, under a key that may only be known by then."""

    def __init__(self, cache: Cache, shapes: Shapes, dtype: np.dtype = BYTES) -> None:
        self._cache, self._shapes, self._dtype, self._count = cache, shapes, dtype, 0
        # Not tempfile.mkdtemp: its mode 0700 would lock everyone else out of a shared cache.
        self._folder = cache.folder / f"{_WRITING}{secrets.token_hex(8)}"
        self._folder.mkdir()
        self._lock = FileLock(self._folder / _LOCK)
        self._lock.acquire()
        self._streams = {name: open(self._folder / f"{name}.npy", "wb") for name in self._shapes}  # noqa: SIM115 (see `close`)
        self._write_headers()

    def append(self, **chunk: np.ndarray) -> None:
        """So many images (n, h, w, c) to each array; written, not mapped, so the process never holds more than these."""
        count = len(chunk["pixels"])
        for name, shape in self._shapes.items():
            images = chunk[name]
            if images.dtype != self._dtype or images.shape != (count, *shape):
                raise ValueError(f"expected {self._dtype} {shape}, got {images.dtype} {images.shape[1:]}")
            with self._cache.explained():
                self._streams[name].write(np.ascontiguousarray(images).data)
        self._count += count

    def commit(self, key: str, facts: dict[str, Any]) -> Stored:
        """Make the entry visible; if another run was first, its equal entry is used."""
        facts = {**facts, "shape": [self._count, *self._shapes["pixels"]], "bits": 8 * self._dtype.itemsize}
        if "frames" in self._shapes:
            facts["frames"] = [self._count, *self._shapes["frames"]]
        final = self._cache.folder / key
        with self._cache.explained():
            # numpy leaves room in the header for the first axis to grow, so the length stays what it was.
            for stream in self._streams.values():
                stream.seek(0)
            self._write_headers()
            for stream in self._streams.values():
                _sync(stream)
            with open(self._folder / "facts.json", "w", encoding="utf-8") as stream:
                json.dump(facts, stream)
                _sync(stream)
            os.unlink(self._folder / _LOCK)
            _sync_names(self._folder)
            try:
                os.rename(self._folder, final)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            _sync_names(self._cache.folder)
        stored = self._cache.read(key)
        if stored is None:
            raise InputError(f"the cache entry {printable(str(final))} was removed while it was made: run again")
        return stored

    def close(self) -> None:
        for stream in self._streams.values():
            with suppress(OSError):  # a full disk was reported when it was met; the rest of the buffer is not wanted
                stream.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._lock.release()

    def _write_headers(self) -> None:
        for name, stream in self._streams.items():
            header = {"descr": self._dtype.str, "fortran_order": False, "shape": (self._count, *self._shapes[name])}
            np.lib.format.write_array_header_1_0(stream, header)


def _removed(folder: Path) -> bool:
    """Whether it went: one whose lock a living writer holds stays."""
    if not folder.is_dir():
        folder.unlink(missing_ok=True)
        return True
    if not (folder / _LOCK).exists():
        shutil.rmtree(folder, ignore_errors=True)
        return True
    with suppress(Timeout), FileLock(folder / _LOCK, timeout=0):
        shutil.rmtree(folder, ignore_errors=True)
        return True
    return False


_KINDS = {1: "grey", 3: "colour"}


def _described(path: Path) -> str:
    if path.name.startswith(_WRITING):
        return "unfinished"
    if path.name.startswith("stream-"):
        return "items of a stream"
    try:
        n, height, width, channels = json.loads((path / "facts.json").read_text("utf-8"))["shape"]
        return f"{int(n)} images of {int(width)}x{int(height)}, {_KINDS.get(channels, f'{int(channels)} channels')}"
    except (OSError, ValueError, KeyError, TypeError):
        return "damaged"


def _mapped(path: Path) -> np.ndarray:
    """Copy-on-write: the file cannot be changed, yet torch, which warns about arrays it may not write to, is content.

    The system can refuse such a mapping of more than its memory, since all of it might be written; one to read it never
    refuses.
    """
    try:
        return np.load(path, mmap_mode="c", allow_pickle=False)
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        return np.load(path, mmap_mode="r", allow_pickle=False)


def _sync_names(folder: Path) -> None:
    with suppress(OSError):  # some file systems of a network cannot, and the entry is whole without it
        sync(folder)


def _sync(stream: IO) -> None:
    stream.flush()
    os.fsync(stream.fileno())
