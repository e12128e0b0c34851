"""Rows of a data set as network inputs on the device: bytes travel, and become numbers there."""

import numpy as np
import torch
from torch import Tensor

from sao.data.dataset import Images, Samples, pixels_to_inputs
from sao.data.frames import random_crops
from sao.data.read_ahead import ReadAhead
from sao.data.rows import Rows

_BLOCK_BYTES = 64 * 2**20


class Batches:
    """Float32 inputs on the device by row.

    An accelerator keeps the bytes of a data set of up to half of its memory, mapped from disk or not. Beyond that, and on the
    CPU where a file that is mapped is in memory already as far as there is room, rows are read, those of the next step while
    this one is made.
    """

    def __init__(self, samples: Samples, device: torch.device, resident_bytes: int | None = None) -> None:
        self.samples, self.device = samples, device
        self._frames = samples.frames if isinstance(samples, Images) else None
        values = _seen_by_a_step(samples)
        limit = _half_of_memory(device) if resident_bytes is None else resident_bytes
        in_memory = isinstance(values, np.ndarray) and not isinstance(values, np.memmap)
        resident = values.nbytes <= limit and (in_memory or device.type != "cpu")
        self._values = _moved(values, device) if resident else ReadAhead(values, device)

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def resident(self) -> bool:
        return isinstance(self._values, Tensor)

    @property
    def waited(self) -> float:
        """Seconds that steps stood still because their rows were not there yet."""
        return 0.0 if isinstance(self._values, Tensor) else self._values.waited

    def announce(self, rows: Tensor) -> None:
        """Rows that will be asked for next."""
        if not isinstance(self._values, Tensor):
            self._values.announce(rows)

    def inputs(self, rows: Tensor) -> Tensor:
        """The samples as an evaluation sees them too."""
        if self._frames is not None:
            return self.samples.inputs(rows.numpy(), self.device)
        chosen = self._chosen(rows)
        return pixels_to_inputs(chosen) if isinstance(self.samples, Images) else chosen

    def learnt_from(self, rows: Tensor, seed: int, step: int, places: slice) -> Tensor:
        """What a step is given of rows at these places of its global batch: random crops where whole pictures are kept."""
        if self._frames is None:
            return self.inputs(rows)
        aspects = torch.from_numpy(self._frames.aspects[rows.numpy()]).to(self.device)
        size = self.samples.shape[1], self.samples.shape[2]
        return random_crops(self._chosen(rows), aspects, self._frames.crop, size, seed, step, places)

    def _chosen(self, rows: Tensor) -> Tensor:
        values = self._values
        return values[rows.to(self.device)] if isinstance(values, Tensor) else values.take(rows)

    def labels(self, rows: Tensor) -> Tensor:
        """Codes of the classes, for the one kind of method that asks for them."""
        assert self.samples.labels is not None, "a method that needs labels is refused where there are none"
        return torch.as_tensor(self.samples.labels[rows.numpy()], dtype=torch.int64).to(self.device)


def _seen_by_a_step(samples: Samples) -> Rows:
    if not isinstance(samples, Images):
        return samples.rows
    return samples.pixels if samples.frames is None else samples.frames.pixels


def _half_of_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1] // 2
    return 1 << 62 if device.type == "cpu" else 4 << 30


def _moved(values: Rows, device: torch.device) -> Tensor:
    """A block at a time, because the whole may be more than fits beside itself in the host's memory."""
    if device.type == "cpu":
        return torch.from_numpy(np.ascontiguousarray(values))
    step = max(1, _BLOCK_BYTES // max(1, values.nbytes // max(1, len(values))))
    moved = torch.empty(values.shape, dtype=torch.uint8 if values.dtype == np.uint8 else torch.float32, device=device)
    for start in range(0, len(values), step):
        moved[start : start + step] = torch.from_numpy(np.array(values[start : start + step])).to(device)
    return moved
