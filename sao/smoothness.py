"""The spectral norm of each sample's Jacobian by power iteration, the penalty made of it, and an audit for any encoder.

The function must treat its samples independently (no batch statistics); then one product with the batch is one product for
each sample's own Jacobian J. The Jacobian itself is never built, except in the audit of a small network.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.autograd import forward_ad

Function = Callable[[Tensor], Tensor]


def jacobian_norm(
    function: Function,
    x: Tensor,
    steps: int = 1,
    start: Literal["input", "output"] = "input",
    generator: torch.Generator | None = None,
) -> Tensor:
    """Estimate |J(x_i)|₂ for each sample, (n,), differentiable in the function's parameters; the paper's Algorithm 1.

    Both starts take 2·steps products with J, of which only the last carries a graph. The estimate never exceeds the norm.
    "output" is the paper's form: random u, v = uJ/|uJ|, then |Jv| with v held fixed, whose value and gradient are those of
    sg(u) J sg(v). "input" is its mirror: random v, u = Jv/|Jv|, then |uJ| with u held fixed. Their distributions are the
    same; the mirror ends in a reverse pass, which is cheaper and works wherever training works.
    """
    _check_arguments(x, steps)
    if start == "input":
        direction = output_direction(function, x, steps, generator)
        with torch.enable_grad():
            inputs = x.detach().requires_grad_()
            return norm_along(function(inputs), inputs, direction)
    if start == "output":
        direction = _normal_like(_output(function, x), generator)
        for step in range(steps):
            v = _unit(_vjp(function, x, direction))
            if step < steps - 1:
                direction = _unit(_jvp(function, x, v))
        return _norms(_jvp_with_graph(function, x, v))
    raise ValueError(f'start must be "input" or "output", got {start!r}')


def output_direction(function: Function, x: Tensor, steps: int = 1, generator: torch.Generator | None = None) -> Tensor:
    """The unit output direction u after the power iteration from a random input direction, without a graph."""
    _check_arguments(x, steps)
    v = _unit(_normal_like(x, generator))
    direction = _unit(_jvp(function, x, v))
    for _ in range(steps - 1):
        v = _unit(_vjp(function, x, direction))
        direction = _unit(_jvp(function, x, v))
    return direction


def norm_along(outputs: Tensor, inputs: Tensor, direction: Tensor) -> Tensor:
    """|uJ| for each sample from a forward pass that is already there: one reverse pass, with a graph.

    `inputs` must require gradients and `outputs` must have been computed from them. This is how training shares one forward
    pass between the losses and the penalty.
    """
    (products,) = torch.autograd.grad(outputs, inputs, direction.to(outputs.dtype), create_graph=True)
    return _norms(products)


def smoothness_penalty(norms: Tensor, target: float = 1.0) -> Tensor:
    """Mean squared distance of the Jacobian norms (n,) to the Lipschitz target."""
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
        levels = torch.tensor(self.quantiles, dtype=self.estimates.dtype)
        for name, row in rows:
            lines.append(name + " " + " ".join(f"{value:9.4g}" for value in row.quantile(levels).tolist()))
        return "\n".join(lines)


def jacobian_audit(
    function: Function,
    x: Tensor,
    steps: Sequence[int] = (1, 2, 4, 8, 16),
    quantiles: Sequence[float] = (0.05, 0.25, 0.5, 0.75, 0.95, 1.0),
    exact_limit: int = 1 << 20,
    seed: int = 0,
) -> JacobianAudit:
    """Quantiles of the estimate over samples, its convergence over steps, and the exact value by SVD where that is cheap.

    The exact value is computed when one Jacobian has at most `exact_limit` entries. Every number of steps starts from the same
    directions, so that each column only rises.
    """
    steps = tuple(sorted(set(steps)))
    if not steps:
        raise ValueError("steps is empty: give at least one number of power iterations")
    _check_arguments(x, steps[0])
    generators = [torch.Generator().manual_seed(seed) for _ in steps]
    estimates = torch.stack(
        [jacobian_norm(function, x, s, generator=g).detach().cpu() for s, g in zip(steps, generators, strict=True)]
    )
    outputs = _output(function, x)[0].numel()
    exact = None
    if outputs * x[0].numel() <= exact_limit:
        exact = torch.stack([_exact_norm(function, sample) for sample in x]).cpu()
    return JacobianAudit(steps, tuple(quantiles), estimates, exact)


def _exact_norm(function: Function, sample: Tensor) -> Tensor:
    jacobian = torch.autograd.functional.jacobian(lambda one: function(one[None])[0], sample)
    assert isinstance(jacobian, Tensor)
    return torch.linalg.matrix_norm(jacobian.reshape(-1, sample.numel()), ord=2)


def _output(function: Function, x: Tensor) -> Tensor:
    with torch.no_grad():
        return function(x.detach())


def _vjp(function: Function, x: Tensor, direction: Tensor) -> Tensor:
    """uJ for each sample, without a graph."""
    with torch.enable_grad():
        inputs = x.detach().requires_grad_()
        (products,) = torch.autograd.grad(function(inputs), inputs, direction)
    return products


def _jvp(function: Function, x: Tensor, direction: Tensor) -> Tensor:
    """Jv for each sample, without a graph: forward mode, or two reverse passes where an operator has no forward rule."""
    try:
        with torch.no_grad(), forward_ad.dual_level():
            tangent = forward_ad.unpack_dual(function(forward_ad.make_dual(x.detach(), direction))).tangent
            return torch.zeros_like(_output(function, x)) if tangent is None else tangent.clone()
    except (NotImplementedError, RuntimeError) as error:
        if "forward" not in str(error).lower():
            raise
    return _jvp_with_graph(function, x, direction).detach()


def _jvp_with_graph(function: Function, x: Tensor, direction: Tensor) -> Tensor:
    """Jv for each sample with a graph: the derivative of w ↦ wJ, which is linear in w, applied to v."""
    with torch.enable_grad():
        inputs = x.detach().requires_grad_()
        outputs = function(inputs)
        w = torch.zeros_like(outputs, requires_grad=True)
        (products,) = torch.autograd.grad(outputs, inputs, w, create_graph=True)
        (result,) = torch.autograd.grad(products, w, direction, create_graph=True)
    return result


def _normal_like(tensor: Tensor, generator: torch.Generator | None) -> Tensor:
    device = generator.device if generator is not None else tensor.device
    return torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype, device=device).to(tensor.device)


def _norms(tensor: Tensor) -> Tensor:
    return torch.linalg.vector_norm(tensor.flatten(1), dim=1)


def _unit(tensor: Tensor) -> Tensor:
    norms = _norms(tensor).clamp_min(torch.finfo(tensor.dtype).tiny)
    return tensor / norms.reshape(-1, *[1] * (tensor.ndim - 1))


def _check_arguments(x: Tensor, steps: int) -> None:
    if x.ndim < 2 or x.numel() == 0:
        raise ValueError(f"x must be a non-empty batch (n, …), got shape {tuple(x.shape)}")
    if not x.is_floating_point():
        raise ValueError(f"x must be floating point, got {x.dtype}")
    if not torch.isfinite(x).all():
        raise FloatingPointError("x holds NaN or inf")
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
