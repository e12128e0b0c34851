"""Image files of a folder or archive looked through for duplicates: a fingerprint of each, all pixels of a few."""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sao.data.dataset import Images
from sao.data.files.cache import Cache
from sao.data.files.decode import Failure, Loaded, Picture, Recipe, decode, quiet, read
from sao.data.files.images import CRASHED, Folder, PathList, over_files
from sao.data.files.open import source_or_kind
from sao.data.files.reading import ReadOptions, Skipped, Source, first_of
from sao.errors import InputError, printable
from sao.search.duplicates import Group, Known, with_equal_pixels
from sao.search.fingerprints import Fingerprint, fingerprint_chunk, pixel_digest


@dataclass(frozen=True, eq=False)
class LookedThrough:
    """The readable images of a source: what is known of them, and what was skipped."""

    source: Source
    places: np.ndarray  # (n,) of the images among the entries of the source
    known: Known
    sizes: list[tuple[int, int]]  # width and height
    grey: bool  # every one of them
    skipped: list[Skipped]

    @property
    def images(self) -> Images:
        assert self.known.thumbnails is not None
        return Images(self.known.thumbnails[..., :1] if self.grey else self.known.thumbnails, names=self.known.names)

    def tell_equal_pixels(self, groups: list[Group]) -> list[Group]:
        """The groups, with copies that differ in their files alone named so; only these files are decoded whole."""
        wanted = {row for group in groups if group.kind == "near" for row in group.rows}
        return with_equal_pixels(groups, {row: pixel_digest(item) for row, item in self._items(wanted)})

    def pictures(self, rows: set[int], side: int) -> dict[int, np.ndarray]:
        """Whole images, each in a square (side, side, 3); without those that can no longer be read."""
        return {row: pixels for row, item in self._items(rows) if (pixels := _square(item, side)) is not None}

    def path(self, row: int) -> str | None:
        """Of the file, where it is one of a folder."""
        name = self.source.entries[self.places[row]].name
        return os.path.join(self.source.root, name) if isinstance(self.source, Folder) else None

    def _items(self, rows: set[int]) -> Iterator[tuple[int, Loaded]]:
        of_place = {int(self.places[row]): row for row in rows}
        if of_place:
            yield from ((of_place[place], item) for place, item in enumerate(self.source.load()) if place in of_place)


def pictures_by_name(path: str | Sequence[str], names: Collection[str], side: int) -> dict[str, np.ndarray]:
    """Whole images of these names in a folder or archive, or among these files, as squares (side, side, 3).

    Without those that cannot be read, and with none where the path holds no image files.
    """
    source = source_or_kind(Path(path), Cache().folder) if isinstance(path, str) else PathList(path)
    if not isinstance(source, Source):
        return {}
    wanted = set(names)
    items = zip((printable(entry.name) for entry in source.entries), source.load(), strict=True)
    squares = ((name, _square(item, side)) for name, item in items if name in wanted)
    return {name: pixels for name, pixels in squares if pixels is not None}


def _square(item: Loaded, side: int) -> np.ndarray | None:
    with quiet():
        picture = decode(read(item), Recipe(side, 3, "pad"))
    return picture.pixels if isinstance(picture, Picture) else None


def look_through(path: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None) -> LookedThrough:
    where = printable(os.fspath(path))
    source = source_or_kind(Path(path), Cache().folder)
    if not isinstance(source, Source):
        raise InputError(f"{where} holds no image files: give a folder or an archive of images, or features by --features")
    chunks = over_files(fingerprint_chunk, source, ReadOptions(where, progress=progress), lambda _: CRASHED, 0, 1)
    found, entries = [one for chunk in chunks for one in chunk], source.entries
    places = np.array([place for place, one in enumerate(found) if isinstance(one, Fingerprint)], np.int64)
    usable = [one for one in found if isinstance(one, Fingerprint)]
    failed = [(entry, one) for entry, one in zip(entries, found, strict=True) if isinstance(one, Failure)]
    skipped = source.skipped + [Skipped(printable(entry.name), one.reason) for entry, one in failed]
    if not usable:
        raise InputError(f"{where} has no usable image{first_of(skipped)}: give PNG, JPEG, WebP, BMP, TIFF or GIF files")
    sizes = [(one.header.width, one.header.height) for one in usable]
    known = Known(
        [printable(entries[place].name) for place in places],
        thumbnails=np.stack([one.thumbnail for one in usable]),
        file_digests=[one.file_digest for one in usable],
        areas=np.array([width * height for width, height in sizes]),
        file_sizes=np.array([entries[place].size for place in places]),
    )
    return LookedThrough(source, places, known, sizes, all(one.header.grey for one in usable), skipped)
