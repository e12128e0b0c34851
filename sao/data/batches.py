"""Rows of a data set as network inputs on the device; the bytes stay there when they fit."""

import numpy as np
import torch
from torch import Tensor

from sao.data.samples import Images, Samples, pixels_to_inputs


class Batches:
    """`rows(indices)` → float32 inputs on the device. A memory-mapped or large data set is read row by row instead."""

    def __init__(self, samples: Samples, device: torch.device, resident_bytes: int = 4 << 30) -> None:
        self.samples, self.device = samples, device
        values = samples.pixels if isinstance(samples, Images) else samples.rows
        resident = not isinstance(values, np.memmap) and values.nbytes <= resident_bytes
        self._values = torch.from_numpy(np.ascontiguousarray(values)).to(device) if resident else None

    def rows(self, indices: Tensor) -> Tensor:
        if self._values is None:
            # Sorted reads are sequential on disk; the batch's own order is restored afterwards.
            order = torch.argsort(indices)
            inputs = self.samples.inputs(indices[order].numpy())
            return inputs[torch.argsort(order)].to(self.device, non_blocking=True)
        chosen = self._values[indices.to(self.device)]
        return pixels_to_inputs(chosen) if isinstance(self.samples, Images) else chosen
