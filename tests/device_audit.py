"""A step as an accelerator would meet it, without one: on torch's meta device tensors have shapes and no values.

There whatever needs a value raises, and so does an operator without a general kernel. What meta tensors alone would let pass is
noticed here: tensors of the host in an operator, copies from the host, operators that wait for an accelerator to raise errors,
and operators that were written for the CPU.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FunctionType
from typing import Any
from unittest import mock

import torch
import torch.optim.optimizer as torch_optimizer
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sao.config import Config
from sao.methods import Batch, Method

META = torch.device("meta")
BESIDE_THE_BATCH = 64 * 1024  # bytes that a step may copy from the host beside its batch as uint8
MADE_OF_LISTS = {torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor}
READS = {"_local_scalar_dense", "nonzero", "masked_select", "_linalg_check_errors", "is_nonzero", "equal", "unique_consecutive"}
READS |= {"_unique", "_unique2", "unique_dim", "bincount", "repeat_interleave"}
NOT_OPERATORS = {"matrix"}  # a view, by torch's own operators


class HostRead(AssertionError):
    """Something waited for a value on the device."""


class LeftBehind(AssertionError):
    """A tensor of the host took part in a step."""


class Audit(TorchDispatchMode):
    """Refuses reads and tensors of the host, and counts what is copied: `copied` bytes to the device, `returned` from it.

    Numbers without a dimension may stand on the host: they are arguments of a kernel, not memory that it reads.
    """

    def __init__(self, results: bool = False, data: bool = False) -> None:
        super().__init__()
        self.results, self.data = results, data  # whether results may be copied to the host, and data be prepared there
        self.copied = self.returned = self.operators = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func._overloadpacket.__name__
        given = _tensors((args, kwargs))
        on_device = [value for value in given if value.device == META]
        if (on_device and name in READS) or (name == "index" and any(value.dtype == torch.bool for value in on_device)):
            raise HostRead(f"{func} needs a value of the device")
        self.operators += 1
        if name == "_to_copy" and on_device and torch.device(kwargs.get("device") or META).type == "cpu":
            return self._result(given[0], kwargs.get("dtype"))
        found = func(*args, **kwargs)
        on_host = [value for value in [*given, *_tensors(found)] if value.device != META and value.ndim > 0]
        if name in ("_to_copy", "copy_") and any(value.device == META for value in [*given, *_tensors(found)]):
            self.copied += sum(value.nbytes for value in on_host)
        elif on_host and (on_device or not self.data):
            raise LeftBehind(f"{func} with a tensor of the host, of shape {tuple(on_host[0].shape)}")
        return found

    def _result(self, tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
        if not self.results:
            raise HostRead(f"a tensor of shape {tuple(tensor.shape)} was copied to the host")
        self.returned += tensor.nbytes
        return torch.zeros(tensor.shape, dtype=dtype or tensor.dtype)


def _tensors(values: Any) -> list[Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, Tensor)]


class _Lists(TorchFunctionMode):
    """Numbers of Python that become a tensor of the device are a copy too, which no operator tells of."""

    def __init__(self, audit: Audit) -> None:
        super().__init__()
        self.audit = audit

    def __torch_function__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        if func in MADE_OF_LISTS and isinstance(found, Tensor) and found.device == META:
            self.audit.copied += found.nbytes
        return found


@contextmanager
def audited(results: bool = False, data: bool = False) -> Iterator[Audit]:
    """Everything inside is held to the meta device and to torch's own operators."""
    with ExitStack() as stack:
        stack.enter_context(_without_cpu_operators())
        audit = stack.enter_context(Audit(results, data))
        stack.enter_context(_Lists(audit))
        yield audit


@contextmanager
def _without_cpu_operators() -> Iterator[None]:
    """Wherever in the package one of them is known by name, it is replaced by an error."""
    with ExitStack() as stack:
        for module in [module for name, module in sys.modules.items() if name.startswith("sao.")]:
            for name, value in list(vars(module).items()):
                of_cpu = isinstance(value, FunctionType) and value.__module__.startswith("sao.networks.cpu.")
                if of_cpu and name not in NOT_OPERATORS:
                    stack.enter_context(mock.patch.object(module, name, _refused(value)))
        yield


def _refused(function: FunctionType) -> Callable[..., None]:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError(f"{function.__module__}.{function.__name__} was written for the CPU alone")

    return refuse


@contextmanager
def fused_optimisers() -> Iterator[None]:
    """Torch has kernels of fused optimisers for this device too, but does not list it among those that it supports."""
    supported = torch_optimizer._get_fused_kernels_supported_devices  # pyright: ignore[reportPrivateImportUsage]
    torch_optimizer._get_fused_kernels_supported_devices = lambda: [*supported(), META.type]  # pyright: ignore[reportPrivateImportUsage]
    try:
        yield
    finally:
        torch_optimizer._get_fused_kernels_supported_devices = supported  # pyright: ignore[reportPrivateImportUsage]


def moved(method: Method) -> Method:
    """The method on the meta device, with optimisers that still know its parameters."""
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        return method.to(META)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


def built(config: Config, shape: tuple[int, ...], samples: int, classes: int | None) -> Method:
    """The method of a configuration, however large, without memory for it."""
    with META, fused_optimisers():
        return moved(config.build_method(shape, samples, classes))


def batch_of(shape: tuple[int, ...], size: int, labels: bool) -> Batch:
    inputs = torch.empty(size, *shape, device=META)
    rows = torch.empty(size, dtype=torch.int64, device=META)
    return Batch(inputs, rows, torch.empty_like(rows) if labels else None)
