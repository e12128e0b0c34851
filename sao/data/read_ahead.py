"""Rows of an array as a tensor on the device, one batch ahead: a thread reads them while the step before them is made."""

import threading
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from sao.data.rows import Rows, read_rows
from sao.errors import InputError


class ReadAhead:
    """Rows on the device. Those that were announced are on their way already, others are read when they are asked for.

    An accelerator is sent them from pinned memory, on a stream beside the one that computes.
    """

    def __init__(self, values: Rows, device: torch.device) -> None:
        self._values, self._device = values, device
        self._dtype = torch.from_numpy(np.empty(0, values.dtype)).dtype
        self._module = torch.get_device_module(device) if device.type not in ("cpu", "meta") else None
        self._stream = None if self._module is None else self._module.Stream(device)
        self._coming: _Reading | None = None
        self.waited = 0.0  # seconds that steps stood still for data

    def announce(self, rows: Tensor) -> None:
        """Begin to read what will be asked for next."""
        self._coming = _Reading(rows, self._read)

    def take(self, rows: Tensor) -> Tensor:
        started = time.perf_counter()
        if self._coming is not None and torch.equal(self._coming.rows, rows):
            coming, self._coming = self._coming, None
            found = coming.result()
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
            read_rows(self._values, rows.numpy(), found.numpy())
        except OSError as error:
            raise InputError(f"the training data cannot be read any more: {error.strerror or error}") from None
        if self._module is None:
            return found.to(self._device)
        with self._module.stream(self._stream):
            return found.to(self._device, non_blocking=True)


class _Reading(threading.Thread):
    """One reading. The thread ends with it, so there is none to be stopped when a run ends, however it does."""

    def __init__(self, rows: Tensor, read: Callable[[Tensor], Tensor]) -> None:
        super().__init__(name="reading ahead")
        self.rows, self._read_rows = rows, read
        self._found: Tensor | None = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._found = self._read_rows(self.rows)
        except BaseException as error:  # raised again where the rows are asked for
            self._error = error

    def result(self) -> Tensor:
        self.join()
        if self._error is not None:
            raise self._error
        assert self._found is not None
        return self._found
