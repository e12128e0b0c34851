"""Augmentation of any strength: the maps against their definition, the sampling against torch's, and gradients twice."""

import math
from functools import reduce

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from sao.core import distributed
from sao.data.adaptive import SYM6, Draws, augmented, colour, draws_for, movement, recoloured, warped

SIDE = 24
ONE = torch.ones((), dtype=torch.float64)


def drawn(n: int = 3, seed: int = 0) -> Draws:
    return draws_for(n, seed, "test", 0, ONE)


def only(gate: int, draws: Draws, level: float = 0) -> Draws:
    """One transformation happens, where its probability is above this level."""
    gates = torch.ones_like(draws.gates)
    gates[:, gate] = level
    return draws._replace(gates=gates)


def all_after_another(steps: list[Tensor]) -> Tensor:
    return reduce(lambda before, one: one @ before, steps)


def some_move(matrices: Tensor) -> bool:
    return any(not torch.allclose(matrix, torch.eye(len(matrix), dtype=torch.float64)) for matrix in matrices)


def smooth(n: int = 3, channels: int = 2, side: int = SIDE) -> Tensor:
    """Even around every border, as reflections make them, so that nothing has a kink there."""
    generator = torch.Generator().manual_seed(4)
    waves = torch.cos(math.pi * torch.arange(3)[:, None] * torch.arange(side) / (side - 1)).double()
    amounts = torch.randn(n, channels, 3, 3, generator=generator, dtype=torch.float64)
    return torch.einsum("ncij,ih,jw->nchw", amounts, waves, waves)


# --- the filter --------------------------------------------------------------------------------------------------------------


def test_the_filter_is_that_of_an_orthogonal_wavelet_with_six_vanishing_moments():
    taps = torch.tensor(SYM6, dtype=torch.float64)
    assert len(taps) == 12
    for shift in range(6):
        assert float((taps[2 * shift :] * taps[: 12 - 2 * shift]).sum()) == pytest.approx(float(shift == 0), abs=1e-11)
    places = torch.arange(12, dtype=torch.float64)
    for moment in range(6):
        assert abs(float(((-1) ** places * places**moment * taps).sum())) < 1e-8
    assert float(taps.sum()) == pytest.approx(math.sqrt(2))


# --- movement ----------------------------------------------------------------------------------------------------------------


def scaling(x: float, y: float) -> Tensor:
    return torch.diag(torch.tensor([x, y, 1.0], dtype=torch.float64))


def rotation(angle: float) -> Tensor:
    c, s = math.cos(angle), math.sin(angle)
    return torch.tensor([[c, -s, 0], [s, c, 0], [0, 0, 1]], dtype=torch.float64)


def shift(x: float, y: float) -> Tensor:
    return torch.tensor([[1, 0, x], [0, 1, y], [0, 0, 1]], dtype=torch.float64)


def literal_steps(draws: Draws, row: int, height: int, width: int) -> list[Tensor]:
    """What is done to one image, the first step first."""
    u, z = draws.uniforms[row].tolist(), draws.normals[row].tolist()
    return [
        scaling(-1 if u[0] >= 0.5 else 1, 1),
        rotation(-math.pi / 2 * math.floor(4 * u[1])),
        shift(round((2 * u[2] - 1) * width / 8), round((2 * u[3] - 1) * height / 8)),
        scaling(2 ** (0.2 * z[0]), 2 ** (0.2 * z[0])),
        rotation(-math.pi * (2 * u[4] - 1)),
        scaling(2 ** (0.2 * z[1]), 2 ** (-0.2 * z[1])),
        rotation(-math.pi * (2 * u[5] - 1)),
        shift(z[2] * width / 8, z[3] * height / 8),
    ]


@pytest.mark.parametrize("gate", range(8))
def test_each_movement_by_itself(gate):
    draws = drawn(8)
    found = movement(0.5 * ONE, only(gate, draws), 16, 24)
    expected = [torch.linalg.inv(literal_steps(draws, row, 16, 24)[gate]) for row in range(8)]
    torch.testing.assert_close(found, torch.stack(expected))
    assert some_move(found)


def test_all_movements_follow_each_other():
    draws = drawn(8)
    found = movement(ONE, draws, 16, 24)
    expected = [torch.linalg.inv(all_after_another(literal_steps(draws, row, 16, 24))) for row in range(8)]
    torch.testing.assert_close(found, torch.stack(expected))


@pytest.mark.parametrize(("gate", "chance"), [(0, 0.75), (2, 0.75), (3, 0.75), (4, 0.5), (5, 0.75), (6, 0.5), (7, 0.75)])
def test_a_transformation_happens_below_its_probability(gate, chance):
    """Of two turns each happens more rarely, so that the two together are as rare as the rest: 1 − (1 − .5)² = .75."""
    for level, happens in ((chance - 0.01, True), (chance + 0.01, False)):
        assert happens == some_move(movement(0.75 * ONE, only(gate, drawn(6), level), 16, 16))


def test_shifts_are_as_large_as_an_eighth_of_the_side():
    draws = drawn(2000)
    whole = movement(ONE, only(2, draws), 16, 24)[:, :2, 2]
    assert whole[:, 0].abs().max() == 3
    assert whole[:, 1].abs().max() == 2
    assert bool((whole == whole.round()).all())
    broken = movement(ONE, only(7, draws), 16, 24)[:, :2, 2]
    torch.testing.assert_close(broken.std(0), torch.tensor([3.0, 2.0], dtype=torch.float64), rtol=0.05, atol=0)


# --- sampling ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("height", "width"), [(8, 8), (32, 32), (16, 24)])
def test_what_does_not_move_stays_to_the_last_digit(height, width):
    images = torch.rand(2, 3, height, width, dtype=torch.float64)
    torch.testing.assert_close(warped(images, torch.eye(3, dtype=torch.float64).expand(2, 3, 3)), images)


def test_whole_shifts_move_pixels_and_reflect_the_rest():
    images = torch.rand(2, 3, 16, 24, dtype=torch.float64)
    found = warped(images, torch.stack([shift(3, -2), shift(-1, 0)]))
    padded = F.pad(images, (4, 4, 4, 4), mode="reflect")
    torch.testing.assert_close(found[0], padded[0, :, 2 : 2 + 16, 7 : 7 + 24])
    torch.testing.assert_close(found[1], padded[1, :, 4 : 4 + 16, 3 : 3 + 24])


def test_flips_and_quarter_turns_are_torchs():
    images = smooth()
    close = {"atol": 0.02 * float(images.abs().max()), "rtol": 0}
    torch.testing.assert_close(warped(images, scaling(-1, 1).expand(3, 3, 3)), images.flip(3), **close)
    torch.testing.assert_close(warped(images, scaling(1, -1).expand(3, 3, 3)), images.flip(2), **close)
    torch.testing.assert_close(warped(images, rotation(math.pi / 2).expand(3, 3, 3)), images.rot90(1, (2, 3)), **close)
    assert not torch.allclose(images.flip(3), images, **close)
    assert not torch.allclose(images.rot90(1, (2, 3)), images.rot90(-1, (2, 3)), **close)


@pytest.mark.parametrize("seed", range(4))
def test_any_movement_is_torchs_affine_sampling(seed):
    images = smooth()
    inverse = movement(ONE, drawn(3, seed), SIDE, SIDE)
    margin = SIDE - 1
    padded = F.pad(images, (margin,) * 4, mode="reflect")
    side = SIDE + 2 * margin
    # torch's maps are of coordinates from -1 to 1, here over the padded image, from which the middle is cut.
    theta = inverse[:, :2].clone()
    theta[:, :, 2] *= 2 / side
    grid = F.affine_grid(theta, [3, 2, side, side], align_corners=False)
    expected = F.grid_sample(padded, grid, mode="bicubic", align_corners=False)
    expected = expected[:, :, margin : margin + SIDE, margin : margin + SIDE]
    inside = (grid[:, margin : margin + SIDE, margin : margin + SIDE].abs().amax(-1) < 0.9)[:, None]
    difference = (warped(images, inverse) - expected).abs() * inside
    assert inside.double().mean() > 0.7
    assert float(difference.max()) < 0.03 * float(images.abs().max())


# --- colour ------------------------------------------------------------------------------------------------------------------


def literal_colours(draws: Draws, row: int) -> list[Tensor]:
    u, z = draws.uniforms[row].tolist(), draws.normals[row].tolist()
    greys = torch.tensor([1.0, 1, 1, 0], dtype=torch.float64) / math.sqrt(3)
    along, identity = torch.outer(greys, greys), torch.eye(4, dtype=torch.float64)
    a, b, c, _ = greys.tolist()
    cross = torch.tensor([[0, -c, b, 0], [c, 0, -a, 0], [-b, a, 0, 0], [0, 0, 0, 0]], dtype=torch.float64)
    brighter = identity.clone()
    brighter[:3, 3] = 0.2 * z[4]
    angle = math.pi * (2 * u[7] - 1)
    contrast = 2 ** (0.5 * z[5])
    return [
        brighter,
        torch.diag(torch.tensor([contrast, contrast, contrast, 1.0], dtype=torch.float64)),
        identity - 2 * along * (u[6] >= 0.5),
        torch.matrix_exp(angle * cross),
        along + (identity - along) @ torch.diag(torch.tensor([2.0 ** z[6]] * 3 + [1.0], dtype=torch.float64)),
    ]


@pytest.mark.parametrize("gate", range(8, 13))
def test_each_change_of_colour_by_itself(gate):
    draws = drawn(8)
    found = colour(0.5 * ONE, only(gate, draws))
    torch.testing.assert_close(found, torch.stack([literal_colours(draws, row)[gate - 8] for row in range(8)]))
    assert some_move(found)


def test_all_changes_of_colour_follow_each_other():
    draws = drawn(8)
    expected = [all_after_another(literal_colours(draws, row)) for row in range(8)]
    torch.testing.assert_close(colour(ONE, draws), torch.stack(expected))


def test_colours_are_changed_pixel_by_pixel_and_greys_as_greys():
    images, matrices = torch.rand(8, 3, 4, 4, dtype=torch.float64), colour(ONE, drawn(8))
    pixel = torch.cat([images[5, :, 2, 1], torch.ones(1, dtype=torch.float64)])
    torch.testing.assert_close(recoloured(images, matrices)[5, :, 2, 1], (matrices[5] @ pixel)[:3])
    grey = images[:, :1]
    in_colour = recoloured(grey.expand(-1, 3, -1, -1), matrices)
    torch.testing.assert_close(recoloured(grey, matrices), in_colour[:, :1])
    torch.testing.assert_close(in_colour[:, :1], in_colour[:, 2:])


# --- the whole ---------------------------------------------------------------------------------------------------------------


def test_at_strength_nothing_nothing_is_changed():
    images = torch.rand(3, 3, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(augmented(images, 0 * ONE, drawn()), images)
    assert not torch.allclose(augmented(images, 0.5 * ONE, drawn()), images, atol=0.1)


def test_movement_comes_before_colour_and_a_strength_above_one_is_one():
    images, draws = torch.rand(3, 3, 8, 8, dtype=torch.float64), drawn()
    expected = recoloured(warped(images, movement(ONE, draws, 8, 8)), colour(ONE, draws))
    torch.testing.assert_close(augmented(images, ONE, draws), expected)
    torch.testing.assert_close(augmented(images, 1.3 * ONE, draws), expected)


def test_gradients_pass_twice():
    images, draws = torch.rand(2, 3, 6, 6, dtype=torch.float64, requires_grad=True), drawn(2)

    def cubed(images: Tensor) -> Tensor:
        return augmented(images, ONE, draws).pow(3).sum((1, 2, 3))

    assert torch.autograd.gradcheck(cubed, (images,), fast_mode=True)
    assert torch.autograd.gradgradcheck(cubed, (images,), fast_mode=True)


def test_draws_are_those_of_the_step_however_many_processes_share_it(monkeypatch):
    like = torch.empty(0)
    whole = draws_for(10, 1, "real", 3, like)
    parts = []
    monkeypatch.setattr(distributed, "world_size", lambda: 3)
    for rank in range(3):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        parts.append(draws_for(10, 1, "real", 3, like))
    for index, values in enumerate(whole):
        assert torch.equal(torch.cat([part[index] for part in parts]), values)
    monkeypatch.undo()
    for other in ((2, "real", 3), (1, "fake", 3), (1, "real", 4)):
        assert all(not torch.equal(*both) for both in zip(whole, draws_for(10, *other, like), strict=True))
