"""The spectral norm of each sample's Jacobian by power iteration, the penalty made of it, and an audit for any encoder.

The function must treat its samples independently (no batch statistics) and without chance (no dropout): then one product with
the batch is one for each sample's own Jacobian J.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.module import register_module_forward_pre_hook

from sao.core.finite import refuse_nonfinite

Function = Callable[[Tensor], Tensor]


@refuse_nonfinite
def jacobian_norm(
    function: Function,
    x: Tensor,
    steps: int = 1,
    start: Literal["input", "output"] = "input",
    generator: torch.Generator | None = None,
) -> Tensor:
    """Estimate |J(x_i)|₂ for each sample, (n,), from below; differentiable in the function's parameters; Algorithm 1.

    "output" is the paper's form: random u, v = uJ/|uJ|, then |Jv| with v held fixed. "input" is its mirror, which ends in a
    reverse pass and is cheaper: random v, u = Jv/|Jv|, then |uJ| with u held fixed. Their distributions are the same.
    """
    _check_arguments(x, steps)
    if start == "input":
        return outputs_and_norms.unchecked(function, x, steps, generator)[1]
    if start == "output":
        v = _unit(_vjp(function, x, _normal_like(_output(function, x), generator)))
        for _ in range(steps - 1):
            v = _unit(_vjp(function, x, _unit(_jvp(function, x, v))))
        return _norms(_jvp_with_graph(function, x, v))
    raise ValueError(f'start must be "input" or "output", got {start!r}')


@refuse_nonfinite
def outputs_and_norms(
    function: Function, x: Tensor, steps: int = 1, generator: torch.Generator | None = None, start: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The outputs and the Jacobian norms of samples, with a graph, from one forward pass and input directions `start`."""
    _check_arguments(x, steps)
    if start is not None and start.shape != x.shape:
        raise ValueError(f"start has shape {tuple(start.shape)}, x has {tuple(x.shape)}")
    outputs, norms, _ = outputs_norms_directions(function, x, _normal_like(x, generator) if start is None else start, steps)
    return outputs, norms


def outputs_norms_directions(
    function: Function, x: Tensor, start: Tensor, steps: int = 1, along: Tensor | None = None, create_graph: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """The same, and the directions u with which the last product was taken.

    A later pass of the same function takes them as `along` and iterates no more. Without `create_graph` only values are given.
    """
    with torch.enable_grad():
        inputs = x if x.requires_grad else x.detach().requires_grad_()
        if along is None:
            v = _unit(start)
            for _ in range(steps - 1):
                v = _unit(_vjp(function, x, _unit(_jvp(function, x, v))))
            outputs, tangents = _outputs_and_tangents(function, inputs, v)
            along = _unit(tangents)
        else:
            outputs = _evaluate(function, inputs)
        return outputs, norm_along(outputs, inputs, along, create_graph), along


def norm_along(outputs: Tensor, inputs: Tensor, direction: Tensor, create_graph: bool = True) -> Tensor:
    """|uJ| for each sample from a forward pass of `inputs` that is already there: one reverse pass, with a graph.

    Fused attention has no second derivative: compute the outputs of a transformer under `sdpa_kernel(SDPBackend.MATH)`.
    """
    if not inputs.requires_grad:
        raise ValueError("inputs must require gradients")
    if not outputs.requires_grad:
        raise ValueError("outputs must have been computed from inputs, with gradients enabled")
    if direction.shape != outputs.shape:
        raise ValueError(f"direction has shape {tuple(direction.shape)}, outputs has {tuple(outputs.shape)}")
    (products,) = torch.autograd.grad(outputs, inputs, direction.to(outputs.dtype), create_graph=create_graph)
    return _norms(products)


@refuse_nonfinite
def smoothness_penalty(norms: Tensor, target: float = 1.0) -> Tensor:
    """Mean squared distance of the Jacobian norms (n,) to the Lipschitz target."""
    if norms.ndim != 1 or len(norms) == 0:
        raise ValueError(f"norms must hold one number for each sample, got shape {tuple(norms.shape)}")
    return (norms - target).square().mean()


@dataclass(frozen=True)
class JacobianAudit:
    """How smooth an encoder is on given data."""

    steps: tuple[int, ...]
    quantiles: tuple[float, ...]
    estimates: Tensor  # (len(steps), n)
    exact: Tensor | None  # (n,), where the network is small enough for its full Jacobian

    def __str__(self) -> str:
        head = "steps " + " ".join(f"{f'q{100 * q:g}':>9}" for q in self.quantiles)
        lines = [f"spectral norm of the Jacobian, {self.estimates.shape[1]} samples", head]
        rows = [(f"{step:5d}", row) for step, row in zip(self.steps, self.estimates, strict=True)]
        if self.exact is not None:
            rows.append(("exact", self.exact))
        levels = torch.tensor(self.quantiles, dtype=torch.float64)
        for name, row in rows:
            lines.append(name + " " + " ".join(f"{value:9.4g}" for value in row.double().quantile(levels).tolist()))
        return "\n".join(lines)


@refuse_nonfinite
def jacobian_audit(
    function: Function,
    x: Tensor,
    steps: Sequence[int] = (1, 2, 4, 8, 16),
    quantiles: Sequence[float] = (0.05, 0.25, 0.5, 0.75, 0.95, 1.0),
    exact_limit: int = 1 << 23,
    seed: int = 0,
    batch_size: int = 256,
) -> JacobianAudit:
    """Quantiles over samples and steps, and exact norms where all Jacobians together have at most `exact_limit` entries."""
    steps = tuple(sorted(set(steps)))
    if not steps:
        raise ValueError("steps is empty: give at least one number of power iterations")
    _check_arguments(x, steps[0])
    if not all(0 <= quantile <= 1 for quantile in quantiles):
        raise ValueError(f"quantiles must lie between 0 and 1, got {tuple(quantiles)}")
    batches = x.split(batch_size)
    outputs = _output(function, batches[0])
    copies = _output(function, x[:1].expand_as(batches[0]).clone())
    if not (copies[0] - outputs[0]).abs().max() <= 1e-2 * outputs.abs().max():  # NaN is no agreement
        raise ValueError("function must treat samples independently and without chance: call eval() on the network first")
    estimates = []
    for step in steps:
        generator = torch.Generator().manual_seed(seed)
        norms = [jacobian_norm(function, batch, step, generator=generator).detach() for batch in batches]
        estimates.append(torch.cat(norms).cpu())
    exact = None
    if x.numel() * outputs[0].numel() <= exact_limit:
        exact = torch.cat([_exact_norms(function, batch) for batch in batches]).cpu()
    return JacobianAudit(steps, tuple(quantiles), torch.stack(estimates), exact)


def _exact_norms(function: Function, x: Tensor) -> Tensor:
    with torch.enable_grad():
        inputs = x.detach().requires_grad_()
        columns = _evaluate(function, inputs).reshape(len(x), -1).sum(0)
    rows = [torch.autograd.grad(column, inputs, retain_graph=True)[0].flatten(1) for column in columns]
    return torch.linalg.matrix_norm(torch.stack(rows, 1), ord=2)


def _evaluate(function: Function, x: Tensor) -> Tensor:
    """The function's output, checked; attention by operators that have the derivatives, which the fused ones lack."""
    with sdpa_kernel(SDPBackend.MATH), _refused_layers():
        outputs = function(x)
    if not isinstance(outputs, Tensor) or outputs.ndim == 0 or len(outputs) != len(x):
        got = f"shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else type(outputs).__name__
        raise ValueError(f"function must return one tensor with a row for each of the {len(x)} samples, got {got}")
    return outputs


@contextmanager
def _refused_layers() -> Iterator[None]:
    """Stop at a layer that mixes samples or draws at random: with BatchNorm in training the estimate was 12 to 16 % above."""
    caller = threading.get_ident()

    def check(layer: nn.Module, arguments: Any) -> None:
        if threading.get_ident() != caller:  # the hook sees the layers of every thread
            return
        statistics = layer._buffers.get("running_mean")  # of torch's BatchNorm, of ours, and of whoever else names them so
        mixes = isinstance(layer, _BatchNorm) if statistics is None else layer.training
        if mixes or (isinstance(layer, _DropoutNd) and layer.training and layer.p > 0):
            state = "in training mode" if layer.training else "without running statistics"
            raise ValueError(
                f"function must treat samples independently and without chance, which {type(layer).__name__} {state} does not: "
                "call eval() on the network first, or use GroupNorm"
            )

    hook = register_module_forward_pre_hook(check)
    try:
        yield
    finally:
        hook.remove()


def _output(function: Function, x: Tensor) -> Tensor:
    with torch.no_grad():
        return _evaluate(function, x.detach())


def _vjp(function: Function, x: Tensor, direction: Tensor) -> Tensor:
    """uJ for each sample, without a graph."""
    with torch.enable_grad():
        inputs = x.detach().requires_grad_()
        (products,) = torch.autograd.grad(_evaluate(function, inputs), inputs, direction)
    return products


def _jvp(function: Function, x: Tensor, direction: Tensor) -> Tensor:
    """Jv for each sample, without a graph."""
    with torch.no_grad():
        return _outputs_and_tangents(function, x.detach(), direction)[1]


def _outputs_and_tangents(function: Function, x: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
    """f(x) and, without a graph, Jv: by forward mode, or by two reverse passes where an operator has no rule for it."""
    try:
        with forward_ad.dual_level():
            outputs, tangents = forward_ad.unpack_dual(_evaluate(function, forward_ad.make_dual(x.clone(), direction)))
            return outputs, torch.zeros_like(outputs) if tangents is None else tangents.detach().clone()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:
        pass
    tangents = _jvp_with_graph(function, x, direction).detach()
    return _evaluate(function, x), tangents  # last, so that what a function notes beside its outputs is of the same graph


def _jvp_with_graph(function: Function, x: Tensor, direction: Tensor) -> Tensor:
    """Jv for each sample with a graph: the derivative of w ↦ wJ, which is linear in w, applied to v."""
    with torch.enable_grad():
        inputs = x.detach().requires_grad_()
        outputs = _evaluate(function, inputs)
        w = torch.zeros_like(outputs, requires_grad=True)
        (products,) = torch.autograd.grad(outputs, inputs, w, create_graph=True)
        (result,) = torch.autograd.grad(products, w, direction, create_graph=True)
    return result


def _normal_like(tensor: Tensor, generator: torch.Generator | None) -> Tensor:
    device = generator.device if generator is not None else tensor.device
    return torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype, device=device).to(tensor.device)


def _norms(tensor: Tensor) -> Tensor:
    return torch.linalg.vector_norm(tensor.reshape(len(tensor), -1), dim=1)


def _unit(tensor: Tensor) -> Tensor:
    norms = _norms(tensor).clamp_min(torch.finfo(tensor.dtype).tiny)
    return tensor / norms.reshape(-1, *[1] * (tensor.ndim - 1))


def _check_arguments(x: Tensor, steps: int) -> None:
    if x.ndim < 2 or x.numel() == 0:
        raise ValueError(f"x must be a non-empty batch (n, …), got shape {tuple(x.shape)}")
    if not x.is_floating_point():
        raise ValueError(f"x must be floating point, got {x.dtype}")
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
