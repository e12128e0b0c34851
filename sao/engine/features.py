"""Features of a whole data set, a chunk at a time."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from sao import distributed
from sao.data.samples import Images, Samples

Function = Callable[[Tensor], Tensor]


@torch.no_grad()
def extract(
    function: Function, samples: Samples, device: torch.device, chunk: int = 256, rows: slice = slice(None)
) -> np.ndarray:
    """float32 (n, d): the function's output for each sample, in order. The result does not depend on the chunk."""
    parts, (first, end, _) = [], rows.indices(len(samples))
    for start in range(first, end, chunk):
        inputs = samples.inputs(slice(start, min(start + chunk, end))).to(device)
        parts.append(function(inputs).float().cpu().numpy())
    return np.concatenate(parts)


def extract_together(function: Function, samples: Samples, device: torch.device, chunk: int = 256) -> np.ndarray:
    """`extract` with the samples shared among the processes, all of which must call it and get the whole result."""
    if len(samples) < distributed.world_size():
        return extract(function, samples, device, chunk)
    mine = extract(function, samples, device, chunk, distributed.local_slice(len(samples)))
    return distributed.gather(torch.from_numpy(mine), len(samples)).numpy()


def raw_inputs(samples: Samples) -> np.ndarray:
    """The samples themselves as rows, the baseline that any embedding has to beat."""
    values = samples.pixels if isinstance(samples, Images) else samples.rows
    return np.asarray(values).reshape(len(samples), -1).astype(np.float32)
