"""Groups of equal and near-equal images: what belongs together is found, and nothing else."""

import io

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

from sao.search.duplicates import Known, find_duplicates, near_pairs, with_equal_pixels


def photograph(seed: int, side: int = 96) -> Image.Image:
    """Shapes of random colours on a gradient: large areas and details, as photographs have them."""
    draws = np.random.default_rng(seed)
    corners = draws.integers(0, 256, (2, 2, 3), dtype=np.uint8)
    image = Image.fromarray(corners).resize((side, side), Image.Resampling.BICUBIC)
    for _ in range(25):
        size = draws.integers(3, side // 3, 2)
        place = draws.integers(0, side - size.min(), 2)
        image.paste(tuple(draws.integers(0, 256, 3).tolist()), (*place.tolist(), *(place + size).tolist()))
    return image


def recompressed(image: Image.Image) -> Image.Image:
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=50)
    return Image.open(stream).convert("RGB")


COPIES = {
    "recompressed": recompressed,
    "half the size": lambda image: image.resize((48, 48), Image.Resampling.LANCZOS),
    "cropped at a corner": lambda image: image.crop((0, 0, 87, 87)),
    "cropped all round": lambda image: image.crop((4, 5, 91, 92)),
    "cropped at the top": lambda image: image.crop((0, 9, 96, 96)),
    "mirrored": ImageOps.mirror,
    "brighter": lambda image: ImageEnhance.Brightness(image).enhance(1.2),
    "darker": lambda image: ImageEnhance.Brightness(image).enhance(0.8),
}


def thumbnails(images: list[Image.Image]) -> np.ndarray:
    return np.stack([np.asarray(image.resize((32, 32), Image.Resampling.LANCZOS)) for image in images])


def known(images: list[Image.Image], **facts) -> Known:
    return Known([f"{i:03d}.png" for i in range(len(images))], thumbnails=thumbnails(images), **facts)


@pytest.fixture(scope="module")
def photographs() -> list[Image.Image]:
    return [photograph(seed) for seed in range(60)]


def test_different_images_are_in_no_group(photographs):
    for count in (60, 2, 1):
        assert find_duplicates(known(photographs[:count])) == []


@pytest.mark.parametrize("changed", COPIES)
def test_changed_copies_are_near_and_nothing_else_is(photographs, changed):
    copies = [COPIES[changed](image) for image in photographs[:10]]
    assert set(near_pairs(known(photographs + copies))) == {(i, 60 + i) for i in range(10)}


def test_the_same_thing_in_another_colour_is_no_copy_but_without_colour_it_is(photographs):
    light, blue, red = photographs[0].convert("YCbCr").split()
    other = Image.merge("YCbCr", [light, ImageOps.invert(blue), ImageOps.invert(red)]).convert("RGB")
    assert near_pairs(known([*photographs, other])) == {}
    grey = photographs[0].convert("L").convert("RGB")
    assert set(near_pairs(known([*photographs, grey]))) == {(0, 60)}


def test_different_images_in_the_same_frame_are_no_copies(photographs):
    framed = []
    for image in photographs[:6]:
        frame = Image.new("L", (96, 96), "white")
        frame.paste(Image.blend(image.convert("L"), Image.new("L", image.size, "black"), 0.5).resize((86, 86)), (5, 5))
        framed.append(frame.convert("RGB"))
    assert near_pairs(known(photographs[6:] + framed)) == {}
    copy = recompressed(framed[0])
    assert set(near_pairs(known([*photographs[6:], *framed, copy]))) == {(54, 60)}


def test_two_images_alone_are_judged(photographs):
    groups = find_duplicates(known([photographs[0], recompressed(photographs[0])]))
    assert [group.rows for group in groups] == [[0, 1]]
    assert groups[0].kind == "near"
    assert 0 < groups[0].copies[0].distance < 0.3


def test_images_that_are_all_equal_are_one_group(photographs):
    for count in (2, 40):
        assert [sorted(group.rows) for group in find_duplicates(known([photographs[0]] * count))] == [list(range(count))]


def test_blank_images_are_one_group(photographs):
    blank = [Image.new("RGB", (96, 96), "white")] * 3 + [Image.new("RGB", (96, 96), "black")]
    (group,) = find_duplicates(known(photographs[:40] + blank))
    assert sorted(group.rows) == [40, 41, 42]
    assert [copy.distance for copy in group.copies] == [0, 0]


def test_many_copies_of_one_image_are_one_group(photographs):
    copies = [COPIES[name](photographs[7]) for name in COPIES] * 4
    groups = find_duplicates(known(photographs + copies))
    assert [sorted(group.rows) for group in groups] == [[7, *range(60, 60 + len(copies))]]


def test_three_copies_of_every_image_are_as_many_groups(photographs):
    changes = [Image.Image.copy, *(COPIES[name] for name in ("recompressed", "cropped at a corner", "mirrored"))]
    groups = find_duplicates(known([change(image) for image in photographs[:40] for change in changes]))
    assert {tuple(sorted(group.rows)) for group in groups} == {tuple(range(4 * i, 4 * i + 4)) for i in range(40)}


def test_frames_of_a_still_scene_are_near(photographs):
    frames = []
    for place in range(40):
        frame = photographs[3].copy()
        frame.paste((255, 255, 255), (place, 40, place + 4, 44))  # a small thing moves through
        frames.append(frame)
    groups = find_duplicates(known(photographs + frames))
    assert len(groups) == 1
    assert set(range(60, 100)) <= set(groups[0].rows)
    assert groups[0].kind == "near"


def test_equal_files_and_equal_pixels_are_told_apart(photographs):
    images, others = [photographs[0]] * 3 + [recompressed(photographs[0])], [bytes([i]) for i in range(1, 60)]
    files, pixels = [b"a", b"a", b"b", b"c", *others], [b"p", b"p", b"p", b"q", *others]
    (group,) = find_duplicates(known(images + photographs[1:], file_digests=files, pixel_digests=pixels))
    assert group.keep == 0
    assert [(copy.row, copy.kind) for copy in group.copies] == [(1, "same bytes"), (2, "same pixels"), (3, "near")]
    assert [copy.distance for copy in group.copies[:2]] == [0, 0]
    assert group.kind == "near"


def test_equal_pixels_can_be_told_afterwards(photographs):
    (group,) = find_duplicates(known([photographs[0]] * 3))
    (told,) = with_equal_pixels([group], {0: b"p", 1: b"q", 2: b"p"})
    assert [(copy.row, copy.kind) for copy in told.copies] == [(2, "same pixels"), (1, "near")]
    assert with_equal_pixels([group], {0: None, 1: None, 2: None}) == [group]


def test_digests_alone_are_enough():
    (group,) = find_duplicates(Known(["b", "a", "c"], file_digests=[b"1", b"1", b"2"]))
    assert (group.rows, group.kind, group.why) == ([1, 0], "same bytes", "first name")


def test_the_largest_image_then_the_largest_file_is_kept(photographs):
    for areas, kept in (([9, 16, 16], (2, "largest file")), ([9, 16, 10], (1, "largest image"))):
        facts = {"areas": np.array(areas), "file_sizes": np.array([500, 100, 200])}
        (group,) = find_duplicates(known([photographs[0]] * 3, **facts))
        assert (group.keep, group.why) == kept


def test_features_alone_find_copies_and_nothing_else():
    draws = np.random.default_rng(0)
    rows = draws.normal(size=(500, 16)).astype(np.float32)
    assert find_duplicates(Known([str(i) for i in range(500)], features=rows)) == []
    copies = rows[:20] + 0.01 * draws.normal(size=(20, 16)).astype(np.float32)
    groups = find_duplicates(Known([str(i) for i in range(520)], features=np.concatenate([rows, copies])))
    assert sorted(sorted(group.rows) for group in groups) == [[i, 500 + i] for i in range(20)]


def test_features_find_candidates_that_thumbnails_do_not(photographs):
    """A copy in another place among images that all look alike from afar."""
    flat = [Image.blend(photograph(seed), Image.new("RGB", (96, 96), "grey"), 0.9) for seed in range(60)]
    directions = np.eye(61, dtype=np.float32)
    directions[60] = directions[0]
    images = [*flat, COPIES["cropped at a corner"](flat[0])]
    found = near_pairs(Known([str(i) for i in range(61)], directions, thumbnails(images)))
    assert set(found) == {(0, 60)}
