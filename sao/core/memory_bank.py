"""A ring of past embeddings and the keys by which they are found."""

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from sao.core.finite import check_finite


class MemoryBank(nn.Module):
    """Rows (embedding, key) of the latest real samples, in buffers; their number is known without waiting for the device."""

    embeddings: Tensor
    keys: Tensor
    cursor: Tensor
    filled: Tensor

    def __init__(self, capacity: int, embedding_size: int, key_size: int, dataset_size: int | None = None) -> None:
        super().__init__()
        for name, value in (("capacity", capacity), ("embedding_size", embedding_size), ("key_size", key_size)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if dataset_size is not None and capacity >= dataset_size:
            warnings.warn(
                f"a memory bank of {capacity} rows is not smaller than the data set ({dataset_size}): "
                "a query would find its own older copy; choose a smaller bank",
                stacklevel=2,
            )
        self.register_buffer("embeddings", torch.zeros(capacity, embedding_size))
        self.register_buffer("keys", torch.zeros(capacity, key_size))
        self.register_buffer("cursor", torch.zeros((), dtype=torch.int64))
        self.register_buffer("filled", torch.zeros((), dtype=torch.int64))
        self._next = self._rows = 0

    @property
    def capacity(self) -> int:
        return len(self.embeddings)

    def __len__(self) -> int:
        return self._rows

    def push(self, embeddings: Tensor, keys: Tensor) -> None:
        """Append rows in order; of a batch larger than the bank only the last rows stay. NaN and inf are refused."""
        check_finite("embeddings holds", embeddings)
        check_finite("keys holds", keys)
        self.push_unchecked(embeddings, keys)

    @torch.no_grad()
    def push_unchecked(self, embeddings: Tensor, keys: Tensor) -> None:
        """The same without a look at the values, which waits for the device: for a training step."""
        for name, rows, buffer in (("embeddings", embeddings, self.embeddings), ("keys", keys, self.keys)):
            if rows.ndim != 2 or rows.shape[1] != buffer.shape[1]:
                raise ValueError(f"{name} must have shape (n, {buffer.shape[1]}), got {tuple(rows.shape)}")
            if len(rows) == 0:
                raise ValueError(f"{name} is empty")
        if len(embeddings) != len(keys):
            raise ValueError(f"keys has {len(keys)} rows for {len(embeddings)} embeddings")
        n = len(embeddings)
        kept = min(n, self.capacity)
        rows = (self._next + torch.arange(n - kept, n, device=self.embeddings.device)) % self.capacity
        self.embeddings[rows] = embeddings[n - kept :].to(self.embeddings)
        self.keys[rows] = keys[n - kept :].to(self.keys)
        self._next, self._rows = (self._next + n) % self.capacity, min(self._rows + n, self.capacity)
        self.cursor.fill_(self._next)
        self.filled.fill_(self._rows)

    def contents(self) -> tuple[Tensor, Tensor]:
        """The filled rows of (embeddings, keys), in no particular order."""
        return self.embeddings[: self._rows], self.keys[: self._rows]

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *others: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *others)
        if f"{prefix}cursor" in state_dict and f"{prefix}filled" in state_dict:
            self._next, self._rows = int(state_dict[f"{prefix}cursor"]), int(state_dict[f"{prefix}filled"])


class Queue(nn.Module):
    """The last rows of a batch at each step, in any order; where a batch goes follows from its step, so no tensor is read."""

    rows: Tensor

    def __init__(self, rows: Tensor) -> None:
        """`rows` (m, p) are there at the start."""
        super().__init__()
        self.register_buffer("rows", rows)

    @torch.no_grad()
    def push(self, rows: Tensor, step: int) -> None:
        """Replace the oldest; of a batch larger than the queue the last rows stay."""
        size, end = len(self.rows), (step + 1) * len(rows)
        rows = rows[-size:]
        start = (end - len(rows)) % size
        before_the_end = min(len(rows), size - start)
        places = slice(start, start + before_the_end), slice(len(rows) - before_the_end)
        for place, new in zip(places, (rows[:before_the_end], rows[before_the_end:]), strict=True):
            self.rows[place] = new
