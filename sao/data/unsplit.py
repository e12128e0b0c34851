"""Everything usable that a path holds, before it is split: `take` makes samples of ascending rows."""

from dataclasses import dataclass

import numpy as np

from sao.data.dataset import Frames, Images, Vectors
from sao.data.file_source import Skipped
from sao.data.files.tables import Standardiser
from sao.data.rows import select_rows
from sao.data.split import Labels

Parts = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class UnsplitImages:
    """Images (n, h, w, c) as bytes, mostly mapped from the cache, and whole frames where training is to see crops of them."""

    pixels: np.ndarray
    names: list[str]
    labels: Labels | None
    parts: Parts | None
    frames: Frames | None = None

    def take(self, rows: np.ndarray, to_train: bool = False) -> Images:
        pixels, names = select_rows(self.pixels, rows), [self.names[i] for i in rows]
        frames = self.frames.select(rows) if self.frames is not None and to_train else None
        if self.labels is None:
            return Images(pixels, None, names, frames=frames)
        return Images(pixels, self.labels.codes[rows], names, self.labels.names, frames)


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


Read = tuple[UnsplitImages | UnsplitVectors, list[Skipped], list[str]]  # with what was left out, and sentences to print
