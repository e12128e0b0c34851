"""A convolution whose second derivatives cost what its first ones cost.

Torch takes the gradient of the weights inside a double backward pass as a convolution with an image-sized kernel, several times
as slow on a CPU as in a first one. Here every derivative is one of three products:

    y = x * w        dx = g ⋆ w        dw = g ⋆ x

The third has a node of its own in the graph, so that the Jacobian norm, which asks for dx alone, does not pay for it. Tiny
images take matrix products: at 4x4 with many channels the library is half as fast, at 2x2 it computes with zeros of the border.
"""

from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual
from torch.nn import functional as F

from sao.networks.cpu import Once

TINY, MANY_CHANNELS, FEW_CHANNELS = 4, 256, 3  # where matrix products were measured to win


def convolution(x: Tensor, weight: Tensor) -> Tensor:
    """Stride 1, zero padding that keeps the size, no bias."""
    if torch.is_autocast_enabled("cpu"):
        return F.conv2d(x, weight, padding=weight.shape[-1] // 2)
    of_weight = _OfWeight.apply(unpack_dual(weight).primal, _Held(unpack_dual(x).primal))
    return _OfInput.apply(x, weight, of_weight)  # pyright: ignore[reportReturnType]


class _OfInput(torch.autograd.Function):
    """y = x * w as a function of x; the gradient of y goes on to `of_weight`, which stands for y as a function of w."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, of_weight: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(weight)
        ctx.save_for_forward(x, weight)
        ctx.set_materialize_grads(False)
        return _product(x, weight)

    @staticmethod
    @torch.no_grad()
    def jvp(ctx, x_tangent: Tensor | None, weight_tangent: Tensor | None, _) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Without a graph: a tangent is a direction here, never something to learn from."""
        x, weight = ctx.saved_tensors
        products = [] if x_tangent is None else [_product(x_tangent, weight)]
        products += [] if weight_tangent is None else [_product(x, weight_tangent)]
        return products[0] if len(products) == 1 else products[0].add_(products[1])

    @staticmethod
    def backward(ctx, gradient: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        (weight,) = ctx.saved_tensors
        wanted = gradient is not None and ctx.needs_input_grad[0]
        for_x = Once.apply(_input_gradient, _of_input_gradient, gradient, weight) if wanted else None
        return for_x, None, gradient


@dataclass(frozen=True)
class _Held:
    """A tensor that autograd does not see as an input: no gradient is sought through it."""

    tensor: Tensor


class _OfWeight(torch.autograd.Function):
    """Zero without memory in the shape of y, whose backward pass is the gradient of the weights."""

    @staticmethod
    def forward(ctx, weight: Tensor, held: _Held) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        x = held.tensor
        ctx.save_for_backward(weight)
        ctx.held = held
        return x.new_zeros(()).expand(len(x), len(weight), *x.shape[2:])

    @staticmethod
    def backward(ctx, gradient: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        (weight,) = ctx.saved_tensors
        return Once.apply(_weight_gradient, _of_weight_gradient, gradient, ctx.held.tensor, weight.detach()), None


def _of_input_gradient(v: Tensor, gradient: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return _product(v, weight), _weight_gradient(gradient, v, weight)


def _of_weight_gradient(v: Tensor, gradient: Tensor, x: Tensor, like: Tensor) -> tuple[Tensor, Tensor, None]:
    return _product(x, v), _input_gradient(gradient, v), None


def _product(x: Tensor, weight: Tensor) -> Tensor:
    if _two_by_two(x, weight):
        return _two_by_two_images(_vectors(x) @ _whole_matrix(weight).T).flip(2, 3)
    if _tiny(x, weight):
        return _images(_patches(x) @ _rows(weight).T, x)
    return F.conv2d(x, weight, padding=weight.shape[-1] // 2)


def _input_gradient(gradient: Tensor, weight: Tensor) -> Tensor:
    """dx = g ⋆ w."""
    if _two_by_two(gradient, weight):
        return _two_by_two_images(_vectors(gradient.flip(2, 3)) @ _whole_matrix(weight))
    if _tiny(gradient, weight):
        patches = _positions(gradient) @ _rows(weight)
        return _SumOfPatches.apply(patches, len(gradient), *gradient.shape[2:])  # pyright: ignore[reportReturnType]
    if weight.shape[-1] == 3 and weight.shape[1] <= FEW_CHANNELS:  # of the images themselves: the library's own is slower
        return F.conv2d(gradient, weight.flip(2, 3).transpose(0, 1), padding=1)
    like = gradient.new_empty(()).expand(len(gradient), weight.shape[1], *gradient.shape[2:])
    return gradients(gradient, like, weight, [True, False, False])[0]


def _weight_gradient(gradient: Tensor, x: Tensor, like: Tensor) -> Tensor:
    """dw = g ⋆ x."""
    if _two_by_two(gradient, like):
        return _of_whole_matrix(_vectors(gradient.flip(2, 3)).T @ _vectors(x), like)
    if _tiny(gradient, like):
        rows = _positions(gradient).T @ _patches(x)
        return rows.unflatten(1, (*like.shape[2:], -1)).permute(0, 3, 1, 2)
    return gradients(gradient, x, like, [False, True, False])[1]


def gradients(gradient: Tensor, x: Tensor, weight: Tensor, wanted: list[bool], bias: torch.Size | None = None):
    """The library's own, of those that are wanted of x, the weights and a bias of this shape."""
    padding = [weight.shape[-1] // 2] * 2
    return torch.ops.aten.convolution_backward(gradient, x, weight, bias, [1, 1], padding, [1, 1], False, [0, 0], 1, wanted)


# --- at 2x2: every position sees every other, so the convolution is one matrix ------------------------------------------------
# From position q to p goes the kernel's entry q − p + 1. With p counted backwards (p' = 1 − p) that is q + p', and the whole
# matrix is a strided view of the kernel. So results come out, and gradients go in, with their positions reversed.


def _two_by_two(images: Tensor, weight: Tensor) -> bool:
    return weight.shape[-1] == 3 and images.shape[2:] == (2, 2)


def _vectors(images: Tensor) -> Tensor:
    """(n, c, 2, 2) → (n, 4c), without a copy in channels_last."""
    return images.permute(0, 2, 3, 1).flatten(1)


def _two_by_two_images(vectors: Tensor) -> Tensor:
    return vectors.unflatten(1, (2, 2, -1)).permute(0, 3, 1, 2)


def _whole_matrix(weight: Tensor) -> Tensor:
    """(o, c, 3, 3) → (4o, 4c), from the vectors of x to those of y with reversed positions."""
    outputs, inputs = weight.shape[:2]
    o, c, y, x = weight.stride()
    return weight.as_strided((2, 2, outputs, 2, 2, inputs), (y, x, o, y, x, c)).reshape(4 * outputs, 4 * inputs)


def _of_whole_matrix(matrix: Tensor, like: Tensor) -> Tensor:
    """The transpose of `_whole_matrix`: what its entries say of the kernel."""
    outputs, inputs = like.shape[:2]
    matrix = matrix.view(2, 2, outputs, 2, 2, inputs)
    kernel = matrix.new_zeros(outputs, 3, 3, inputs)
    for y, x in product(range(2), range(2)):
        kernel[:, y : y + 2, x : x + 2] += matrix[y, x]
    return kernel.permute(0, 3, 1, 2)


# --- elsewhere: a product with the neighbourhoods -----------------------------------------------------------------------------


def _tiny(images: Tensor, weight: Tensor) -> bool:
    many = weight.shape[1] >= MANY_CHANNELS and weight.is_contiguous(memory_format=torch.channels_last)
    return weight.shape[-1] == 3 and many and max(images.shape[2:]) <= TINY


def _positions(images: Tensor) -> Tensor:
    """(n, c, h, w) → (nhw, c), without a copy in channels_last."""
    return images.permute(0, 2, 3, 1).flatten(0, 2)


def _images(positions: Tensor, like: Tensor) -> Tensor:
    """(nhw, c) → (n, c, h, w) in channels_last."""
    return positions.unflatten(0, (len(like), *like.shape[2:])).permute(0, 3, 1, 2)


def _rows(weight: Tensor) -> Tensor:
    """(o, c, 3, 3) → (o, 9c), in the order of `_patches`; without a copy in channels_last."""
    return weight.permute(0, 2, 3, 1).flatten(1)


def _patches(images: Tensor) -> Tensor:
    """(n, c, h, w) → (nhw, 9c): the 3x3 neighbourhood of every position."""
    n, c, h, w = images.shape
    padded = F.pad(images.permute(0, 2, 3, 1), (0, 0, 1, 1, 1, 1))
    image, row, column, channel = padded.stride()
    return padded.as_strided((n, h, w, 3, 3, c), (image, row, column, row, column, channel)).reshape(n * h * w, 9 * c)


class _SumOfPatches(torch.autograd.Function):
    """(nhw, 9c) → (n, c, h, w): what the patches of all positions say of each; the transpose of `_patches`."""

    @staticmethod
    def forward(ctx, patches: Tensor, n: int, h: int, w: int) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.shape = n, h, w
        return _summed(patches, n, h, w)

    @staticmethod
    @torch.no_grad()
    def jvp(ctx, tangent: Tensor, *_) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _summed(tangent, *ctx.shape)

    @staticmethod
    def backward(ctx, gradient: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        return _patches(gradient), None, None, None


def _summed(patches: Tensor, n: int, h: int, w: int) -> Tensor:
    patches = patches.view(n, h, w, 3, 3, -1)
    padded = patches.new_zeros(n, h + 2, w + 2, patches.shape[-1])
    for y, x in product(range(3), range(3)):
        padded[:, y : y + h, x : x + w] += patches[:, :, :, y, x]
    return padded[:, 1:-1, 1:-1].permute(0, 3, 1, 2)
