"""Processes: rank, world size, and the few collectives the project needs; each is the identity in a single process.

The convention for gradients: every process computes the same global loss from gathered embeddings, and owns its slice of the
batch. So `gather` passes back the local slice only, `total` (used for batch moments, which touch everybody's samples) sums what
comes back, and the sum of the parameter gradients over processes is the gradient of one process with the whole batch.
"""

import itertools
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn


@contextmanager
def processes(device: str = "auto") -> Iterator[None]:
    """Join the group that torchrun describes in the environment; outside torchrun there is one process and nothing to do."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    accelerated = device != "cpu" and torch.cuda.is_available()
    if accelerated:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if accelerated else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


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


def sum_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Add the gradients of all processes in one coalesced message."""
    if world_size() == 1:
        return
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return
    flat = torch.cat([g.reshape(-1) for g in gradients])
    dist.all_reduce(flat)
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


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
        dist.all_gather(parts, padded)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return gradient[ctx.rows], None


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        result = tensor.clone()
        dist.all_reduce(result)
        return result

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        result = gradient.clone()
        dist.all_reduce(result)
        return result
