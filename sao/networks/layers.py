"""Torch's own layers, which on the CPU run by the operators of `sao.networks.cpu`."""

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from sao.networks.cpu import use_cpu_operators
from sao.networks.cpu.activation import elu
from sao.networks.cpu.convolution import convolution
from sao.networks.cpu.groupnorm import group_norm

CHANNELS_PER_GROUP = 16
Activation = Literal["elu", "relu"]


class Convolution(nn.Conv2d):
    """Stride 1, zero padding that keeps the size, no bias."""

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__(inputs, outputs, kernel, padding=kernel // 2, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        return convolution(input, self.weight) if use_cpu_operators(input) else super().forward(input)


class GroupNorm(nn.GroupNorm):
    """16 channels a group, or somewhat more where the width is no multiple of 16."""

    def __init__(self, channels: int) -> None:
        most = max(1, channels // CHANNELS_PER_GROUP)
        super().__init__(next(groups for groups in range(most, 0, -1) if channels % groups == 0), channels)

    def forward(self, input: Tensor) -> Tensor:
        # Autocast gives bfloat16 to weights in float32; the moments are then taken in float32.
        wide = input.to(self.weight.dtype)
        if use_cpu_operators(wide):
            return group_norm(wide, self.num_groups, self.weight, self.bias, self.eps)
        # Torch's own has no forward mode in channels_last, and on GPUs has refused or copied it.
        return super().forward(wide.contiguous())


class ELU(nn.Module):
    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        """elu(x), or elu(x + other)."""
        if use_cpu_operators(x):
            return elu(x, other)
        return F.elu(x if other is None else x + other)


class ReLU(nn.Module):
    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        """relu(x), or relu(x + other)."""
        return F.relu(x if other is None else x + other)


def activation_named(name: Activation) -> nn.Module:
    return ELU() if name == "elu" else ReLU()
