"""Rows of a data set as network inputs on the device; the bytes stay there when they fit."""

import numpy as np
import torch
from torch import Tensor

from sao.data.rows import Rows
from sao.data.samples import Images, Samples, pixels_to_inputs

_BLOCK_BYTES = 64 * 2**20


class Batches:
    """Float32 inputs on the device by row.

    An accelerator keeps the bytes of a data set of up to half of its memory, mapped from disk or not. Beyond that, and on the
    CPU where a file that is mapped is in memory already as far as there is room, rows are read as they are asked for.
    """

    def __init__(self, samples: Samples, device: torch.device, resident_bytes: int | None = None) -> None:
        self.samples, self.device = samples, device
        values = samples.pixels if isinstance(samples, Images) else samples.rows
        limit = _half_of_memory(device) if resident_bytes is None else resident_bytes
        in_memory = isinstance(values, np.ndarray) and not isinstance(values, np.memmap)
        resident = values.nbytes <= limit and (in_memory or device.type != "cpu")
        self._values = _moved(values, device) if resident else None

    def __len__(self) -> int:
        return len(self.samples)

    def inputs(self, rows: Tensor) -> Tensor:
        if self._values is None:
            # Sorted reads are sequential on disk; the batch's own order is restored afterwards.
            order = torch.argsort(rows)
            inputs = self.samples.inputs(rows[order].numpy())
            return inputs[torch.argsort(order)].to(self.device, non_blocking=True)
        chosen = self._values[rows.to(self.device)]
        return pixels_to_inputs(chosen) if isinstance(self.samples, Images) else chosen

    def labels(self, rows: Tensor) -> Tensor:
        """Codes of the classes, for the one kind of method that asks for them."""
        assert self.samples.labels is not None, "a method that needs labels is refused where there are none"
        return torch.as_tensor(self.samples.labels[rows.numpy()], dtype=torch.int64).to(self.device)


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
