"""Processes: rank, world size, and the few collectives the project needs; each is the identity in a single process.

The convention for gradients: every process computes the same global loss from gathered embeddings, and owns its slice of the
batch. So the backward pass of `gather` returns the local slice only. That of `total`, for batch moments, sums over processes.
The sum of the parameter gradients over processes is then, up to rounding, the gradient of one process with the whole batch.
"""

import itertools
import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


class Lost(RuntimeError):
    """Another process ended, or did not answer in time."""


def world_size() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def is_main() -> bool:
    return rank() == 0


def local_slice(global_batch: int) -> slice:
    """This process's rows of a global batch, in rank order; sizes differ by at most one."""
    return _slices(global_batch)[rank()]


def gather(rows: Tensor, global_batch: int) -> Tensor:
    """The whole batch (global_batch, …) from each process's `local_slice` of it, differentiable in the local rows."""
    return rows if world_size() == 1 else _Gather.apply(rows, global_batch)  # pyright: ignore[reportReturnType]


def total(tensor: Tensor) -> Tensor:
    """The sum over processes, differentiable."""
    return tensor if world_size() == 1 else _Total.apply(tensor)  # pyright: ignore[reportReturnType]


def from_main(tensor: Tensor) -> Tensor:
    """The first process's values for everyone: processors of different kinds may round differently."""
    return total(tensor if is_main() else torch.zeros_like(tensor))


def sum_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Add the gradients of all processes in one coalesced message."""
    if world_size() == 1:
        return
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    _exchange(dist.all_reduce, flat)
    for gradient, part in zip(gradients, flat.split([gradient.numel() for gradient in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


def largest_local_batch(global_batch: int) -> int:
    """The most rows that any process has of a global batch: what all of them must decide alike depends on it."""
    return -(-global_batch // world_size())


def any_of(flag: bool) -> bool:
    """Whether the flag is set on any process."""
    if world_size() == 1:
        return flag
    message = torch.tensor([int(flag)])
    _exchange(dist.all_reduce, message, dist.ReduceOp.MAX)
    return bool(message)


def same(*numbers: int) -> bool:
    """Whether every process passes the same numbers."""
    if world_size() == 1:
        return True
    values = torch.tensor(numbers, dtype=torch.int64)
    message = torch.cat([values, ~values])  # ~ turns the order round, so that one maximum finds the largest and the smallest
    _exchange(dist.all_reduce, message, dist.ReduceOp.MAX)
    largest, smallest = message.chunk(2)
    return bool((largest == ~smallest).all())


def checksum(tensors: Iterable[Tensor]) -> int:
    """A number made of every bit: tensors that differ anywhere have, practically always, different ones."""
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    sums = [tensor.detach().reshape(-1).view(integers[tensor.element_size()]).sum(dtype=torch.int64) for tensor in tensors]
    values = torch.stack(sums).cpu()
    weights = 2 * torch.arange(len(values)) + 1  # odd, so that tensors which changed places are noticed too
    return int((values * weights * 0x9E3779B1).sum())


def _exchange(collective: Callable[..., Any], *arguments: Any) -> None:
    try:
        collective(*arguments)
    except RuntimeError as error:  # a closed connection at once, silence after the timeout
        reason = re.sub(r"^\[[^]]*\] ", "", str(error).partition("\n")[0]).partition(". ")[0]  # without place and advice
        raise Lost(f"a process of this run has ended or does not answer ({reason})") from None


def _slices(global_batch: int) -> list[slice]:
    bounds = [global_batch * r // world_size() for r in range(world_size() + 1)]
    return [slice(start, stop) for start, stop in itertools.pairwise(bounds)]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows: Tensor, global_batch: int) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        slices = _slices(global_batch)
        sizes = [s.stop - s.start for s in slices]
        ctx.rows = slices[rank()]
        # The back ends gather equal shapes only: pad to the longest, then cut.
        padded = rows.new_zeros(max(sizes), *rows.shape[1:])
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in sizes]
        _exchange(dist.all_gather, parts, padded)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return gradient[ctx.rows], None


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        result = tensor.clone()
        _exchange(dist.all_reduce, result)
        return result

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _Total.apply(gradient)  # pyright: ignore[reportReturnType]  (so that it can be differentiated again)
