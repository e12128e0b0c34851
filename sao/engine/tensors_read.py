"""Which parameters and buffers of a method a function of it reads: to embed, a method needs a part of itself only."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class _Watch(TorchDispatchMode):
    """Remembers the tensors that operators are called with."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[int] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.update(id(value) for value in tree_leaves((args, kwargs or {})) if isinstance(value, Tensor))
        return func(*args, **(kwargs or {}))


@torch.no_grad()
def tensors_read(module: nn.Module, function: Callable[[Tensor], Tensor], inputs: Tensor) -> set[str]:
    """Names of the parameters and buffers that the function, called with these inputs, gives to an operator."""
    with _Watch() as watch:
        function(inputs)
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    return {name for name, tensor in tensors.items() if id(tensor) in watch.seen}
