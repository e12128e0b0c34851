import itertools
import math
from typing import Any

import pytest
import reference
import torch
from torch import Tensor
from torch.autograd import grad
from torch.distributions import MultivariateNormal
from torch.nn import functional as F

from sao.core.objectives import (
    adversarial_hinge,
    bhattacharyya,
    gaussian_covariance,
    gaussian_logdet,
    jensen_shannon,
    nearest_similarity,
    neighbour_similarity,
    norm_hinge,
)

DISTANCES = [(jensen_shannon, reference.jensen_shannon), (bhattacharyya, reference.bhattacharyya)]
OPTIONS = list(itertools.product(["full", "diagonal"], ["sphere", "mean"]))
both_distances = pytest.mark.parametrize(("distance", "literal"), DISTANCES, ids=["jensen_shannon", "bhattacharyya"])
all_options = pytest.mark.parametrize(("covariance", "centre"), OPTIONS)


def batch(n: int, p: int, seed: int, shift: float = 0.4) -> Tensor:
    """Unit rows that lean towards the first axis, so that their mean has a direction."""
    rows = torch.randn(n, p, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    rows[:, 0] += shift
    return F.normalize(rows)


def with_moments(mean: Tensor, root: Tensor) -> Tensor:
    """2p rows whose mean is exactly `mean` and whose covariance is exactly root rootᵀ."""
    steps = math.sqrt(len(mean)) * root.T
    return torch.cat([mean + steps, mean - steps])


@both_distances
@all_options
@pytest.mark.parametrize(("n", "m", "p", "epsilon"), [(9, 9, 4, 0.5), (5, 12, 7, 0.5), (2, 3, 6, 0.01), (7, 4, 1, 2.0)])
def test_distance_equals_the_literal_version_in_value_and_gradient(distance, literal, covariance, centre, n, m, p, epsilon):
    real, fake = batch(n, p, 1).requires_grad_(), batch(m, p, 2, shift=-0.7).requires_grad_()
    ours = distance(real, fake, covariance=covariance, centre=centre, epsilon=epsilon)
    theirs = literal(real, fake, covariance, centre, epsilon)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(grad(ours, [real, fake]), grad(theirs, [real, fake]), rtol=1e-9, atol=1e-10)


@both_distances
@all_options
def test_distance_passes_gradcheck(distance, literal, covariance, centre):
    inputs = (batch(5, 3, 3).requires_grad_(), batch(4, 3, 4, shift=-0.5).requires_grad_())
    assert torch.autograd.gradcheck(lambda r, f: distance(r, f, covariance=covariance, centre=centre), inputs)


@both_distances
def test_defaults_are_full_sphere_and_one_half(distance, literal):
    real, fake = batch(8, 5, 5), batch(8, 5, 6)
    torch.testing.assert_close(distance(real, fake), literal(real, fake, "full", "sphere", 0.5))


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_jensen_shannon_is_a_difference_of_gaussian_entropies(covariance):
    generator = torch.Generator().manual_seed(7)
    p, epsilon = 4, 0.3
    means = torch.randn(2, p, dtype=torch.float64, generator=generator)
    roots = torch.randn(2, p, p, dtype=torch.float64, generator=generator)
    if covariance == "diagonal":
        roots = torch.stack([torch.diag(root.diagonal()) for root in roots])
    shift = means[0] - means[1]
    first, second = (root @ root.T for root in roots)
    joint = (first + second) / 2 + torch.outer(shift, shift) / 4
    if covariance == "diagonal":
        joint = torch.diag(joint.diagonal())
    ridge = epsilon / p * torch.eye(p, dtype=torch.float64)

    def entropy(matrix: Tensor) -> Tensor:
        return MultivariateNormal(torch.zeros(p, dtype=torch.float64), matrix + ridge).entropy()

    expected = entropy(joint) - 0.5 * (entropy(first) + entropy(second))
    batches = [with_moments(mean, root) for mean, root in zip(means, roots, strict=True)]
    got = jensen_shannon(*batches, covariance=covariance, centre="mean", epsilon=epsilon)
    torch.testing.assert_close(got, expected)


def test_bhattacharyya_is_minus_log_of_the_integrated_overlap():
    """−log ∫ √(p q), summed over a grid in the plane."""
    epsilon = 0.2
    means = torch.tensor([[0.3, -0.2], [-0.5, 0.4]], dtype=torch.float64)
    roots = torch.tensor([[[0.8, 0.0], [0.5, 0.4]], [[0.3, 0.0], [-0.6, 0.9]]], dtype=torch.float64)
    axis = torch.linspace(-9, 9, 601, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)
    ridge = epsilon / 2 * torch.eye(2, dtype=torch.float64)
    log_densities = [MultivariateNormal(m, r @ r.T + ridge).log_prob(grid) for m, r in zip(means, roots, strict=True)]
    overlap = (0.5 * (log_densities[0] + log_densities[1])).exp().sum() * (axis[1] - axis[0]) ** 2
    batches = [with_moments(mean, root) for mean, root in zip(means, roots, strict=True)]
    torch.testing.assert_close(bhattacharyya(*batches, centre="mean", epsilon=epsilon), -overlap.log())


def test_bhattacharyya_in_one_dimension_by_hand():
    real = torch.tensor([[1.0], [3.0]], dtype=torch.float64)  # mean 2, variance 1
    fake = torch.tensor([[-1.0], [5.0], [-1.0], [5.0]], dtype=torch.float64)  # mean 2, variance 9
    got = bhattacharyya(real, fake - 4, centre="mean", epsilon=1.0)
    assert got.item() == pytest.approx(16 / 6 / 8 + 0.5 * math.log(6 / math.sqrt(2 * 10)))


@both_distances
@all_options
def test_distance_is_zero_for_equal_batches_symmetric_and_positive(distance, literal, covariance, centre):
    real, fake = batch(8, 5, 8), batch(8, 5, 9, shift=-0.4)
    options = {"covariance": covariance, "centre": centre}
    assert distance(real, real, **options).item() == pytest.approx(0, abs=1e-12)
    assert distance(real, real.flip(0), **options).item() == pytest.approx(0, abs=1e-12)
    torch.testing.assert_close(distance(real, fake, **options), distance(fake, real, **options))
    assert distance(real, fake, **options) > 1e-3


@both_distances
@pytest.mark.parametrize("centre", ["sphere", "mean"])
def test_full_distance_does_not_depend_on_the_axes_and_the_diagonal_one_does(distance, literal, centre):
    rotation = torch.linalg.qr(batch(5, 5, 10))[0]
    real, fake = batch(8, 5, 11), batch(8, 5, 12, shift=-0.4)
    full = distance(real, fake, centre=centre)
    torch.testing.assert_close(distance(real @ rotation, fake @ rotation, centre=centre), full)
    diagonal = distance(real, fake, covariance="diagonal", centre=centre)
    rotated = distance(real @ rotation, fake @ rotation, covariance="diagonal", centre=centre)
    assert abs(rotated - diagonal) > 1e-3


def test_the_form_of_the_released_code_is_the_same_divergence():
    real, fake = batch(30, 16, 13), batch(20, 16, 14, shift=-1.0)
    torch.testing.assert_close(jensen_shannon(real, fake), reference.authors_jensen_shannon(real, fake))


@all_options
def test_covariance_and_its_logdet(covariance, centre):
    rows = batch(6, 4, 15)
    expected = reference.covariance(rows, covariance, centre, 0.5)
    got = gaussian_covariance(rows, covariance=covariance, centre=centre)
    torch.testing.assert_close(torch.diag(got) if covariance == "diagonal" else got, expected)
    torch.testing.assert_close(gaussian_logdet(rows, covariance=covariance, centre=centre), torch.logdet(expected))


@both_distances
def test_half_precision_is_computed_in_single(distance, literal):
    real, fake = batch(40, 16, 16), batch(40, 16, 17, shift=-0.4)
    low = distance(real.bfloat16(), fake.bfloat16())
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, distance(real.bfloat16().float(), fake.bfloat16().float()), rtol=1e-6, atol=1e-6)
    single = distance(real.float(), fake.float())
    torch.testing.assert_close(single.double(), distance(real, fake), rtol=1e-5, atol=1e-6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(distance(real.float(), fake.float()), single, rtol=1e-6, atol=1e-6)


def each_of(wrong: dict[str, list[Any]]) -> pytest.MarkDecorator:
    """A test of one wrong argument, for each value of each; a tensor that is not finite is an error of its own."""

    def error(value: Any) -> type[Exception]:
        return FloatingPointError if isinstance(value, Tensor) and not value.isfinite().all() else ValueError

    cases = [(name, value, error(value)) for name, values in wrong.items() for value in values]
    return pytest.mark.parametrize(("name", "value", "error"), cases)


@both_distances
@each_of(
    {
        "real": [torch.zeros(0, 3), torch.ones(1, 3), torch.ones(3), torch.full((4, 3), math.nan)],
        "fake": [torch.zeros(0, 3), torch.ones(1, 3), torch.ones(4, 3, 1), torch.ones(4, 2), torch.full((4, 3), math.inf)],
        "covariance": ["block"],
        "centre": ["median"],
        "epsilon": [0.0, -1.0, math.nan, math.inf],
    }
)
def test_distance_names_the_wrong_argument(distance, literal, name, value, error):
    arguments = {"real": batch(4, 3, 18).float(), "fake": batch(4, 3, 19).float()} | {name: value}
    with pytest.raises(error, match=rf"^{name} "):
        distance(**arguments)


def test_distance_holds_for_batches_smaller_than_the_dimension():
    real, fake = batch(2, 64, 20), batch(3, 64, 21)
    torch.testing.assert_close(jensen_shannon(real, fake), reference.authors_jensen_shannon(real, fake))


# --- neighbours ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("skip_first", [False, True])
@pytest.mark.parametrize(("n", "m", "k"), [(6, 9, 1), (5, 12, 3), (1, 4, 2), (3, 4, 3)])
def test_neighbour_similarity_equals_the_literal_version(n, m, k, skip_first):
    queries, values = batch(n, 4, 1).requires_grad_(), batch(m, 4, 2).requires_grad_()
    query_keys, keys = batch(n, 7, 3), batch(m, 7, 4)
    ours = neighbour_similarity(queries, query_keys, values, keys, k, skip_first)
    theirs = reference.neighbour_similarity(queries, query_keys, values, keys, k, skip_first)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(grad(ours, [queries, values]), grad(theirs, [queries, values]))


def test_neighbour_similarity_passes_gradcheck_and_leaves_keys_alone():
    keys = batch(6, 5, 5).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda q, v: neighbour_similarity(q, keys[:3], v, keys, 2, True),
        (batch(3, 4, 6).requires_grad_(), batch(6, 4, 7).requires_grad_()),
    )
    assert not neighbour_similarity(batch(3, 4, 6), keys[:3], batch(6, 4, 7), keys).requires_grad


def test_real_queries_skip_themselves():
    z, keys = batch(5, 4, 8), batch(5, 6, 9)
    assert neighbour_similarity(z, keys, z, keys).item() == pytest.approx(1)
    assert neighbour_similarity(z, keys, z, keys, skip_first=True) < 0.999


@each_of(
    {
        "queries": [torch.zeros(0, 4), torch.full((3, 4), math.nan)],
        "query_keys": [torch.ones(3), torch.ones(2, 5), torch.full((3, 5), math.inf)],
        "values": [torch.zeros(0, 4), torch.ones(6, 3), torch.full((6, 4), -math.inf)],
        "keys": [torch.ones(7, 5), torch.ones(6, 4), torch.full((6, 5), math.nan)],
        "k": [0, 7, 6],
    }
)
def test_neighbour_similarity_names_the_wrong_argument(name, value, error):
    shapes = {"queries": (3, 4), "query_keys": (3, 5), "values": (6, 4), "keys": (6, 5)}
    arguments: dict[str, Any] = {of: torch.ones(shape) for of, shape in shapes.items()} | {name: value}
    with pytest.raises(error, match=rf"^{name} "):
        neighbour_similarity(**arguments, skip_first=value == 6)


# --- hinges --------------------------------------------------------------------------------------------------------------


def test_adversarial_hinge_by_hand():
    real, fake = torch.tensor([2.0, 0.5, -1.0]), torch.tensor([[-3.0], [0.0]])
    assert adversarial_hinge(real, fake).item() == pytest.approx((0 + 0.5 + 2) / 3 + (0 + 1) / 2)
    scores = torch.tensor([0.3, -0.4, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(adversarial_hinge, (scores, -scores.detach().requires_grad_()))


@pytest.mark.parametrize(("side", "expected"), [("floor", 0.5**2 / 3), ("ceiling", 4.0**2 / 3)])
def test_norm_hinge_by_hand(side, expected):
    embeddings = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 1.0]], dtype=torch.float64)
    assert norm_hinge(embeddings, side).item() == pytest.approx(expected)
    assert torch.autograd.gradcheck(lambda e: norm_hinge(e, side), (embeddings[:2].clone().requires_grad_(),))


def test_norm_hinge_is_on_the_floor_by_default_and_finite_at_zero():
    zero = torch.zeros(2, 3, requires_grad=True)
    loss = norm_hinge(zero)
    assert loss.item() == 1
    loss.backward()
    assert zero.grad is not None
    assert zero.grad.isfinite().all()


@pytest.mark.parametrize(
    ("call", "error", "name"),
    [
        (lambda: adversarial_hinge(torch.zeros(0), torch.ones(1)), ValueError, "real_scores"),
        (lambda: adversarial_hinge(torch.ones(1), torch.zeros(0)), ValueError, "fake_scores"),
        (lambda: adversarial_hinge(torch.tensor([math.nan]), torch.ones(1)), FloatingPointError, "real_scores"),
        (lambda: adversarial_hinge(torch.ones(1), torch.tensor([math.inf])), FloatingPointError, "fake_scores"),
        (lambda: norm_hinge(torch.ones(3)), ValueError, "embeddings"),
        (lambda: norm_hinge(torch.ones(0, 3)), ValueError, "embeddings"),
        (lambda: norm_hinge(torch.full((2, 3), math.nan)), FloatingPointError, "embeddings"),
        (lambda: norm_hinge(torch.ones(2, 3), "wall"), ValueError, "side"),  # pyright: ignore[reportArgumentType]
        (lambda: gaussian_covariance(torch.ones(3)), ValueError, "embeddings"),
    ],
)
def test_hinges_name_the_wrong_argument(call, error, name):
    with pytest.raises(error, match=rf"^{name} "):
        call()


@pytest.mark.parametrize("others", [False, True])
def test_nearest_similarity_is_the_mean_of_the_largest_cosines(others):
    generator = torch.Generator().manual_seed(0)
    queries, values = (F.normalize(torch.randn(4, 3, 5, generator=generator), dim=2) for _ in range(2))
    values = queries if others else values
    largest = []
    for image in range(4):
        pool = torch.cat([values[other] for other in range(4) if not others or other != image])
        largest += [max(float(query @ value) for value in pool) for query in queries[image]]
    assert float(nearest_similarity(queries, values, others)) == pytest.approx(sum(largest) / 12, abs=1e-6)


@pytest.mark.parametrize(
    ("queries", "values"), [((4, 3), (4, 3)), ((4, 3, 5), (4, 3, 6)), ((4, 3, 5), (5, 3, 5)), ((1, 3, 5),) * 2]
)
def test_nearest_similarity_refuses_shapes_that_do_not_fit(queries, values):
    with pytest.raises(ValueError, match="shape"):
        nearest_similarity(torch.ones(queries), torch.ones(values), others=True)
