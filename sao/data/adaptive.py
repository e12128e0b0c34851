"""Differentiable augmentation of a strength that may change from step to step, for discriminators with little data.

The transformations of "Training generative adversarial networks with limited data" that move pixels exactly (blits), move the
image and change its colours: each happens with the same probability, to each image by itself. All movements of an image are one
affine map, so that it is sampled once: reflected at its borders, doubled in size, sampled, and halved again. The filter is that
of an orthogonal wavelet, under which doubling and halving cancel to the last digit where nothing moves.
"""

import math
from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from sao.core import distributed
from sao.core import random as randomness

# The low-pass filter of Daubechies' least asymmetric wavelet with six vanishing moments; it is nearly even around tap CENTRE.
# fmt: off
SYM6 = (
    0.015404109327027373, 0.0034907120842174702, -0.11799011114819057, -0.048311742585633,
    0.4910559419267466, 0.787641141030194, 0.3379294217276218, -0.07263752278646252,
    -0.021060292512300564, 0.04472490177066578, 0.0017677118642428036, -0.007800708325034148,
)
# fmt: on
CENTRE = 5
SHIFT = 0.125  # of the side: the largest whole shift, and the deviation of the others
STRETCH = 0.2  # deviations: of the logarithm to base 2 for factors
BRIGHTNESS, CONTRAST, SATURATION = 0.2, 0.5, 1.0

_GATES, _UNIFORMS, _NORMALS = 13, 8, 7


class Draws(NamedTuple):
    """What is drawn for each image, however strong the augmentation is."""

    gates: Tensor  # (n, 13) in [0, 1): a transformation happens where its gate is below the probability
    uniforms: Tensor  # (n, 8) in [0, 1)
    normals: Tensor  # (n, 7)


def draws_for(batch: int, seed: int, purpose: str, step: int, like: Tensor) -> Draws:
    """This process's rows of the draws of a global batch."""
    rows = distributed.local_slice(batch)
    purpose = f"adaptive augmentation/{purpose}"
    uniform = randomness.uniform(seed, f"{purpose}/uniform", step, rows, (_GATES + _UNIFORMS,), like.device).to(like.dtype)
    normal = randomness.normal(seed, f"{purpose}/normal", step, rows, (_NORMALS,), like.device).to(like.dtype)
    gates, uniforms = uniform.split([_GATES, _UNIFORMS], dim=1)
    return Draws(gates, uniforms, normal)


def augmented(images: Tensor, probability: Tensor, draws: Draws) -> Tensor:
    """Images (n, c, h, w), each transformed by itself; differentiable in the images, twice."""
    moved = warped(images, movement(probability, draws, *images.shape[2:]))
    return recoloured(moved, colour(probability, draws))


# --- movement ------------------------------------------------------------------------------------------------------------


def movement(probability: Tensor, draws: Draws, height: int, width: int) -> Tensor:
    """(n, 3, 3): from where a pixel of the result comes; coordinates in pixels around the middle, x first."""
    gates, normals = draws.gates.unbind(1), draws.normals.unbind(1)
    flip, quarter, across, down, first_angle, second_angle, _, _ = draws.uniforms.unbind(1)
    # Two turns, before and after the stretching, which together happen with the probability of everything else.
    turned = 1 - (1 - probability).clamp(0, 1).sqrt()

    def where(gate: Tensor, value: Tensor, otherwise: float, chance: Tensor = probability) -> Tensor:
        return torch.where(gate < chance, value, otherwise)

    one = torch.ones_like(flip)
    scale = where(gates[3], 2 ** (STRETCH * normals[0]), 1)
    stretch = where(gates[5], 2 ** (STRETCH * normals[1]), 1)
    # Of what is done to the image, one after the other, the inverses from left to right.
    steps = [
        _scaling(where(gates[0], 1 - 2 * (2 * flip).floor(), 1), one),
        _rotation(where(gates[1], math.pi / 2 * (4 * quarter).floor(), 0)),
        _shift(
            -where(gates[2], ((2 * across - 1) * SHIFT * width).round(), 0),
            -where(gates[2], ((2 * down - 1) * SHIFT * height).round(), 0),
        ),
        _scaling(1 / scale, 1 / scale),
        _rotation(where(gates[4], math.pi * (2 * first_angle - 1), 0, turned)),
        _scaling(1 / stretch, stretch),
        _rotation(where(gates[6], math.pi * (2 * second_angle - 1), 0, turned)),
        _shift(-where(gates[7], SHIFT * width * normals[2], 0), -where(gates[7], SHIFT * height * normals[3], 0)),
    ]
    return reduce(torch.matmul, steps)


def warped(images: Tensor, inverse: Tensor) -> Tensor:
    """The images as the affine maps (n, 3, 3) move them, which say where a pixel of the result comes from."""
    height, width = images.shape[2:]
    # The reflection goes as far as it can: an image and its two neighbours.
    reflected = F.pad(images, (width - 1, width - 1, height - 1, height - 1), mode="reflect")
    doubled = _filtered(reflected, F.conv_transpose2d)  # sample j is the middle of what it becomes at 2j + CENTRE
    y, x = (_middle_positions(side, images) for side in (height, width))
    targets = torch.stack([x.expand(len(y), -1), y[:, None].expand(-1, len(x)), torch.ones_like(y[:, None] * x)], dim=-1)
    sources = torch.einsum("hwj,nij->nhwi", targets, inverse[:, :2])
    sampled_at = [
        (2 * _doubled_index(sources[..., axis], side) + 1) / doubled.shape[3 - axis] - 1
        for axis, side in enumerate((width, height))
    ]
    sampled = F.grid_sample(doubled, torch.stack(sampled_at, dim=-1), padding_mode="zeros", align_corners=False)
    return _filtered(sampled, F.conv2d)


def _middle_positions(side: int, like: Tensor) -> Tensor:
    """Of the pixels of a doubled result, as far as halving needs them, in pixels from the middle of the image."""
    count = 2 * (side - 1) + len(SYM6)
    return (torch.arange(count, device=like.device, dtype=like.dtype) - CENTRE) / 2 - (side - 1) / 2


def _doubled_index(position: Tensor, side: int) -> Tensor:
    """Where a position, in pixels from the middle, lies in the doubled image with its margins."""
    return 2 * (position + (side - 1) / 2 + side - 1) + CENTRE


def _filtered(images: Tensor, convolve: Callable[..., Tensor]) -> Tensor:
    """The columns, then the rows, of every channel by itself, doubled or halved by a transposed convolution or a plain one."""
    channels = images.shape[1]
    taps = torch.stack([torch.full((), tap, dtype=images.dtype, device=images.device) for tap in SYM6])
    for shape, stride in (((-1, 1), (2, 1)), ((1, -1), (1, 2))):
        images = convolve(images, taps.view(shape).expand(channels, 1, *shape), stride=stride, groups=channels)
    return images


def _scaling(x: Tensor, y: Tensor) -> Tensor:
    zero = torch.zeros_like(x)
    return _affine([[x, zero, zero], [zero, y, zero]])


def _shift(x: Tensor, y: Tensor) -> Tensor:
    zero, one = torch.zeros_like(x), torch.ones_like(x)
    return _affine([[one, zero, x], [zero, one, y]])


def _rotation(angle: Tensor) -> Tensor:
    zero, sin, cos = torch.zeros_like(angle), angle.sin(), angle.cos()
    return _affine([[cos, -sin, zero], [sin, cos, zero]])


def _affine(rows: list[list[Tensor]]) -> Tensor:
    zero = torch.zeros_like(rows[0][0])
    return _matrix([*rows, [zero, zero, torch.ones_like(zero)]])


# --- colour --------------------------------------------------------------------------------------------------------------


def colour(probability: Tensor, draws: Draws) -> Tensor:
    """(n, 4, 4): what becomes of a colour (r, g, b, 1)."""
    gates, normals = draws.gates.unbind(1), draws.normals.unbind(1)
    flip, hue = draws.uniforms.unbind(1)[6:]

    def where(gate: Tensor, value: Tensor, otherwise: float) -> Tensor:
        return torch.where(gate < probability, value, otherwise)

    brightness = where(gates[8], BRIGHTNESS * normals[4], 0)
    contrast = where(gates[9], 2 ** (CONTRAST * normals[5]), 1)
    sign = where(gates[10], 1 - 2 * (2 * flip).floor(), 1)
    angle = where(gates[11], math.pi * (2 * hue - 1), 0)
    saturation = where(gates[12], 2 ** (SATURATION * normals[6]), 1)
    # All of them keep to the axis of greys or to the plane across it: along it they are factors, in the plane turns as well.
    linear = _along_greys(contrast * sign) + _across_greys(contrast * saturation, angle)
    constant = (contrast * sign * brightness)[:, None, None].expand(-1, 3, 1)
    last = torch.cat([torch.zeros_like(constant.mT), torch.ones_like(constant[:, :1])], dim=2)
    return torch.cat([torch.cat([linear, constant], dim=2), last], dim=1)


def recoloured(images: Tensor, colours: Tensor) -> Tensor:
    """The images with colours (n, 4, 4) changed; images without colour lie on the axis of greys."""
    linear, constant = colours[:, :3, :3], colours[:, :3, 3]
    if images.shape[1] == 3:
        return torch.einsum("nij,njhw->nihw", linear, images) + constant[:, :, None, None]
    return images * linear.sum(2).mean(1)[:, None, None, None] + constant.mean(1)[:, None, None, None]


def _along_greys(factor: Tensor) -> Tensor:
    return (factor / 3)[:, None, None].expand(-1, 3, 3)


def _across_greys(factor: Tensor, angle: Tensor) -> Tensor:
    """Turned around the axis of greys and scaled; nothing is left of what lies along it."""
    same, after, before = ((2 * (angle + shift).cos() / 3 * factor) for shift in (0, 2 * math.pi / 3, -2 * math.pi / 3))
    return _matrix([[same, after, before], [before, same, after], [after, before, same]])


def _matrix(rows: list[list[Tensor]]) -> Tensor:
    """(n, i, j) from its entries (n,)."""
    return torch.stack([torch.stack(row, dim=1) for row in rows], dim=1)
