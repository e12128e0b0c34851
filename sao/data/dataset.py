"""Images and Vectors: what a data source returns, with one interface for training, evaluation and export."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sao.data.rows import Rows, select_rows
from sao.errors import InputError


@dataclass(frozen=True, eq=False)
class Frames:
    """Whole pictures: uint8 (n, s, s, c), squashed to squares whatever their shape, with width over height of each (n,).

    Training sees random crops of them, which keep at least the share `crop` of the area.
    """

    pixels: Rows
    aspects: np.ndarray
    crop: float

    def select(self, rows: np.ndarray) -> "Frames":
        return Frames(select_rows(self.pixels, rows), self.aspects[rows], self.crop)


@dataclass(frozen=True, eq=False)
class Images:
    """uint8 pixels (n, h, w, c), in memory, memory-mapped or an index of such; labels are for evaluation only.

    Where there are `frames`, a step of training learns from crops of them; everything else looks at the pixels.
    """

    pixels: Rows
    labels: np.ndarray | None = None
    names: Sequence[str] | None = None
    class_names: Sequence[str] | None = None
    frames: Frames | None = None

    def __post_init__(self) -> None:
        if self.pixels.dtype != np.uint8 or self.pixels.ndim != 4:
            raise InputError(f"images must be uint8 of shape (n, h, w, c), got {self.pixels.dtype} {self.pixels.shape}")
        _check_rows(len(self.pixels), self.labels, self.names)

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample as a network sees it: (c, h, w)."""
        height, width, channels = self.pixels.shape[1:]
        return channels, height, width

    def inputs(self, rows: np.ndarray | slice, device: torch.device | str = "cpu") -> Tensor:
        """Network input for these rows: float32 (n, c, h, w) in [-1, 1], made on the device, to which bytes are sent."""
        # A part of a file that is mapped to be read only is copied: torch warns of what it may not write to.
        pixels = torch.from_numpy(np.require(self.pixels[rows], requirements=("C", "W")))
        return pixels_to_inputs(pixels.to(device))

    def select(self, rows: np.ndarray) -> "Images":
        frames = None if self.frames is None else self.frames.select(rows)
        return Images(select_rows(self.pixels, rows), *_selected(rows, self.labels, self.names), self.class_names, frames)


@dataclass(frozen=True, eq=False)
class Vectors:
    """float32 rows (n, d), already in the scale that a network should see (see `length_scale` in sources)."""

    rows: np.ndarray
    labels: np.ndarray | None = None
    names: Sequence[str] | None = None
    class_names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.rows.dtype != np.float32 or self.rows.ndim != 2:
            raise InputError(f"vectors must be float32 of shape (n, d), got {self.rows.dtype} {self.rows.shape}")
        _check_rows(len(self.rows), self.labels, self.names)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.rows.shape[1:]

    def inputs(self, rows: np.ndarray | slice, device: torch.device | str = "cpu") -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(self.rows[rows])).to(device)

    def select(self, rows: np.ndarray) -> "Vectors":
        return Vectors(self.rows[rows], *_selected(rows, self.labels, self.names), self.class_names)


Samples = Images | Vectors


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training part and a held-out part; both have labels or neither has."""

    name: str
    train: Samples
    test: Samples

    @property
    def classes(self) -> int | None:
        labels = self.train.labels
        return None if labels is None else int(labels.max()) + 1


def pixels_to_inputs(pixels: Tensor) -> Tensor:
    """uint8 (n, h, w, c) → float32 (n, c, h, w) in [-1, 1], on the tensor's own device."""
    return pixels.permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format).div_(127.5).sub_(1.0)


def _check_rows(n: int, labels: np.ndarray | None, names: Sequence[str] | None) -> None:
    if labels is not None and len(labels) != n:
        raise InputError(f"there are {n} samples but {len(labels)} labels: give one label for each sample, or none")
    if names is not None and len(names) != n:
        raise InputError(f"there are {n} samples but {len(names)} names: give one name for each sample, or none")


def _selected(
    rows: np.ndarray, labels: np.ndarray | None, names: Sequence[str] | None
) -> tuple[np.ndarray | None, list[str] | None]:
    kept_labels = None if labels is None else labels[rows]
    kept_names = None if names is None else [str(names[i]) for i in np.arange(len(names))[rows]]
    return kept_labels, kept_names
