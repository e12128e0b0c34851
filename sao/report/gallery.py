"""The samples that a page shows: all of a folder, those held out marked, each with its file where it has one."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import torch
from torch.nn.functional import adaptive_avg_pool2d

from sao.data.dataset import Dataset, Images, Samples
from sao.data.files.decode import Header, Loaded, Picture, Recipe, decode_chunk, inspect_chunk
from sao.data.files.images import Folder, PathList
from sao.data.files.open import source_or_kind
from sao.data.files.reading import Source
from sao.data.files.workers import map_in_order
from sao.data.named import NAMES
from sao.data.split import SLICE
from sao.errors import InputError, printable
from sao.evaluation.evaluator import chosen_rows
from sao.evaluation.extract import Function, extract
from sao.runtime.machine import usable_cores

CHUNK = 64  # files that are decoded at once
ALONE = 1000  # files: below it a second process takes longer to start than it saves
MISSING = 127  # grey, where a file is gone
WHOLE = 32  # pixels a side of the pictures that duplicates are found by


@dataclass(frozen=True, eq=False)
class Gallery:
    """Rows of one or two parts (training and test set), one after the other; axes: n samples."""

    parts: Sequence[Samples]
    rows: Sequence[np.ndarray]
    held_out: np.ndarray | None  # (n,) where there are two parts
    total: int  # samples that there are: more than n where they would not fit on a page

    @classmethod
    def of(cls, data: Dataset | Samples, limit: int, seed: int = 0) -> "Gallery":
        """All samples; of more than `limit` some of each part, in proportion."""
        parts = [data.train, data.test] if isinstance(data, Dataset) else [data]
        total = sum(map(len, parts))
        share = min(1.0, limit / total)
        rows = [chosen_rows(len(part), part.labels, max(1, int(share * len(part))), seed) for part in parts]
        held_out = np.repeat([False, True], [len(some) for some in rows]) if len(parts) == 2 else None
        return cls(parts, rows, held_out, total)

    def __len__(self) -> int:
        return sum(map(len, self.rows))

    @cached_property
    def names(self) -> list[str]:
        """Of files the paths below the folder."""
        kinds = ("training", "held-out") if len(self.parts) == 2 else ("sample",)
        found = []
        for kind, part, rows in zip(kinds, self.parts, self.rows, strict=True):
            found += [f"{kind} {row}" if part.names is None else str(part.names[row]) for row in rows.tolist()]
        return found

    @cached_property
    def labels(self) -> np.ndarray | None:
        if any(part.labels is None for part in self.parts):
            return None
        return self.each(lambda part, rows: part.labels[rows])  # pyright: ignore

    @property
    def classes(self) -> list[str] | None:
        if self.labels is None:
            return None
        names = self.parts[0].class_names
        count = int(self.labels.max()) + 1
        return [str(names[code]) if names is not None and code < len(names) else str(code) for code in range(count)]

    @property
    def pixels(self) -> "JoinedPixels | None":
        """Of the images that the network sees, as bytes; None of vectors."""
        images = [part for part in self.parts if isinstance(part, Images)]
        return JoinedPixels(images, self.rows) if images else None

    @property
    def plain(self) -> bool:
        """Whether each sample is a picture file as any viewer shows it: 8 bits, grey or colour, one image a file."""
        images = [part for part in self.parts if isinstance(part, Images)]
        usual = all(part.levels is None and part.shape[0] in (1, 3) for part in images)
        return usual and not any(SLICE in name for name in self.names)

    def features(self, function: Function, device: torch.device) -> np.ndarray:
        return self.each(lambda part, rows: extract(function, part, device, rows=rows))

    def each(self, function: Callable[[Samples, np.ndarray], np.ndarray]) -> np.ndarray:
        """What a function makes of the rows of each part, as one array."""
        return np.concatenate([function(part, rows) for part, rows in zip(self.parts, self.rows, strict=True)])

    def inputs(self, places: np.ndarray) -> torch.Tensor:
        """Network inputs of samples by their places in the gallery, which must ascend."""
        found, start = [], 0
        for part, rows in zip(self.parts, self.rows, strict=True):
            own = places[(places >= start) & (places < start + len(rows))] - start
            if len(own):
                found.append(part.inputs(rows[own]))
            start += len(rows)
        return torch.cat(found)


class JoinedPixels:
    """uint8 (n, h, w, c) of several parts; slices are copied, so that the whole is never in memory."""

    def __init__(self, parts: Sequence[Images], rows: Sequence[np.ndarray]) -> None:
        self._parts, self._part = parts, np.repeat(np.arange(len(parts)), [len(some) for some in rows])
        self._row = np.concatenate(list(rows))
        self.shape = (len(self._row), *parts[0].pixels.shape[1:])

    def __len__(self) -> int:
        return len(self._row)

    def __getitem__(self, which: Any) -> np.ndarray:
        part, row = self._part[which], self._row[which]
        found = np.empty((len(row), *self.shape[1:]), np.uint8)
        for number, images in enumerate(self._parts):
            own = part == number
            found[own] = images.bytes[row[own]]
        return found


class Originals:
    """The image files behind the samples of a gallery."""

    def __init__(self, source: Source, fit: str) -> None:
        self._source, self._fit = source, fit
        self._of_name: dict[str, int] = {}
        for index, entry in enumerate(source.entries):
            self._of_name.setdefault(printable(entry.name), index)

    @classmethod
    def of(cls, path: str, fit: str) -> "Originals | None":
        """Of a folder, an archive or a list; None of what has no image files, or is gone."""
        if path in NAMES:
            return None
        try:
            source = source_or_kind(Path(path))
        except InputError:
            return None
        return cls(source, fit) if isinstance(source, Source) else None

    def read(self, names: Sequence[str], side: int) -> "Files":
        """What the page and the search for duplicates need to know of these files, from one reading of each."""
        wanted = {self._of_name[name]: place for place, name in enumerate(names) if name in self._of_name}
        found = Files.empty(len(names), side)
        work = partial(decode_chunk, recipe=Recipe(side, 3, self._fit, frame=max(side, WHOLE)))
        order = iter(sorted(wanted))
        workers = usable_cores() if len(wanted) > ALONE else 1
        for results in map_in_order(work, self._chunks(set(wanted)), workers, lambda item: (None, b"")):
            for pictures, digest in results:
                index = next(order)
                if isinstance(pictures, list):
                    found.put(wanted[index], pictures[0], digest, self._source.entries[index].size)
        return found

    def largest_side(self, names: Sequence[str]) -> int:
        """Of a few files: thumbnails need not be larger."""
        some = set([self._of_name[name] for name in names if name in self._of_name][:: max(1, len(names) // 32)])
        sides = [
            min(header.width, header.height)
            for chunk in self._chunks(some)
            for header in inspect_chunk(chunk)
            if isinstance(header, Header)
        ]
        return max(sides, default=MISSING)

    def _chunks(self, wanted: set[int]) -> Iterator[list[Loaded]]:
        chunk: list[Loaded] = []
        for index, item in enumerate(self._source.load()):
            if index in wanted:
                chunk.append(item)
            if len(chunk) == CHUNK:
                yield chunk
                chunk = []
        if chunk:
            yield chunk

    def links(self, names: Sequence[str], page: Path) -> list[str | None] | None:
        """An address of each file, relative to the page; None where files lie in an archive.

        It begins with a dot, so that no file name can be an address of another kind, and every odd letter is escaped.
        """
        if not isinstance(self._source, Folder | PathList):
            return None
        paths, start = list(self._source.load()), os.path.realpath(page.parent)

        def link(name: str) -> str | None:
            index = self._of_name.get(name, self._of_name.get(name.rpartition(SLICE)[0]))
            path = None if index is None else paths[index]
            if not isinstance(path, str):
                return None
            return quote(os.fsencode("./" + os.path.relpath(path, start).replace(os.sep, "/")), safe="/")

        return list(map(link, names))


@dataclass(frozen=True, eq=False)
class Files:
    """Of n files: a square tile, the whole picture squashed into a small square, a digest, and how large they are."""

    tiles: np.ndarray  # uint8 (n, side, side, 3)
    whole: np.ndarray  # uint8 (n, WHOLE, WHOLE, 3)
    digests: list[bytes]
    areas: np.ndarray  # (n,) pixels
    sizes: np.ndarray  # (n,) bytes

    @classmethod
    def empty(cls, n: int, side: int) -> "Files":
        tiles, whole = (np.full((n, pixels, pixels, 3), MISSING, np.uint8) for pixels in (side, WHOLE))
        return cls(tiles, whole, [b"missing %d" % i for i in range(n)], np.zeros(n, np.int64), np.zeros(n, np.int64))

    def put(self, place: int, picture: Picture, digest: bytes, size: int) -> None:
        assert picture.frames is not None
        self.tiles[place], self.digests[place] = picture.pixels, digest
        whole = torch.from_numpy(picture.frames.copy()).permute(2, 0, 1).float()
        self.whole[place] = adaptive_avg_pool2d(whole, WHOLE).round().byte().permute(1, 2, 0).numpy()
        self.areas[place], self.sizes[place] = picture.header.width * picture.header.height, size
