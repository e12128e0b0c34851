"""Some rows of an array: a split of a large data set is an index, and its rows are read when they are asked for."""

import mmap
from typing import Any

import numpy as np

IN_MEMORY_BYTES = 512 * 2**20  # what is copied without a second thought


class SelectedRows:
    """`array[rows]` as far as the samples need it; indexing reads from the array, which may be mapped from disk."""

    def __init__(self, array: np.ndarray, rows: np.ndarray) -> None:
        self.array, self.rows = array, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: Any) -> np.ndarray:
        """A copy of these rows; behind the rows, indices of the other axes may follow."""
        first, *others = key if isinstance(key, tuple) else (key,)
        return self.array[(self.rows[first], *others)]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("selected rows of an array can only be copied")
        return np.asarray(self[:], dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.rows), *self.array.shape[1:]

    @property
    def ndim(self) -> int:
        return self.array.ndim

    @property
    def dtype(self) -> np.dtype:
        return self.array.dtype

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape)) * self.dtype.itemsize


Rows = np.ndarray | SelectedRows


def select_rows(array: Rows, rows: np.ndarray) -> Rows:
    """Rows of an array: a part of it where they are one run, copied into memory where they are few, else an index."""
    if isinstance(array, SelectedRows):
        array, rows = array.array, array.rows[rows]
    if rows.dtype == bool:
        rows = np.flatnonzero(rows)
    if len(rows) and np.array_equal(rows, np.arange(rows[0], rows[0] + len(rows))):
        return array[rows[0] : rows[0] + len(rows)]
    selected = SelectedRows(array, rows)
    return selected[:] if selected.nbytes <= IN_MEMORY_BYTES else selected


def read_rows(array: Rows, rows: np.ndarray, into: np.ndarray) -> None:
    """Copy rows into an array of as many, in the order in which they lie: so a disk reads forwards."""
    if isinstance(array, SelectedRows):
        array, rows = array.array, array.rows[rows]
    order = np.argsort(rows)
    if isinstance(array, np.memmap) and array.flags.c_contiguous:
        _ask_for(array, rows[order])
    into[order] = array[rows[order]]


def _ask_for(array: np.memmap, rows: np.ndarray) -> None:
    """Let the system fetch rows of a file side by side. It would read each when it is touched, and megabytes around it."""
    mapping = getattr(array, "_mmap", None)
    if mapping is None or not hasattr(mmap, "MADV_WILLNEED"):
        return
    start = array.ctypes.data - np.frombuffer(mapping, np.uint8).ctypes.data
    row_bytes = array.strides[0]
    for row in rows.tolist():
        first, end = start + row * row_bytes, start + (row + 1) * row_bytes
        first -= first % mmap.PAGESIZE
        mapping.madvise(mmap.MADV_WILLNEED, first, end - first)
