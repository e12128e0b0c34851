"""Everything usable that a path holds, before it is split: `take` makes samples of ascending rows."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sao.data.arrays import ArrayImages
from sao.data.cache import Cache
from sao.data.samples import Images, Vectors
from sao.data.split import Labels
from sao.data.tables import Standardiser

# Rows that are not one run of a mapped array have to be copied: in memory up to this, beyond it into the cache.
IN_MEMORY_BYTES = 512 * 2**20
_BLOCK_BYTES = 16 * 2**20

Parts = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class UnsplitImages:
    """Images in the cache (an array) or still to be converted from the user's own arrays.

    `key` names their contents, asked for only if a copy goes to the cache, because it may take reading a large file.
    """

    pixels: np.ndarray | ArrayImages
    key: Callable[[], str]
    cache: Cache
    names: list[str]
    labels: Labels | None
    parts: Parts | None

    def take(self, rows: np.ndarray) -> Images:
        labels = self.labels
        names = [self.names[i] for i in rows]
        if labels is None:
            return Images(self._pixels_of(rows), None, names)
        return Images(self._pixels_of(rows), labels.codes[rows], names, labels.names)

    def _pixels_of(self, rows: np.ndarray) -> np.ndarray:
        pixels = self.pixels
        if isinstance(pixels, ArrayImages):
            shape = (pixels.recipe.size, pixels.recipe.size, pixels.recipe.channels)
            blocks = pixels.blocks(rows)
        else:
            if rows[-1] - rows[0] + 1 == len(rows):
                return pixels[rows[0] : rows[-1] + 1]  # stays mapped
            shape = (pixels.shape[1], pixels.shape[2], pixels.shape[3])
            step = max(1, _BLOCK_BYTES // int(np.prod(shape)))
            blocks = (pixels[rows[i : i + step]] for i in range(0, len(rows), step))
        if len(rows) * int(np.prod(shape)) <= IN_MEMORY_BYTES:
            return np.concatenate(list(blocks))
        key = f"{self.key()}-{hashlib.blake2b(rows.astype(np.int64).tobytes(), digest_size=8).hexdigest()}"
        if (stored := self.cache.read(key)) is not None:
            return stored.pixels
        with self.cache.writer(shape, len(rows)) as writer:
            for block in blocks:
                writer.append(block)
            return writer.commit(key, {}).pixels


@dataclass(frozen=True)
class UnsplitVectors:
    """Rows float64 (n, d) as they were in the file."""

    columns: list[str]
    values: np.ndarray
    names: list[str]
    labels: Labels | None
    parts: Parts | None

    def take(self, rows: np.ndarray, standardiser: Standardiser | None) -> Vectors:
        values = self.values[rows]
        scaled = values.astype(np.float32) if standardiser is None else standardiser.apply(values)
        names = [self.names[i] for i in rows]
        if self.labels is None:
            return Vectors(scaled, None, names)
        return Vectors(scaled, self.labels.codes[rows], names, self.labels.names)
