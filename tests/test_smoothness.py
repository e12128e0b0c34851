import math
from typing import Literal

import pytest
import reference
import scipy.stats
import torch
from test_objectives import each_of
from torch import Tensor, nn
from torch.autograd import grad
from torch.nn import functional as F

from sao.core.jacobian import jacobian_audit, jacobian_norm, norm_along, outputs_and_norms, smoothness_penalty
from sao.networks.layers import BatchNorm

STARTS: tuple[Literal["input", "output"], ...] = ("input", "output")
both_starts = pytest.mark.parametrize("start", STARTS)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def conv_net(seed: int) -> tuple[nn.Module, Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = nn.Sequential(
            nn.Conv2d(2, 6, 3, padding=1),
            nn.GroupNorm(2, 6),
            nn.ELU(),
            nn.AvgPool2d(2),
            nn.Conv2d(6, 4, 3, padding=1),
            nn.GroupNorm(2, 4),
            nn.ELU(),
            nn.Flatten(),
            nn.Linear(36, 5),
        ).double()
        return net, torch.randn(4, 2, 6, 6, dtype=torch.float64)


def mlp(seed: int, samples: int = 4) -> tuple[nn.Module, Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = nn.Sequential(
            nn.Linear(7, 12), nn.ELU(), nn.Linear(12, 12), nn.GroupNorm(3, 12), nn.ELU(), nn.Linear(12, 6)
        ).double()
        return net, torch.randn(samples, 7, dtype=torch.float64)


both_nets = pytest.mark.parametrize("build", [conv_net, mlp])


def exact_norms(function, x: Tensor) -> Tensor:
    return torch.stack([torch.linalg.svdvals(matrix)[0] for matrix in reference.jacobians(function, x)]).detach()


# --- the estimate against the full Jacobian ------------------------------------------------------------------------------


@both_nets
@both_starts
@pytest.mark.parametrize("seed", range(3))
def test_estimate_rises_to_the_exact_norm_and_never_passes_it(build, start, seed):
    net, x = build(seed)
    exact = exact_norms(net, x)
    before = torch.zeros(len(x), dtype=torch.float64)
    for steps in (1, 2, 5, 40):
        estimate = jacobian_norm(net, x, steps, start, seeded(seed)).detach()
        assert estimate.shape == (len(x),)
        assert (estimate <= exact * (1 + 1e-12)).all()
        assert (estimate >= before * (1 - 1e-12)).all()
        before = estimate
    torch.testing.assert_close(before, exact, rtol=0.01, atol=0)


@both_nets
@both_starts
@pytest.mark.parametrize("steps", [1, 3])
def test_value_and_gradient_are_those_of_the_literal_algorithm(build, start, steps):
    """The input start is Algorithm 1 of the transposed Jacobian."""
    net, x = build(5)
    parameters = list(net.parameters())
    weights = torch.tensor([0.5, -1.0, 2.0, 1.5], dtype=torch.float64)
    ours = jacobian_norm(net, x, steps, start, seeded(1))
    matrices = reference.jacobians(net, x)
    like = net(x) if start == "output" else x
    draws = torch.randn(like.shape, dtype=torch.float64, generator=seeded(1))
    theirs = reference.algorithm_1(matrices if start == "output" else [m.T for m in matrices], draws, steps)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    own = torch.autograd.grad((weights * ours).sum(), parameters, allow_unused=True)
    other = torch.autograd.grad((weights * theirs).sum(), parameters, allow_unused=True)
    for name, a, b in zip(dict(net.named_parameters()), own, other, strict=True):
        a, b = (torch.zeros(()) if g is None else g for g in (a, b))  # the last bias moves no Jacobian
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10, msg=lambda m, name=name: f"{name}: {m}")
    assert sum(float(g.abs().sum()) for g in own if g is not None) > 0


@both_starts
def test_gradient_of_the_penalty_passes_gradcheck(start):
    """With a single output the last direction is known, so the estimate is the norm itself: a function to differentiate."""
    x = torch.randn(3, 4, dtype=torch.float64, generator=seeded(2))

    def penalty(weight: Tensor, bias: Tensor) -> Tensor:
        norms = jacobian_norm(lambda t: F.elu(t @ weight + bias).sum(1, keepdim=True), x, 1, start, seeded(3))
        return smoothness_penalty(norms, 0.7)

    weight = torch.randn(4, 5, dtype=torch.float64, generator=seeded(4)).requires_grad_()
    bias = torch.randn(5, dtype=torch.float64, generator=seeded(5)).requires_grad_()
    assert torch.autograd.gradcheck(penalty, (weight, bias))


def test_both_starts_have_the_same_distribution():
    """One sample repeated gives independent draws; both follow √(Σσ⁴a² / Σσ²a²) with normal a."""
    net, x = mlp(6)
    draws = 6000
    many = x[:1].expand(draws, -1)
    values = torch.linalg.svdvals(reference.jacobians(net, x[:1])[0])
    a = torch.randn(draws, len(values), dtype=torch.float64, generator=seeded(7)).square()
    samples = {"formula": ((a @ values**4) / (a @ values**2)).sqrt().detach()}
    for seed, start in enumerate(STARTS):
        samples[start] = jacobian_norm(net, many, 1, start, seeded(seed)).detach()
    for one, two in (("input", "output"), ("input", "formula"), ("output", "formula")):
        first, second = samples[one], samples[two]
        error = math.sqrt((first.var() + second.var()) / draws)
        assert abs(first.mean() - second.mean()) < 4 * error, (one, two)
        test = scipy.stats.ks_2samp(first.numpy(), second.numpy())
        assert test.pvalue > 1e-3, (one, two)  # pyright: ignore[reportAttributeAccessIssue]


@both_nets
@both_starts
def test_each_sample_has_its_own_estimate(build, start):
    net, x = build(8)
    changed = x.clone()
    changed[1] *= 3
    before = jacobian_norm(net, x, 2, start, seeded(9))
    after = jacobian_norm(net, changed, 2, start, seeded(9))
    same = torch.tensor([True, False, True, True])
    torch.testing.assert_close(after[same], before[same], rtol=1e-12, atol=0)
    assert abs(after[1] - before[1]) > 1e-6


# --- shapes, callables, third parties ------------------------------------------------------------------------------------


@both_starts
@pytest.mark.parametrize("shape", [(3, 1), (1, 5), (2, 1, 4, 4), (2, 3, 2, 2, 2)])
@pytest.mark.parametrize("output", ["(n,)", "(n, 1)", "(n, 3)", "(n, 2, 2, 2)"])
def test_any_shape_of_inputs_and_outputs(start, shape, output):
    size = {"(n,)": (), "(n, 1)": (1,), "(n, 3)": (3,), "(n, 2, 2, 2)": (2, 2, 2)}[output]
    weight = torch.randn(math.prod(shape[1:]), math.prod(size), dtype=torch.float64, generator=seeded(1))
    x = torch.randn(shape, dtype=torch.float64, generator=seeded(2))
    estimate = jacobian_norm(lambda t: (t.flatten(1) @ weight).reshape(-1, *size), x, 60, start, seeded(3))
    torch.testing.assert_close(estimate, torch.linalg.svdvals(weight)[0].expand(len(x)), rtol=0.01, atol=0)


def test_single_precision_stays_below_the_norm_too():
    net, x = conv_net(1)
    exact = exact_norms(net, x)
    for start in STARTS:
        estimate = jacobian_norm(net.float(), x.float(), 30, start, seeded(1))  # pyright: ignore[reportArgumentType]
        assert estimate.dtype == torch.float32
        assert (estimate <= exact * (1 + 1e-5)).all()


@both_starts
def test_the_jacobian_is_never_built(start):
    """Its 4·10¹⁰ entries would not fit anywhere."""
    scale = torch.linspace(0.5, 2, 200_000)
    estimate = jacobian_norm(lambda t: t * scale, torch.ones(2, 200_000), 3, start, seeded(0))
    assert (estimate <= 2 + 1e-4).all()
    assert (estimate > 1.5).all()


def test_draws_come_from_the_generator_alone():
    net, x = mlp(2)
    state = torch.get_rng_state()
    first, second = (jacobian_norm(net, x, generator=seeded(4)) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(first, jacobian_norm(net, x, generator=seeded(5)))
    assert not torch.equal(first, jacobian_norm(net, x))


class NoForwardMode(torch.autograd.Function):
    """An operator of a third party that has only a backward rule."""

    calls = 0

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        NoForwardMode.calls += 1
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, *gradients: Tensor) -> Tensor:
        return gradients[0] * ctx.saved_tensors[0].cos()


class BrokenForwardRule(NoForwardMode):
    """One whose forward rule fails with an error of its own words."""

    @staticmethod
    def jvp(ctx, *tangents: Tensor) -> Tensor:
        raise RuntimeError("no kernel for tangents here")


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0].mean(1)


def third_party(name: str) -> tuple[nn.Module, Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        match name:
            case "batch norm":
                normed = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2))
                net = nn.Sequential(normed, nn.Flatten(), nn.Linear(16, 3))
                net(torch.randn(8, 1, 6, 6))  # running statistics that are not the initial ones
                x = torch.randn(3, 1, 6, 6)
            case "transformer":
                net, x = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, batch_first=True), torch.randn(3, 5, 4)
            case "attention":
                net, x = Attention(), torch.randn(3, 5, 4)
            case _:
                raise ValueError(name)
        return net.double().eval(), x.double()


@both_starts
@pytest.mark.parametrize("name", ["batch norm", "transformer", "attention"])
def test_encoders_of_third_parties(name, start):
    net, x = third_party(name)
    exact = exact_norms(net, x)
    for steps in (1, 60):
        estimate = jacobian_norm(net, x, steps, start, seeded(1))
        assert (estimate <= exact * (1 + 1e-10)).all()
    torch.testing.assert_close(estimate, exact, rtol=0.01, atol=0)
    (gradient, *_) = torch.autograd.grad(estimate.sum(), [p for p in net.parameters() if p.ndim > 1])
    assert gradient.abs().sum() > 0


@both_starts
def test_operators_without_a_forward_rule_fall_back_on_two_reverse_passes(start):
    weight = torch.randn(4, 3, dtype=torch.float64, generator=seeded(1)).requires_grad_()
    x = torch.randn(5, 4, dtype=torch.float64, generator=seeded(2))
    without = jacobian_norm(lambda t: NoForwardMode.apply(t @ weight), x, 2, start, seeded(3))
    assert NoForwardMode.calls > 0
    having = jacobian_norm(lambda t: (t @ weight).sin(), x, 2, start, seeded(3))
    torch.testing.assert_close(without, having)
    torch.testing.assert_close(torch.autograd.grad(without.sum(), weight)[0], torch.autograd.grad(having.sum(), weight)[0])


def test_whatever_words_forward_mode_fails_with_two_reverse_passes_do_instead():
    x = torch.randn(5, 4, dtype=torch.float64, generator=seeded(2))
    expected = jacobian_norm(torch.sin, x, 2, generator=seeded(3))
    torch.testing.assert_close(jacobian_norm(BrokenForwardRule.apply, x, 2, generator=seeded(3)), expected)
    with torch.autograd.forward_ad.dual_level():
        torch.testing.assert_close(jacobian_norm(torch.sin, x, 2, generator=seeded(3)), expected)


def test_want_of_memory_is_not_answered_by_the_way_that_takes_more():
    calls = []

    def large(x: Tensor) -> Tensor:
        calls.append(len(x))
        raise torch.OutOfMemoryError("out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        jacobian_norm(large, torch.ones(2, 3))
    assert len(calls) == 1


def test_errors_of_the_function_are_not_swallowed():
    def broken(x: Tensor) -> Tensor:
        raise RuntimeError("out of cheese")

    with pytest.raises(RuntimeError, match="out of cheese"):
        jacobian_norm(broken, torch.ones(2, 3))


@both_starts
def test_a_constant_function_has_norm_zero_and_finite_gradients(start):
    weight = torch.zeros(3, 2, requires_grad=True)
    norms = jacobian_norm(lambda t: t @ weight, torch.ones(2, 3), 2, start, seeded(0))
    assert (norms == 0).all()
    smoothness_penalty(norms).backward()
    assert weight.grad is not None
    assert weight.grad.isfinite().all()


@both_starts
def test_the_caller_may_have_switched_gradients_off(start):
    net, x = mlp(1)
    expected = jacobian_norm(net, x, 1, start, seeded(1))
    with torch.no_grad():
        torch.testing.assert_close(jacobian_norm(net, x, 1, start, seeded(1)), expected)
    assert not x.requires_grad
    assert all(p.grad is None for p in net.parameters())


# --- training: one forward pass with a graph -----------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 2])
def test_penalty_shares_the_forward_pass_of_the_losses(steps):
    net, x = conv_net(3)
    graphs = []

    def counted(inputs: Tensor) -> Tensor:
        graphs.append(torch.is_grad_enabled())
        return net(inputs)

    outputs, norms = outputs_and_norms(counted, x, steps, seeded(1))
    loss = outputs.square().mean() + smoothness_penalty(norms, 0.3)
    # One pass serves the loss, the tangent and the penalty; a further step takes a forward and a reverse pass of its own.
    assert graphs.count(False) == steps - 1
    assert graphs.count(True) == steps
    separate = net(x).square().mean() + (jacobian_norm(net, x, steps, generator=seeded(1)) - 0.3).square().mean()
    torch.testing.assert_close(loss, separate)
    torch.testing.assert_close(grad(loss, list(net.parameters())), grad(separate, list(net.parameters())))


def test_tangents_carry_no_graph():
    """They are directions: what the penalty differentiates is |uJ| with u held fixed."""
    net, x = conv_net(3)
    _, norms = outputs_and_norms(net, x, generator=seeded(1))
    v = torch.randn(x.shape, dtype=x.dtype, generator=seeded(1))
    with torch.no_grad():
        tangents = torch.func.jvp(net, (x,), (v,))[1]
    u = tangents / tangents.flatten(1).norm(dim=1).reshape(-1, *[1] * (tangents.ndim - 1))
    inputs = x.clone().requires_grad_()
    (products,) = torch.autograd.grad(net(inputs), inputs, u, create_graph=True)
    expected = products.flatten(1).norm(dim=1)
    torch.testing.assert_close(norms, expected)
    weights = [p for p in net.parameters() if p.ndim > 1]
    torch.testing.assert_close(grad(norms.sum(), weights), grad(expected.sum(), weights))


def test_given_directions_make_parts_of_a_batch_agree_with_the_whole():
    net, x = mlp(4)
    start = torch.randn(x.shape, dtype=x.dtype, generator=seeded(1))
    whole = outputs_and_norms(net, x, 2, start=start)
    torch.testing.assert_close(outputs_and_norms(net, x, 2, seeded(1)), whole)
    parts = [outputs_and_norms(net, x[rows], 2, start=start[rows]) for rows in (slice(0, 1), slice(1, 4))]
    torch.testing.assert_close(tuple(torch.cat(values) for values in zip(*parts, strict=True)), whole)


def test_penalty_by_hand():
    assert smoothness_penalty(torch.tensor([1.0, 3.0])).item() == 2
    assert smoothness_penalty(torch.tensor([1.0, 3.0]), target=2).item() == 1


# --- the audit -----------------------------------------------------------------------------------------------------------


def test_audit_converges_to_the_exact_values():
    net, x = conv_net(4)
    audit = jacobian_audit(net, x, steps=(1, 40))
    assert not audit.estimates.requires_grad
    assert audit.exact is not None
    torch.testing.assert_close(audit.exact, exact_norms(net, x))
    torch.testing.assert_close(audit.estimates[-1], audit.exact, rtol=0.01, atol=0)


def test_audit_reads_as_a_table_of_quantiles():
    x = torch.ones(5, 2, dtype=torch.float64) * torch.tensor([[1.0], [2.0], [3.0], [4.0], [5.0]])
    audit = jacobian_audit(lambda t: t.square().sum(1, keepdim=True) / 2, x, (1, 2), quantiles=(0, 0.5, 1))
    root = math.sqrt(2)
    lines = str(audit).splitlines()
    assert "5 samples" in lines[0]
    assert lines[1].split() == ["steps", "q0", "q50", "q100"]
    for line, name in zip(lines[2:], ["1", "2", "exact"], strict=True):
        assert line.split() == [name, f"{root:.4g}", f"{3 * root:.4g}", f"{5 * root:.4g}"]
    assert len({len(line) for line in lines[1:]}) == 1


def test_audit_leaves_the_exact_value_out_where_it_would_be_dear():
    net, x = mlp(1)
    entries = x.numel() * 6
    assert jacobian_audit(net, x, (1,), exact_limit=entries).exact is not None
    audit = jacobian_audit(net, x, (1,), exact_limit=entries - 1)
    assert audit.exact is None
    assert "exact" not in str(audit)


def test_audit_in_batches_and_of_half_precision():
    net, x = mlp(1)
    whole, parts = jacobian_audit(net, x, (30,)), jacobian_audit(net, x, (30,), batch_size=3)
    assert whole.exact is not None
    assert parts.exact is not None
    torch.testing.assert_close(parts.exact, whole.exact)
    torch.testing.assert_close(parts.estimates, whole.estimates, rtol=0.01, atol=0)
    assert "q50" in str(jacobian_audit(lambda t: 2 * t, x.bfloat16(), (1,), exact_limit=0))


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(7), nn.Dropout()])
def test_audit_refuses_batch_statistics_and_chance(layer):
    x = torch.randn(6, 7, generator=seeded(1))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        with pytest.raises(ValueError, match=r"^function .*eval\(\)"):
            jacobian_audit(layer.train(), x, (1,))
    jacobian_audit(layer.eval(), x, (1,))


@both_starts
@pytest.mark.parametrize(
    "layer", [nn.BatchNorm1d(7), BatchNorm(7), nn.BatchNorm1d(7, track_running_stats=False).eval(), nn.Dropout()], ids=str
)
def test_layers_that_mix_samples_or_draw_are_refused_wherever_they_hide(layer, start):
    net = nn.Sequential(nn.Linear(7, 7), layer)
    x = torch.randn(6, 7, generator=seeded(1))
    for function in (net, net.forward, lambda t: net(t)[:, :3]):
        with pytest.raises(ValueError, match=rf"^function .*{type(layer).__name__} .*eval\(\)"):
            jacobian_norm(function, x, start=start)
    with pytest.raises(ValueError, match=r"^function "):
        outputs_and_norms(net, x)
    net(x)  # outside of these functions it is nobody's business


@both_starts
def test_layers_that_mix_no_samples_in_evaluation_are_welcome(start):
    net = nn.Sequential(nn.Linear(7, 7), nn.BatchNorm1d(7), nn.Dropout()).eval()
    assert jacobian_norm(net, torch.randn(6, 7, generator=seeded(1)), start=start).isfinite().all()
    assert jacobian_norm(nn.Dropout(0.0), torch.ones(2, 3), start=start).isfinite().all()


# --- wrong arguments -----------------------------------------------------------------------------------------------------


BROKEN = [torch.full((2, 3), value) for value in (math.nan, math.inf)]


@each_of(
    {
        "x": [torch.zeros(0, 3), torch.zeros(3), torch.zeros(2, 0), torch.ones(2, 3, dtype=torch.int64), *BROKEN],
        "steps": [0],
        "function": [lambda t: (t, t), lambda t: t.sum(), lambda t: t[:1]],
        "start": ["middle"],
    }
)
def test_jacobian_norm_names_the_wrong_argument(name, value, error):
    for start in STARTS:
        arguments = {"function": lambda t: 2 * t, "x": torch.ones(2, 3), "start": start} | {name: value}
        with pytest.raises(error, match=rf"^{name} "):
            jacobian_norm(**arguments)


@both_starts
def test_a_function_that_returns_nan_is_named(start):
    with pytest.raises(FloatingPointError, match=r"^function "):
        jacobian_norm(lambda t: t * math.nan, torch.ones(2, 3), start=start)


@pytest.mark.parametrize(
    ("call", "error", "name"),
    [
        (lambda x: outputs_and_norms(torch.sin, x, start=torch.ones(1, 3)), ValueError, "start"),
        (lambda x: outputs_and_norms(torch.sin, x[:0]), ValueError, "x"),
        (lambda x: norm_along(x.sin(), x, torch.ones(2, 3)), ValueError, "inputs"),
        (lambda x: norm_along(x.sin(), x.requires_grad_(), torch.ones(2, 3)), ValueError, "outputs"),
        (lambda x: norm_along(x.requires_grad_().sin(), x, torch.ones(2, 2)), ValueError, "direction"),
        (lambda x: smoothness_penalty(x), ValueError, "norms"),
        (lambda x: smoothness_penalty(x[:0, 0]), ValueError, "norms"),
        (lambda x: smoothness_penalty(x[0] * math.nan), FloatingPointError, "norms"),
        (lambda x: jacobian_audit(torch.sin, x, ()), ValueError, "steps"),
        (lambda x: jacobian_audit(torch.sin, x, (0, 1)), ValueError, "steps"),
        (lambda x: jacobian_audit(torch.sin, x, quantiles=(0.5, 95)), ValueError, "quantiles"),
        (lambda x: jacobian_audit(torch.sin, x[:0]), ValueError, "x"),
    ],
)
def test_the_parts_name_the_wrong_argument(call, error, name):
    with pytest.raises(error, match=rf"^{name} "):
        call(torch.ones(2, 3))


def test_a_function_that_is_zero_everywhere_has_norms_of_zero():
    """A collapsed network: nothing that it returns differs, also not from copies of one sample."""
    audit = jacobian_audit(lambda x: 0 * x[:, :2], torch.randn(3, 4, generator=seeded(0)))
    assert not audit.estimates.any()
    assert audit.exact is not None
    assert not audit.exact.any()


@pytest.mark.parametrize("batch_size", [4, 256])
@pytest.mark.parametrize("seed", [0, 3])
def test_each_row_is_the_audit_of_that_number_of_steps_alone(batch_size, seed):
    net, x = mlp(0, 10)
    audit = jacobian_audit(net, x, (8, 1, 2, 2), seed=seed, batch_size=batch_size)
    assert audit.steps == (1, 2, 8)
    assert audit.estimates.shape == (3, 10)
    for steps, row in zip(audit.steps, audit.estimates, strict=True):
        alone = jacobian_audit(net, x, [steps], seed=seed, batch_size=batch_size).estimates[0]
        assert torch.equal(row, alone)
        draws = torch.Generator().manual_seed(seed)
        expected = [jacobian_norm(net, part, steps, generator=draws).detach() for part in x.split(batch_size)]
        assert torch.equal(row, torch.cat(expected))
    rises = audit.estimates.diff(dim=0)
    assert bool((rises >= -1e-12).all())
    assert bool((rises > 0).any())


def test_directions_are_drawn_anew_for_each_batch_and_seed():
    net, x = mlp(0, 10)
    twice = torch.cat([x[:4], x[:4]])
    first, second = jacobian_audit(net, twice, [1], batch_size=4).estimates[0].split(4)
    assert not torch.equal(first, second)
    assert not torch.equal(first, jacobian_audit(net, twice, [1], seed=1, batch_size=4).estimates[0, :4])
