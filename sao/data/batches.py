"""Rows of a data set as network inputs on the device; the bytes stay there when they fit."""

import numpy as np
import torch
from torch import Tensor

from sao.data.samples import Images, Samples, pixels_to_inputs


class Batches:
    """Float32 inputs on the device by row. A memory-mapped or large data set is read from where it is instead."""

    def __init__(self, samples: Samples, device: torch.device, resident_bytes: int = 4 << 30) -> None:
        self.samples, self.device = samples, device
        values = samples.pixels if isinstance(samples, Images) else samples.rows
        resident = not isinstance(values, np.memmap) and values.nbytes <= resident_bytes
        self._values = torch.from_numpy(np.ascontiguousarray(values)).to(device) if resident else None

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
