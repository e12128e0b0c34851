"""The maps that an encoder makes on its way, pooled, beside its features: linear tasks gain from the earlier ones."""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sao.errors import InputError
from sao.networks import Encoder


def with_stages(network: nn.Module, features: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    """(n, b + cells · widths of the stages): the features, and the last map of every stage averaged to 4x4 or 2x2.

    The maps are those of whichever encoders inside the network the features come from.
    """
    maps: list[Tensor] = []
    blocks = [block for part in network.modules() if isinstance(part, Encoder) for block in part.blocks_of_maps()]

    def keep(_block: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> None:
        maps.append(output)

    hooks = [block.register_forward_hook(keep) for block in blocks]
    try:
        last = features(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    if not maps:
        raise InputError("feature layers is for encoders that make maps of an image in stages: use backbone or embedding")
    ends = [earlier for earlier, later in pairwise(maps) if earlier.shape != later.shape] + maps[-1:]
    return torch.cat([last, *(F.adaptive_avg_pool2d(stage, cells(stage)).flatten(1).to(last) for stage in ends)], dim=1)


def cells(stage: Tensor) -> int:
    """Cells a side that a map (n, c, h, w) is averaged to: 4 for maps of at least 8x8, else 2, and 1 for a map of one pixel."""
    side = min(stage.shape[2:])
    return 4 if side >= 8 else min(2, side)
