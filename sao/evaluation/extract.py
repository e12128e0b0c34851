"""Features of a whole data set, a chunk at a time: never a copy of all samples as floating-point numbers."""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from sao.core import distributed
from sao.core.agreement import check_finite
from sao.data.dataset import Images, Samples
from sao.data.files.reading import EMPTY
from sao.errors import InputError

Function = Callable[[Tensor], Tensor]
Numbers = np.ndarray | slice  # of rows
BROKEN = "the weights are broken, so take another checkpoint, or train again with a lower learning rate"
CHUNK = 256
CPU_NUMBERS = 256 * 3 * 32 * 32  # of inputs at once on the CPU, where smaller chunks of larger images are as fast and hold less


def extract(
    function: Function,
    samples: Samples,
    device: torch.device,
    chunk: int = CHUNK,
    rows: Numbers = slice(None),
    progress: Callable[[int, int], None] | None = None,
) -> np.ndarray:
    """float32 (n, d): the function's output for each sample, in order. The result does not depend on the chunk.

    Features that are not finite are refused: nothing is written, clustered or measured with them.
    """
    found = _extracted(function, samples, device, np.arange(len(samples))[rows], chunk, progress)
    check_finite("the features", found, BROKEN)
    return found


@torch.no_grad()
def _extracted(
    function: Function,
    samples: Samples,
    device: torch.device,
    chosen: np.ndarray,
    chunk: int = CHUNK,
    progress: Callable[[int, int], None] | None = None,
) -> np.ndarray:
    if len(chosen) == 0:
        raise InputError(EMPTY)
    if device.type == "cpu":
        chunk = max(1, min(chunk, CPU_NUMBERS // math.prod(samples.shape)))
    parts: list[np.ndarray] = []
    for part in _chunks(chosen, chunk):
        parts.append(function(samples.inputs(part, device)).float().cpu().numpy())
        if progress is not None:
            progress(min(len(parts) * chunk, len(chosen)), len(chosen))
    return np.concatenate(parts)


def extract_together(function: Function, samples: Samples, device: torch.device, rows: Numbers = slice(None)) -> np.ndarray:
    """`extract` with the samples shared among the processes, all of which must call it and get the whole result."""
    chosen = np.arange(len(samples))[rows]
    if len(chosen) < distributed.world_size():
        return extract(function, samples, device, rows=chosen)
    mine = _extracted(function, samples, device, chosen[distributed.local_slice(len(chosen))])
    found = distributed.gather(torch.from_numpy(mine), len(chosen)).numpy()
    check_finite("the features", found, BROKEN)  # of all processes, so that none waits for one that has stopped
    return found


def raw_inputs(samples: Samples, rows: Numbers = slice(None), columns: int | None = None) -> np.ndarray:
    """The samples themselves as rows, the baseline that any embedding has to beat; images averaged down to so many columns."""
    chosen = np.arange(len(samples))[rows]
    if not isinstance(samples, Images):
        return np.asarray(samples.rows[chosen])
    size = raw_size(samples.shape, columns)
    values = np.empty((len(chosen), samples.shape[0] * math.prod(size)), dtype=np.float32)
    for start in range(0, len(chosen), CHUNK):
        pixels = torch.from_numpy(np.require(samples.intensities[chosen[start : start + CHUNK]], requirements=("C", "W")))
        images = pixels.permute(0, 3, 1, 2).float()
        if size != samples.shape[1:]:
            images = torch.nn.functional.adaptive_avg_pool2d(images, size)
        values[start : start + CHUNK] = images.permute(0, 2, 3, 1).flatten(1).numpy()
    return values


def raw_size(shape: tuple[int, ...], columns: int | None) -> tuple[int, int]:
    """Height and width of images (c, h, w) that have at most so many numbers; as they are where they have no more."""
    channels, height, width = shape
    scale = 1.0 if columns is None else math.sqrt(columns / (channels * height * width))
    return (height, width) if scale >= 1 else (max(1, int(height * scale)), max(1, int(width * scale)))


def _chunks(rows: np.ndarray, chunk: int) -> list[Numbers]:
    """Rows in chunks; consecutive ones as slices, which need no copy of what lies in memory."""
    parts: list[Numbers] = []
    for start in range(0, len(rows), chunk):
        part = rows[start : start + chunk]
        whole = part[-1] - part[0] == len(part) - 1 and bool((np.diff(part) == 1).all())
        parts.append(slice(int(part[0]), int(part[-1]) + 1) if whole else part)
    return parts
