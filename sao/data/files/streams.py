"""Images that are objects in Python (pictures, arrays, paths, bytes) as sources of files like any other.

What can be read only once, and may be larger than memory, is written to the cache as it comes, with an index. A stream that was
cut short goes on where it stopped: what is in the index is not asked for again as files, only passed over.
"""

import hashlib
import io
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from PIL import Image

from sao.data.files.cache import Cache
from sao.data.files.decode import Failure, Loaded, eight_bits, quiet, read
from sao.data.files.reading import Entry, Progress, Source
from sao.data.files.stacks import has_tifffile
from sao.errors import InputError, printable

KNOWN_BY = 8  # items by which a stream is known again
BODY, INDEX, END = "items.bin", "index.jsonl", "complete"


class Items(Source):
    """`get(i)` is the i-th image. Nothing is kept: what is decoded lies in the cache, mapped from disk."""

    def __init__(self, get: Callable[[int], Any], names: Sequence[str], digest: bytes | None = None) -> None:
        super().__init__()
        self.entries = [Entry(name, 0) for name in names]
        self._get, self._digest = get, digest

    def load(self) -> Iterator[Loaded]:
        for index in range(len(self.entries)):
            try:
                item = self._get(index)
            except InputError:
                raise
            except Exception as error:  # a data set of someone else's may raise anything: it costs this item
                yield Failure(_short(error))
                continue
            yield encoded(item)

    def digest(self) -> bytes | None:
        return self._digest


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {printable(str(error))[:100]}"


# --- one object as the bytes of a file -----------------------------------------------------------------------------------


def encoded(item: Any) -> Loaded:
    """Without loss. A path is followed wherever it leads: the person who made the object could open it too."""
    if isinstance(item, dict) and {"bytes", "path"} & item.keys():  # Hugging Face's way to store an image
        item = item.get("bytes") or item.get("path")
    if isinstance(item, bytes | bytearray | memoryview):
        return bytes(item)
    if isinstance(item, str | os.PathLike):
        return os.path.realpath(os.path.expanduser(item))
    try:
        with quiet():
            if isinstance(item, Image.Image):
                return _file_of(item)
            values = _array_of(item)
            return _file_of(_picture_of(values)) if _is_picture(values) else _stack_of(values)
    except (ValueError, TypeError, OSError) as error:
        return Failure(f"not an image: {printable(str(error))[:100]}")


def _array_of(item: Any) -> np.ndarray:
    return np.asarray(item.detach().cpu() if type(item).__module__.startswith("torch") else item)


def _is_picture(values: np.ndarray) -> bool:
    """Grey or colour of 8 bits; all else needs a format that can hold it."""
    usual = values.ndim != 3 or values.shape[2] in (1, 3, 4) or values.shape[0] in (1, 3, 4)
    return usual and not (values.dtype == np.uint16 and values.size and values.max() > 255)


def _stack_of(values: np.ndarray) -> bytes:
    """(h, w), (h, w, c) or (c, h, w) of any number of channels: one page of TIFF, on which they are planes."""
    if not has_tifffile():
        raise ValueError(f"{values.dtype} {values.shape} needs tifffile: pip install 'sao[tiff]'")
    import tifffile

    if values.dtype.kind not in "iuf" or values.ndim not in (2, 3):
        raise ValueError(f"got {values.dtype} {values.shape}")
    stream = io.BytesIO()
    if values.ndim == 3 and values.shape[2] < min(values.shape[:2]):
        values = np.moveaxis(values, 2, 0)
    planes = {"planarconfig": "separate"} if values.ndim == 3 and len(values) > 1 else {}
    values = values.astype(np.float32) if values.dtype == np.float64 else values
    tifffile.imwrite(stream, np.ascontiguousarray(values), photometric="minisblack", metadata=None, **planes)  # pyright: ignore
    return stream.getvalue()


def _picture_of(values: np.ndarray) -> Image.Image:
    """(h, w), (h, w, c) or (c, h, w): uint8, or floating-point numbers from 0 to 1."""
    if values.ndim == 3 and values.shape[2] not in (1, 3, 4) and values.shape[0] in (1, 3, 4):
        values = values.transpose(1, 2, 0)
    if values.ndim not in (2, 3) or values.dtype.kind not in "biuf":
        raise ValueError(f"got {values.dtype} {values.shape}")
    if values.dtype.kind == "f":
        if not (np.isfinite(values).all() and values.min() >= 0 and values.max() <= 1):
            raise ValueError("floating-point pixels outside 0..1")
        values = values * 255 + 0.5
    elif values.dtype != np.uint8 and (values.min() < 0 or values.max() > 255):
        raise ValueError("pixels outside 0..255")
    values = values.astype(np.uint8)
    return Image.fromarray(values[..., 0] if values.ndim == 3 and values.shape[2] == 1 else values)


def _file_of(image: Image.Image) -> bytes:
    """Without compression where the format can hold it."""
    stream = io.BytesIO()
    plain = eight_bits(image)
    if plain.mode in ("L", "RGB"):
        plain.save(stream, "BMP")
    else:
        plain.save(stream, "PNG", compress_level=1)
    return stream.getvalue()


# --- streams -------------------------------------------------------------------------------------------------------------


class Spool(Source):
    """The images of a stream, as files one behind another, and where each begins."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self._places = [json.loads(line) for line in (folder / INDEX).read_text(encoding="utf-8").splitlines()]
        self.entries = [Entry(f"row {row}", length) for row, (_, length, _) in enumerate(self._places)]

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
        raise InputError(f"the stream broke off ({_short(error)}); what came before is kept: begin again to go on") from None


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
