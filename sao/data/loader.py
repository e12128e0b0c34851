"""Rows of a data set as network inputs on the device: bytes travel, those of the next step while this one is made."""

import time

import numpy as np
import torch
from torch import Tensor

from sao.data.augmentation import random_crops
from sao.data.dataset import Images, Rows, Samples, as_tensor, pixels_to_inputs, read_rows
from sao.errors import InputError
from sao.runtime.interrupt import Work

_CHUNK_BYTES = 64 * 2**20


class Batches:
    """Float32 inputs on the device by row.

    An accelerator keeps the bytes of a data set of up to half of its memory, mapped from disk or not. Beyond that, and on the
    CPU where a file that is mapped is in memory already as far as there is room, rows are read, those of the next step while
    this one is made.
    """

    def __init__(self, samples: Samples, device: torch.device, resident_bytes: int | None = None) -> None:
        self.samples, self.device = samples, device
        self._frames = samples.frames if isinstance(samples, Images) else None
        levels = samples.levels if isinstance(samples, Images) else None
        self._scaling = None if levels is None else levels.scaling(device)
        values = _seen_by_a_step(samples)
        limit = _half_of_memory(device) if resident_bytes is None else resident_bytes
        in_memory = isinstance(values, np.ndarray) and not isinstance(values, np.memmap)
        resident = values.nbytes <= limit and (in_memory or device.type != "cpu")
        self._values = _moved(values, device) if resident else Prefetcher(values, device)

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def resident(self) -> bool:
        return isinstance(self._values, Tensor)

    @property
    def waited(self) -> float:
        """Seconds that steps stood still because their rows were not there yet."""
        return 0.0 if isinstance(self._values, Tensor) else self._values.waited

    def prefetch(self, rows: Tensor) -> None:
        """Begin to read the rows of the next step."""
        if not isinstance(self._values, Tensor):
            self._values.prefetch(rows)

    def inputs(self, rows: Tensor) -> Tensor:
        """The samples as an evaluation sees them too."""
        if self._frames is not None:
            return self.samples.inputs(rows.numpy(), self.device)
        chosen = self._chosen(rows)
        return pixels_to_inputs(chosen, self._scaling) if isinstance(self.samples, Images) else chosen

    def training_inputs(self, rows: Tensor, seed: int, step: int, places: slice) -> Tensor:
        """What a step is given of rows at these places of its global batch: random crops where whole pictures are kept."""
        if self._frames is None:
            return self.inputs(rows)
        aspects = torch.from_numpy(self._frames.aspects[rows.numpy()]).to(self.device)
        size = self.samples.shape[1], self.samples.shape[2]
        return random_crops(self._chosen(rows), aspects, self._frames.crop, size, seed, step, places, self._scaling)

    def labels(self, rows: Tensor) -> Tensor:
        """Codes of the classes, for the one kind of method that asks for them."""
        assert self.samples.labels is not None, "a method that needs labels is refused where there are none"
        return torch.as_tensor(self.samples.labels[rows.numpy()], dtype=torch.int64).to(self.device)

    def _chosen(self, rows: Tensor) -> Tensor:
        values = self._values
        return values[rows.to(self.device)] if isinstance(values, Tensor) else values.take(rows)


def _seen_by_a_step(samples: Samples) -> Rows:
    if not isinstance(samples, Images):
        return samples.rows
    return samples.pixels if samples.frames is None else samples.frames.pixels


def _half_of_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1] // 2
    return 1 << 62 if device.type == "cpu" else 4 << 30


def _moved(values: Rows, device: torch.device) -> Tensor:
    """A chunk at a time, because the whole may be more than fits beside itself in the host's memory."""
    if device.type == "cpu":
        return as_tensor(np.ascontiguousarray(values))
    step = max(1, _CHUNK_BYTES // max(1, values.nbytes // max(1, len(values))))
    moved = torch.empty(values.shape, dtype=_tensor_type(values), device=device)
    for start in range(0, len(values), step):
        moved[start : start + step] = as_tensor(np.array(values[start : start + step])).to(device)
    return moved


def _tensor_type(values: Rows) -> torch.dtype:
    return as_tensor(np.empty(0, values.dtype)).dtype


class Prefetcher:
    """Rows of an array on the device. Prefetched ones are on their way already, others are read when they are asked for.

    An accelerator is sent them from pinned memory, on a stream beside the one that computes.
    """

    def __init__(self, values: Rows, device: torch.device) -> None:
        self._values, self._device = values, device
        self._dtype = _tensor_type(values)
        self._module = torch.get_device_module(device) if device.type not in ("cpu", "meta") else None
        self._stream = None if self._module is None else self._module.Stream(device)
        self._coming: tuple[Tensor, Work[Tensor]] | None = None
        self.waited = 0.0  # seconds that steps stood still for data

    def prefetch(self, rows: Tensor) -> None:
        self._coming = rows, Work(lambda: self._read(rows), name="prefetch")

    def take(self, rows: Tensor) -> Tensor:
        started = time.perf_counter()
        if self._coming is not None and torch.equal(self._coming[0], rows):
            (_, reading), self._coming = self._coming, None
            found = reading.result()
        else:
            found = self._read(rows)
        self.waited += time.perf_counter() - started
        if self._module is not None:
            computing = self._module.current_stream(self._device)
            computing.wait_stream(self._stream)
            found.record_stream(computing)  # its memory is not given to others before the step is done with it
        return found

    def _read(self, rows: Tensor) -> Tensor:
        shape = len(rows), *self._values.shape[1:]
        found = torch.empty(shape, dtype=self._dtype, pin_memory=self._module is not None)
        try:
            read_rows(self._values, rows.numpy(), found.numpy().view(self._values.dtype))
        except OSError as error:
            raise InputError(f"the training data cannot be read any more: {error.strerror or error}") from None
        if self._module is None:
            return found.to(self._device)
        with self._module.stream(self._stream):
            return found.to(self._device, non_blocking=True)
