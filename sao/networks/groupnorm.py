"""GroupNorm made of differentiable parts.

The built-in one refuses forward mode on channels_last tensors, the layout in which convolutions are nearly twice as fast on
CPUs, and falls back to slow formulas in a double backward pass. This one takes the moments of each channel, combines them to
those of its group, and applies the result as one multiply-add, for which every derivative is of the same kind.
"""

from torch import Tensor, addcmul, nn

CHANNELS_PER_GROUP = 16


class GroupNorm(nn.GroupNorm):
    def forward(self, input: Tensor) -> Tensor:
        positions = tuple(range(2, input.ndim))
        groups = (len(input), self.num_groups, -1)
        if positions:
            first, second = input.mean(positions), input.square().mean(positions)
        else:
            first, second = input, input.square()
        mean = first.reshape(groups).mean(2, keepdim=True)
        variance = second.reshape(groups).mean(2, keepdim=True) - mean.square()
        scale = (variance.clamp_min(0) + self.eps).rsqrt()
        gain = (scale * self.weight.reshape(1, self.num_groups, -1)).reshape(first.shape)
        shift = self.bias - (mean * gain.reshape(groups)).reshape(first.shape)
        shape = (*first.shape, *[1] * len(positions))
        return addcmul(shift.reshape(shape), input, gain.reshape(shape))


def group_norm(channels: int) -> GroupNorm:
    """16 channels a group, or the nearest number of groups that divides a width which 16 does not."""
    groups = max(1, channels // CHANNELS_PER_GROUP)
    while channels % groups:
        groups -= 1
    return GroupNorm(groups, channels)
