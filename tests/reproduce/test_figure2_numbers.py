"""The numbers beside the panels, against slow or closed-form versions."""

from itertools import permutations

import numpy as np
import pytest

from sao.data.named import spiral_point, spirals
from sao.reproduce import figure2_measure as numbers


@pytest.fixture
def draws() -> np.random.Generator:
    return np.random.default_rng(0)


def test_points_of_an_arm_are_found_there(draws):
    position, arm = draws.random(200), draws.integers(0, 2, 200)
    distance, found_arm, found_position = numbers.nearest_on_arms(spiral_point(position, arm))
    assert distance.max() < 0.01
    assert (found_arm == arm).all()
    np.testing.assert_allclose(found_position, position, atol=1e-3)


def test_the_data_lies_on_the_arms_and_fills_them_evenly():
    points = spirals().test.inputs(slice(None)).numpy()
    assert numbers.share_on_arms(points) == pytest.approx(0.9973, abs=0.002)
    histogram = numbers.arm_histogram(points)
    assert histogram.shape == (2, 20)
    assert histogram.min() > 0.8 * len(points) / 40
    assert histogram.max() < 1.3 * len(points) / 40


def test_what_lies_between_the_arms_is_on_none():
    arm = spiral_point(np.linspace(0.3, 0.9, 50), np.zeros(50))
    inwards = arm * (1 - 1.27 / np.linalg.norm(arm, axis=1, keepdims=True))  # half of the way to the next arm
    assert numbers.share_on_arms(inwards) == 0
    assert numbers.arm_histogram(inwards).sum() == 0


def test_one_arm_alone_misses_half_of_the_parts():
    points = spiral_point(np.linspace(0, 1, 500), np.zeros(500))
    assert (numbers.arm_histogram(points) > 0).sum(1).tolist() == [20, 0]


def test_neighbours_are_kept_by_a_rotation_and_by_chance_otherwise(draws):
    points = draws.normal(size=(400, 2))
    rotation = np.array([[0.6, -0.8], [0.8, 0.6]])
    assert numbers.shared_neighbours(points, 3 * points @ rotation, 10) == 1
    assert numbers.shared_neighbours(points, draws.normal(size=(400, 2)), 10) == pytest.approx(10 / 399, abs=0.01)


def test_the_map_is_compared_with_the_data_and_with_the_embedding_each_under_its_name(draws):
    plane, others, arm = draws.normal(size=(200, 2)), draws.normal(size=(200, 5)), np.zeros(200, int)
    of_data, of_embedding = "shared_neighbours_with_data", "shared_neighbours_with_embedding"
    found = numbers._of_palette(plane, 2 * plane, others, arm, 10)
    assert found[of_data] == 1
    assert found[of_embedding] < 0.2
    found = numbers._of_palette(plane, others, 2 * plane, arm, 10)
    assert found[of_embedding] == 1
    assert found[of_data] < 0.2


def test_a_point_is_not_its_own_neighbour_even_among_duplicates():
    points = np.zeros((5, 2))
    assert numbers.same_arm_neighbours(points, np.array([0, 1, 1, 1, 1]), 4) == pytest.approx((0 + 4 * 3 / 4) / 5)


def test_the_transport_is_the_cheapest_of_all_assignments(draws):
    sources, targets = draws.normal(size=(6, 2)), draws.normal(size=(6, 2))
    paths = numbers.transport_paths(sources, targets)
    cheapest = min(np.square(targets[list(order)] - sources).sum() for order in permutations(range(6)))
    assert np.square(paths).sum() == pytest.approx(cheapest)
    assert sorted(map(tuple, np.round(sources + paths, 9))) == sorted(map(tuple, np.round(targets, 9)))


def test_as_many_targets_as_sources_are_asked_for():
    with pytest.raises(ValueError, match=r"^targets has 3 points for 2"):
        numbers.transport_paths(np.zeros((2, 2)), np.zeros((3, 2)))


def test_agreement_is_the_mean_over_pairs(draws):
    directions, arm = draws.normal(size=(30, 5)), draws.integers(0, 2, 30)
    rows = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    pairs = rows @ rows.T
    same, others = arm[:, None] == arm[None], ~np.eye(30, dtype=bool)
    expected = pairs[same & others].mean(), pairs[~same].mean()
    np.testing.assert_allclose(numbers.direction_agreement(directions, arm), expected)


def test_arrows_in_the_plane_follow_directions_in_an_embedding_of_it(draws):
    plane = draws.random((600, 2))
    into = np.linalg.qr(draws.normal(size=(7, 7)))[0][:, :2]
    directions = draws.normal(size=(600, 2))
    arrows = numbers.projected(directions @ into.T, plane @ into.T, plane)
    inner = np.abs(plane - 0.5).max(1) < 0.3  # at the edge there are no neighbours to point to
    assert numbers.cosines(arrows, directions)[inner].mean() > 0.95
