"""Images that are objects in Python (pictures, arrays, paths, bytes) as a source like any other."""

import io
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from PIL import Image

from sao.data.file_source import Entry, Skipped
from sao.data.files.decode import Failure, Loaded, eight_bits, quiet
from sao.errors import InputError, printable


class Items:
    """`get(i)` is the i-th image. Nothing is kept: what is decoded lies in the cache, mapped from disk."""

    def __init__(self, count: int, get: Callable[[int], Any], names: Sequence[str], digest: bytes | None = None) -> None:
        self.entries = [Entry(name, 0) for name in names]
        self.skipped: list[Skipped] = []
        self._count, self._get, self._digest = count, get, digest

    def load(self) -> Iterator[Loaded]:
        for index in range(self._count):
            yield loaded(lambda index=index: self._get(index))

    def digest(self) -> bytes | None:
        return self._digest


class PathList:
    """Files by their paths, each as a person named it: links are followed."""

    def __init__(self, paths: Sequence[str | os.PathLike[str]], base: str = "") -> None:
        self.entries: list[Entry] = []
        self.skipped: list[Skipped] = []
        self._paths: list[str] = []
        for path in paths:
            name = os.fspath(path)
            real = os.path.realpath(os.path.join(base, os.path.expanduser(name)))
            self._paths.append(real)
            self.entries.append(Entry(name, os.path.getsize(real) if os.path.isfile(real) else 0))

    def load(self) -> Iterator[Loaded]:
        yield from self._paths

    def digest(self) -> bytes | None:
        return None


def loaded(get: Callable[[], Any]) -> Loaded:
    """An image as the bytes of a file, without loss; what raises an error is one item that is not used."""
    try:
        item = get()
    except InputError:
        raise
    except Exception as error:  # a data set of someone else's may raise anything
        return Failure(f"{type(error).__name__}: {printable(str(error))[:100]}")
    return encoded(item)


def encoded(item: Any) -> Loaded:
    if isinstance(item, dict) and {"bytes", "path"} & item.keys():  # Hugging Face's way to store an image
        item = item.get("bytes") or item.get("path")
    if isinstance(item, bytes | bytearray | memoryview):
        return bytes(item)
    if isinstance(item, str | os.PathLike):
        return os.path.realpath(os.path.expanduser(item))
    try:
        with quiet():
            return _file_of(item if isinstance(item, Image.Image) else picture_of(item))
    except (ValueError, TypeError, OSError) as error:
        return Failure(f"not an image: {printable(str(error))[:100]}")


def picture_of(array: Any) -> Image.Image:
    """(h, w), (h, w, c) or (c, h, w): uint8, or floating-point numbers from 0 to 1."""
    values = np.asarray(array.detach().cpu() if type(array).__module__.startswith("torch") else array)
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
