"""Features of a whole data set, a chunk at a time."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from sao.data.samples import Images, Samples

Function = Callable[[Tensor], Tensor]


@torch.no_grad()
def extract(function: Function, samples: Samples, device: torch.device, chunk: int = 256) -> np.ndarray:
    """float32 (n, d): the function's output for each sample, in order. The result does not depend on the chunk."""
    parts = []
    for start in range(0, len(samples), chunk):
        parts.append(function(samples.inputs(slice(start, start + chunk)).to(device)).float().cpu().numpy())
    return np.concatenate(parts)


def raw_inputs(samples: Samples) -> np.ndarray:
    """The samples themselves as rows, the baseline that any embedding has to beat."""
    values = samples.pixels if isinstance(samples, Images) else samples.rows
    return values.reshape(len(samples), -1).astype(np.float32)
