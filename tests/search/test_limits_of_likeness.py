"""From where on images suit a model, and which of several copies is kept."""

import numpy as np
import pytest
import torch

from sao.data.dataset import Images
from sao.search import suited
from sao.search.duplicates import (
    Copy,
    Group,
    Known,
    _blur,
    _components,
    _distance,
    _limits,
    _neighbour_distances,
    _same_colours,
    _sorted,
    _to_keep,
    find_duplicates,
    near_pairs,
    thumbnails,
    with_equal_pixels,
)


def drawn(ink: float, ground: int = 0, brush: int = 255, size: int = 20, n: int = 4) -> Images:
    """Images with a dark frame, of which a share of all pixels is bright."""
    pixels = np.full((n, size, size), ground, np.uint8)
    inner = np.zeros((size - 2) ** 2, bool)
    inner[: round(ink * size**2)] = True
    pixels[:, 1:-1, 1:-1][:, inner.reshape(size - 2, size - 2)] = brush
    return Images(pixels[..., None])


@pytest.mark.parametrize(
    ("images", "side", "name"),
    [
        (drawn(0.29), None, "mnist16"),
        (drawn(0.3), None, "fashion16"),
        (drawn(0.5), 64, "fashion16"),
        (drawn(0.5), 65, None),
        (drawn(0.2, size=64), None, "mnist16"),
        (drawn(0.2, size=65), None, None),
        (drawn(0.2, ground=32), None, "mnist16"),
        (drawn(0.2, ground=33), None, None),
        (drawn(0.5, brush=64), None, "mnist16"),  # not bright
        (drawn(0.5, brush=65), None, "fashion16"),
        (Images(np.zeros((3, 32, 32, 3), np.uint8)), 5000, "photos32"),
        (Images(np.zeros((3, 32, 32, 4), np.uint8)), None, None),
        (Images(np.zeros((3, 32, 32, 2), np.uint8)), None, None),
    ],
)
def test_which_model_suits_which_images(images, side, name):
    assert suited._kind(images, side) == name


@pytest.mark.parametrize(("n", "centroids"), [(10, 16), (64, 16), (80, 20), (1024, 256), (5000, 256)])
def test_patches_have_a_centroid_for_four_images(monkeypatch, n, centroids):
    seen = []
    monkeypatch.setattr(suited, "patch_features", lambda parts, count, seed: seen.append(count) or ([torch.zeros(1, 1)], {}))
    suited.patches_of(Images(np.zeros((n, 8, 8, 1), np.uint8)))
    assert seen == [centroids]


@pytest.mark.parametrize(("areas", "sizes", "kept"), [
    (None, None, (2, "first name")), ([1, 2, 1], [9, 1, 9], (1, "largest image")), ([2, 2, 1], [1, 9, 99], (1, "largest file")),
    ([2, 2, 1], [9, 9, 99], (1, "first name")), ([2, 2, 2], None, (2, "first name")), (None, [5, 5, 4], (1, "first name")),
])  # fmt: skip
def test_the_copy_that_is_kept(areas, sizes, kept):
    of_areas, of_files = (None if values is None else np.array(values) for values in (areas, sizes))
    assert _to_keep(np.arange(3), Known(["c", "b", "a"], areas=of_areas, file_sizes=of_files)) == kept


def test_copies_are_sorted_by_kind_then_distance_then_row():
    copies = [
        Copy(5, "near", 0.2), Copy(4, "near", 0.1), Copy(9, "same bytes", 0), Copy(3, "same pixels", 0), Copy(2, "near", 0.1),
    ]  # fmt: skip
    assert [copy.row for copy in _sorted(copies)] == [9, 3, 2, 4, 5]
    group = Group(7, "first name", _sorted(copies))
    assert (group.rows, group.kind) == ([7, 9, 3, 2, 4, 5], "near")
    assert Group(7, "x", (Copy(1, "same bytes", 0), Copy(2, "same pixels", 0))).kind == "same pixels"
    assert [Copy(0, "near", 0.125).said, Copy(0, "same bytes", 0).said] == ["near, distance 0.12", "same bytes"]


def test_groups_are_sorted_by_size_then_by_what_is_kept():
    digests = [b"a", b"b", b"b", b"c", b"a", b"c", b"c"]
    found = find_duplicates(Known(list("gfedcba"), file_digests=digests))
    assert [(group.keep, group.rows) for group in found] == [(6, [6, 3, 5]), (2, [2, 1]), (4, [4, 0])]


def test_equal_pixels_are_told_for_near_copies_alone():
    group = Group(0, "x", (Copy(1, "same bytes", 0), Copy(2, "near", 0.1), Copy(3, "near", 0.2)))
    (found,) = with_equal_pixels([group], {0: b"p", 1: b"p", 2: b"q", 3: b"p"})
    assert [(copy.row, copy.kind, copy.distance) for copy in found.copies] == [
        (1, "same bytes", 0),
        (3, "same pixels", 0.0),
        (2, "near", 0.1),
    ]


def test_components_and_distances_by_hand():
    assert _components([(0, 3), (3, 4), (1, 1)], 5).tolist() == [0, 1, 2, 0, 0]
    assert _components([], 3).tolist() == [0, 1, 2]
    assert _distance(1.0) == _distance(1.0000001) == 0
    assert (_distance(0.5), _distance(-1.0)) == pytest.approx((1, 2))  # of correlations


def test_a_blur_is_the_mean_of_five_with_the_ends_repeated():
    line = torch.tensor([[[0.0, 5, 0, 0, 10, 0, 0]]])
    assert _blur(line)[0, 0].tolist() == [1.0, 1.0, 3.0, 3.0, 2.0, 2.0, 2.0]


def test_thumbnails_are_as_grey_as_people_see():
    pixels = np.array([[[[100, 50, 10]]]], np.uint8).repeat(32, 1).repeat(32, 2)
    assert thumbnails(pixels)[0, 0, 0, 0] == pytest.approx(0.299 * 100 + 0.587 * 50 + 0.114 * 10)
    assert thumbnails(np.full((2, 16, 16, 1), 7, np.uint8)).shape == (2, 1, 32, 32)


def test_colours_agree_unless_one_of_them_is_grey():
    red, blue, grey = (np.full((32, 32, 3), colour, np.uint8) for colour in ((200, 20, 20), (20, 20, 200), (90, 90, 90)))
    assert _same_colours(red, red)
    assert not _same_colours(red, blue)
    assert _same_colours(red, grey)


def test_neighbours_of_one_group_count_once():
    pairs = np.array([[0, 1], [0, 2], [0, 3], [1, 2], [2, 3]])
    table = _neighbour_distances(pairs, np.array([0.5, 0.25, 0.125, 1.0, 2.0]), np.array([0, 1, 1, 2]))
    assert table[0, :3].tolist() == [0.125, 0.25, np.inf]
    assert table[1, :2].tolist() == [0.5, np.inf]
    assert table[3, :3].tolist() == [0.125, 2.0, np.inf]


@pytest.mark.parametrize(("n", "few"), [(29, True), (30, False)])
def test_of_fewer_than_thirty_images_nobody_can_say_what_is_usual(n, few):
    draws = np.random.default_rng(0)
    points = draws.normal(size=(n, 3))
    pairs = np.array([[a, b] for a in range(n) for b in range(a + 1, n)])
    distances = np.linalg.norm(points[pairs[:, 0]] - points[pairs[:, 1]], axis=1)
    found = _limits(pairs, distances, n, 1e-6, 0.75)
    assert bool((found == 0.75).all()) == few


def test_the_same_thumbnail_is_near_at_no_distance():
    pixels = np.zeros((3, 32, 32, 3), np.uint8)
    pixels[1] = 9
    assert near_pairs(Known(list("abc"), thumbnails=pixels)) == {(0, 2): 0.0}
    assert near_pairs(Known(list("abc"))) == {}
