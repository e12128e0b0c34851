"""What is packed into a page: limits, sizes, places, pictures and counts, at their boundaries."""

import base64
import io
import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from sao.data.dataset import Dataset, Images, Vectors
from sao.evaluation.outliers import FAR
from sao.evaluation.result import Metric, accuracy
from sao.report import build, copies, layout, price, side_by_side, thumbnails
from sao.report.build import AT_END, Limits, groups_for
from sao.report.gallery import Files, Gallery, JoinedPixels
from sao.report.page import as_script_data
from sao.report.points import Generated, Points, described_groups
from sao.report.side_by_side import Scored, paired_test, rows_to_score


def shades(n: int, size: int = 8, channels: int = 1, first: int = 0) -> np.ndarray:
    """Images that are each of one value."""
    values = np.arange(first, first + n, dtype=np.uint8)[:, None, None, None]
    return values.repeat(size, 1).repeat(size, 2).repeat(channels, 3)


def test_a_report_that_was_asked_for_looks_at_more_than_one_at_the_end_of_a_training():
    assert Limits(20_000, 2000, 256, 5.0, None, False, None) == AT_END
    assert Limits() == Limits(20_000, 5000, 512, 15.0, None, False, None)


def test_a_folder_is_shown_in_two_to_twenty_groups():
    groups = {1: 2, 10: 2, 39: 2, 40: 3, 56: 3, 100: 4, 625: 10, 2401: 20, 10**6: 20}
    assert {samples: groups_for(samples) for samples in groups} == groups


def test_thumbnails_may_take_three_quarters_of_what_is_left_of_ten_megabytes():
    rooms = {0: 6_600_000, 1000: 6_480_000, 20_000: 4_200_000, 52_500: 300_000, 10**6: 300_000}
    assert {samples: thumbnails.budget(samples) for samples in rooms} == rooms
    assert build._Making(Path("x"), 2, Limits(), [].append).room(10_000) == 4_200_000 // 2  # which runs share
    sides = {15: 160, 16: 128, 23: 128, 24: 112, 100: 48, 1562: 16, 10**6: 16}  # at a sixth of a byte for a pixel
    assert {samples: thumbnails.side_for(samples, 64_000) for samples in sides} == sides


def test_what_comes_after_a_folder_of_equal_numbers_is_not_a_number_to_json():
    values = {"a": [1, math.nan, (math.inf, 0.5)], "b": "<&>"}
    assert as_script_data(values) == '{"a":[1,null,[null,0.5]],"b":"\\u003c\\u0026\\u003e"}'


def test_even_choices_have_the_first_and_the_last():
    found = [thumbnails.evenly(range(7), count) for count in (1, 2, 3, 6, 7)]
    assert found == [[0], [0, 6], [0, 3, 6], [0, 1, 2, 4, 5, 6], list(range(7))]
    assert thumbnails.evenly([], 3) == []


def decoded(uri: str) -> tuple[str, np.ndarray]:
    head, _, body = uri.partition(",")
    return head, np.asarray(Image.open(io.BytesIO(base64.b64decode(body))).convert("RGB"))


@pytest.mark.parametrize(("n", "columns", "each", "sheets"), [(1, 1, 4, 1), (4, 2, 8, 1), (5, 3, 12, 1), (17, 4, 16, 2)])
def test_a_sheet_is_about_square_and_no_wider_than_a_phone_decodes(monkeypatch, n, columns, each, sheets):
    monkeypatch.setattr(thumbnails, "SHEET_SIDE", 32)
    found = thumbnails.sheet(shades(n))
    assert (found["columns"], found["each"], found["width"], found["height"]) == (columns, each, 8, 8)
    assert len(found["uris"]) == sheets
    head, last = decoded(found["uris"][-1])
    assert head == "data:image/webp;base64"
    shown = n - (sheets - 1) * each
    assert last.shape == (-(-shown // columns) * 8, columns * 8, 3)
    assert last[(shown - 1) // columns * 8, (shown - 1) % columns * 8, 0] == n - 1


@pytest.mark.parametrize(
    ("size", "side", "shape"), [((8, 16), 8, (4, 8)), ((8, 16), 16, (8, 16)), ((8, 16), 99, (8, 16)), ((30, 2), 10, (10, 1))]
)
def test_pictures_are_averaged_down_with_their_proportions(size, side, shape):
    height, width = size
    pixels = (np.arange(3 * height * width).reshape(3, height, width, 1) % 251).astype(np.uint8)
    found = thumbnails.shrunk(lambda some: pixels[some], 3, size, side)
    assert found.shape == (3, *shape, 1)
    if height % shape[0] == 0 and width % shape[1] == 0:
        blocks = pixels.reshape(3, shape[0], height // shape[0], shape[1], width // shape[1], 1).mean((2, 4))
        np.testing.assert_array_equal(found, np.round(blocks))


def test_more_pictures_than_fit_a_block_keep_their_order():
    pixels = (np.arange(1030) % 256).astype(np.uint8).reshape(-1, 1, 1, 1).repeat(2, 1).repeat(2, 2)
    np.testing.assert_array_equal(thumbnails.shrunk(lambda some: pixels[some], 1030, (2, 2), 1)[:, 0, 0, 0], pixels[:, 0, 0, 0])


def test_generated_tiles_are_of_their_rows_and_channels():
    images = Images(np.stack([shades(4, channels=1)[..., 0] + add for add in (0, 50, 100)], axis=-1))
    tiles = thumbnails.tiles_of(images, 4, (2, 0, 1))
    assert tiles.shape == (4, 4, 4, 3)
    assert tiles[:, 0, 0].tolist() == [[100 + row, row, 50 + row] for row in range(4)]


@pytest.mark.parametrize(("size", "shown"), [((640, 20), (640, 20)), ((641, 20), (640, 20)), ((300, 1280), (150, 640))])
def test_a_picture_over_640_pixels_is_shown_smaller(size, shown):
    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)).save(stream, "PNG")
    head, pixels = decoded(thumbnails.picture(stream.getvalue()))
    assert pixels.shape[1::-1] == shown
    assert head == "data:image/webp;base64"


def test_a_picture_that_is_smaller_as_it_is_stays_so():
    stream = io.BytesIO()
    Image.new("RGB", (2, 2)).save(stream, "GIF")
    content = stream.getvalue()
    webp = io.BytesIO()
    Image.new("RGB", (2, 2)).save(webp, "WEBP", quality=75)
    kind = "gif" if len(content) <= len(webp.getvalue()) else "webp"
    assert thumbnails.picture(content).startswith(f"data:image/{kind};base64,")


def both(train: int = 30, test: int = 10, names: bool = False) -> Dataset:
    parts = [
        Images(shades(n, first=first), np.arange(n) % 2, [f"f{first + i}.png" for i in range(n)] if names else None)
        for n, first in ((train, 0), (test, 100))
    ]
    return Dataset("both", *parts)


@pytest.mark.parametrize(("limit", "kept"), [(40, (30, 10)), (41, (30, 10)), (20, (15, 5)), (4, (3, 1)), (1, (1, 1))])
def test_a_gallery_takes_of_each_split_in_proportion(limit, kept):
    found = Gallery.of(both(), limit)
    assert (tuple(map(len, found.rows)), found.total, len(found)) == (kept, 40, sum(kept))
    assert np.asarray(found.held_out).tolist() == [False] * kept[0] + [True] * kept[1]


def test_samples_without_files_are_named_by_split_and_row():
    found = Gallery.of(both(), 4)
    (a, b, c), (d,) = (rows.tolist() for rows in found.rows)
    assert found.names == [f"training {a}", f"training {b}", f"training {c}", f"held-out {d}"]
    alone = Gallery.of(Vectors(np.zeros((3, 2), np.float32)), 9)
    assert alone.names == ["sample 0", "sample 1", "sample 2"]
    assert (alone.held_out, alone.labels, alone.classes) == (None, None, None)
    assert Gallery.of(both(names=True), 99).names[29:31] == ["f29.png", "f100.png"]


def test_pixels_of_both_splits_stand_in_the_order_of_the_gallery():
    found = Gallery.of(both(), 8)
    pixels = found.pixels
    assert isinstance(pixels, JoinedPixels)
    expected = [*found.rows[0].tolist(), *(100 + found.rows[1]).tolist()]
    assert (len(pixels), pixels.shape) == (8, (8, 8, 8, 1))
    assert pixels[:][:, 0, 0, 0].tolist() == expected
    assert pixels[5:7][:, 3, 3, 0].tolist() == expected[5:7]
    inputs = found.inputs(np.array([0, 5, 6, 7]))
    np.testing.assert_allclose(inputs[:, 0, 0, 0], np.array(expected)[[0, 5, 6, 7]] / 127.5 - 1, atol=1e-6)


def test_classes_without_names_are_numbers():
    images = Images(shades(4), np.array([0, 2, 2, 1]), None, ["cat", "dog"])
    assert Gallery.of(images, 9).classes == ["cat", "dog", "2"]


def test_plain_pictures_are_grey_or_in_colour():
    found = [Gallery.of(Images(shades(2, channels=channels)), 9).plain for channels in (1, 2, 3, 4)]
    assert found == [True, False, True, False]


def test_a_missing_file_is_grey_and_has_no_size():
    found = Files.empty(2, 4)
    assert (found.tiles.shape, found.whole.shape) == ((2, 4, 4, 3), (2, 32, 32, 3))
    assert {int(found.tiles.min()), int(found.whole.max())} == {127}
    assert found.digests == [b"missing 0", b"missing 1"]
    assert (found.areas.tolist(), found.sizes.tolist()) == ([0, 0], [0, 0])


def test_places_fill_a_rectangle_as_wide_as_a_screen():
    corners = np.array([[0, 0], [30, 0], [0, 20], [30, 20], [15, 10]])
    found = layout.placed(corners).astype(int)
    assert (found.max(axis=0) - found.min(axis=0)).tolist() == [65535, 43690]
    assert np.abs(found[4] - [32768, 21845]).max() <= 1
    tall = layout.placed(corners[:, ::-1]).astype(int)  # it is turned
    assert tall.max(axis=0).tolist() == [65535, 43690]


@pytest.mark.parametrize(("wide", "height"), [(30, 43690), (60, 43690 * 1.5 / 2), (120, 43690 * 1.5 / 4), (45, 43690)])
def test_one_axis_is_stretched_by_half_at_most(wide, height):
    found = layout.placed(np.array([[0, 0], [wide, 0], [0, 20], [wide, 20]]))
    assert found[:, 0].max() == 65535
    assert found[:, 1].max() == pytest.approx(height, abs=1)


def test_clearances_of_four_places_by_hand():
    places = np.array([[0, 0], [1000, 0], [1000, 300], [400, 200]], np.uint16)
    assert layout.clearances(places).tolist() == [400, 600, 300, 65535]
    assert layout.clearances(places[:1]).tolist() == [65535]
    assert layout.clearances(places[:0]).tolist() == []
    assert layout.clearances(places[[0, 0]]).tolist() == [65535, 0]
    later = layout.clearances(np.array([[0, 10], [0, 15], [500, 0]], np.uint16), places[:1])
    assert later.tolist() == [5, 15, 500]


@pytest.mark.parametrize(("n", "by"), [(4, "the first two numbers"), (5, "t-SNE")])
def test_four_samples_lie_at_their_first_two_numbers(n, by):
    features = np.arange(3 * n, dtype=np.float32).reshape(n, 3)
    positions, said = layout.layout(features)
    assert said == by
    if n == 4:
        assert positions.tolist() == features[:, :2].tolist()


def test_a_sample_without_a_place_lies_at_the_median_of_three_that_have_one():
    others = np.array([[0.0], [1], [2], [50]], np.float32)
    positions = np.array([[0, 0], [10, 1], [2, 7], [99, 99]], np.float32)
    found = layout._between(np.array([[0.9]] * 200, np.float32), others, positions)
    assert np.median(found, axis=0) == pytest.approx([2, 1], abs=0.6)
    spread = np.median([10, 7])  # of the three along each axis
    assert found.std(axis=0) == pytest.approx([0.25 * spread] * 2, rel=0.15)


def points(closeness, scores=None, labels=None) -> Points:
    closeness = np.asarray(closeness, float)
    n = len(closeness)
    gallery = Gallery.of(Images(shades(n), None if labels is None else np.asarray(labels)), n)
    scores = np.zeros(n) if scores is None else np.asarray(scores, float)
    empty = np.zeros((n, 0))
    return Points(gallery, empty, empty, empty, empty, closeness, scores)


def test_groups_by_hand():
    found = described_groups(
        points(
            [[0.9, 0.1, 0], [0.8, 0.7, 0], [0.2, 0.3, 0.9], [0.99, 0, 0], [0.5, 0.4, 0.45]],
            [0, 0, 0, FAR + 1, FAR],
            [1, 0, 0, 1, 1],
        ),
        Generated(SimpleNamespace(), *np.zeros((2, 3, 1)), np.array([[0, 0, 1.0], [0.5, 0, 0.6], [1, 0, 0]])),  # pyright: ignore
    )
    names = ("size", "labels", "typical", "borderline", "towards", "generated", "generated_count")
    assert found == [
        dict(zip(names, values, strict=True))
        for values in (
            (4, [[1, 3], [0, 1]], [0, 1, 4], [4, 1, 0], [2, 1, 1], [2], 1),
            (0, [], [], [], [], [], 0),
            (1, [[0, 1]], [2], [2], [1], [0, 1], 2),
        )
    ]
    (found,) = described_groups(points([[0.5], [0.9]]), None)  # one group has no border
    assert found == {"size": 2, "labels": None, "typical": [1, 0], "borderline": [], "towards": []}


def test_what_is_odd_is_beyond_the_limit_and_the_furthest_comes_first():
    some = points(np.ones((5, 1)), [FAR, FAR + 1e-9, np.nan, 1, 9])
    assert some.odd.tolist() == [False, True, True, False, True]
    assert build._odd_ones(some) == {"count": 3, "rows": [2, 4, 1, 0, 3], "scores": [1e6, 9, 6, 6, 1]}


@pytest.mark.parametrize(("n", "odd", "shown"), [(10, 3, 10), (30, 3, 24), (30, 24, 24), (30, 25, 25), (400, 350, 300)])
def test_a_list_of_odd_ones_is_neither_short_nor_endless(n, odd, shown):
    scores = np.where(np.arange(n) < odd, 100.0, 1.0)
    found = build._odd_ones(points(np.ones((n, 1)), scores))
    assert (found["count"], found["rows"]) == (odd, list(range(shown)))
    assert build._odd_ones(points(np.ones((n, 1)))) == {"count": 0, "rows": [], "scores": []}


def test_links_that_differ_from_names_by_their_start_are_shortened():
    assert build._shortened(None, ["a"]) is None
    found = build._shortened(["./x%20y/a%20b.png", "./x%20y/c/d.png"], ["a b.png", "c/d.png"])
    assert found == {"start": "./x%20y/", "rest": None}
    assert build._shortened(["./a.png", None], ["a.png", "b.png"]) == {"start": "", "rest": ["./a.png", None]}
    assert build._shortened(["./p/1", "./q/2"], ["1", "2"]) == {"start": "", "rest": ["./p/1", "./q/2"]}


def test_packed_numbers_are_little_endian():
    assert base64.b64decode(build.packed(np.array([1, 256], ">u2"))) == b"\x01\x00\x00\x01"
    assert base64.b64decode(build.packed(np.array([1.5], np.float32))) == np.array([1.5], "<f4").tobytes()


def test_a_stage_names_its_run_only_beside_others(monkeypatch, tmp_path):
    said: list[str] = []
    monkeypatch.setattr(build, "_collected", lambda shown, making: (making.say("thumbnails"), None))
    monkeypatch.setattr(build, "paired_test", lambda one, other: None)
    first, second = SimpleNamespace(name="first"), SimpleNamespace(name="second")
    for runs in ([first], [first, second]):
        build.write_report(tmp_path / "a.html", runs, Limits(), said.append)  # pyright: ignore[reportArgumentType]
    last = ["runs against each other", "writing the page"]
    assert said == ["thumbnails", *last, "thumbnails of first", "thumbnails of second", *last]


def test_equal_rows_of_numbers_are_duplicates_and_near_ones_are_not():
    rows = np.array([[1, 2], [3, 4], [1, 2], [1, 2.0001], [1, 2]], np.float32)
    found = copies.duplicates(Gallery.of(Vectors(rows), 9), np.eye(5), None)
    assert [(one["keep"], one["copies"]) for one in found] == [(0, [[2, "equal"], [4, "equal"]])]


@pytest.mark.parametrize(("train", "held_out"), [(20, 6), (3, 1)])
def test_generated_samples_are_compared_with_the_training_set_alone(train, held_out):
    draws = np.random.default_rng(0)
    real, other, made = (draws.integers(0, 256, (n, 8, 8, 1), dtype=np.uint8) for n in (train, held_out, 30))
    made[7], made[12] = other[0], real[2]
    found = copies.memorisation(Gallery.of(Dataset("d", Images(real), Images(other)), 99), Images(made), seed=0)
    assert found is not None
    assert (found["of"], found["compared_with"], found["expected"]) == (30, train, 0.01)
    assert len(found["nearest"]) == 24
    distances = [one["distance"] for one in found["nearest"]]
    assert distances == sorted(distances)
    assert found["nearest"][0] == {"generated": 12, "of": 2, "distance": 0.0, "suspicious": True}
    assert sum(one["suspicious"] for one in found["nearest"]) == min(found["count"], 24)


def test_of_two_training_samples_nobody_can_say_what_is_near():
    images = Images(shades(2))
    gallery = Gallery.of(Dataset("d", images, Images(shades(5))), 9)
    assert copies.memorisation(gallery, images, 0) is None
    assert copies.memorisation(Gallery.of(Images(shades(9)), 9), None, 0) is None


def scored(right: list[bool], n: int = 40, reason: str | None = None, labels=None, names: bool = True) -> Scored:
    gallery = Gallery.of(both(4, n, names), 99)
    if labels is not None:
        gallery.__dict__["labels"] = labels
    whole = np.resize(np.array(right), n)
    metrics = {name: accuracy(name, whole, {}) for name in ("knn5", "svm")} | {"kmeans": Metric("kmeans", math.nan)}
    return Scored(gallery, metrics, reason)


def test_the_second_run_less_the_first_corrected_for_metrics_and_pairs():
    first, second = scored([True, False, False, False]), scored([True, True, True, False])
    found, of_three = paired_test(first, second), paired_test(first, second, pairs=3)
    assert (found["samples"], found["reason"]) == (40, None)
    assert [(row["metric"], row["word"], row["first"], row["second"]) for row in found["rows"]] == [
        ("knn5", "5 neighbours", 0.25, 0.75),
        ("svm", "linear SVM", 0.25, 0.75),
    ]
    exactly = 2 * (0.5**20) / 2  # 20 gained, none lost; mid-p
    for row, other in zip(found["rows"], of_three["rows"], strict=True):
        assert row["difference"] == 0.5
        assert row["interval"][0] < 20 / 42 < row["interval"][1]
        assert row["p"] == pytest.approx(2 * exactly)
        assert other["p"] == pytest.approx(6 * exactly)
        assert other["interval"][0] < row["interval"][0]


@pytest.mark.parametrize(("second", "reason"), [
    (None, "the data of one was not at hand"), (scored([True], reason="there are no labels"), "there are no labels"),
    (scored([True], n=30), "they hold out different samples"), (scored([True], names=False), "they hold out different samples"),
    (scored([True], labels=np.zeros(44, int)), "their labels differ"),
])  # fmt: skip
def test_why_two_runs_cannot_be_tested(second, reason):
    assert paired_test(scored([True]), second) == {"reason": reason, "rows": []}
    assert paired_test(second, scored([True])) == {"reason": reason, "rows": []}


def test_where_nothing_was_measured_by_both_there_is_no_row():
    one = scored([True])
    nothing = Scored(one.gallery, {name: Metric(name, math.nan) for name in side_by_side.TESTED})
    assert paired_test(one, nothing) == {"reason": "nothing could be measured", "rows": [], "samples": 40}


@pytest.mark.parametrize(("labels", "held_out", "reason"), [
    (None, 30, "there are no labels"), ([0], 30, "all samples have the same label"),
    ([0, 1], 19, "19 held-out samples are too few"), ([0, 1], 20, None),
])  # fmt: skip
def test_why_a_run_cannot_be_scored(labels, held_out, reason):
    n = 25 + held_out
    mask = np.arange(n) >= 25
    assert side_by_side._unscorable(None if labels is None else np.resize(labels, n), mask) == reason
    assert side_by_side._unscorable(np.arange(n), None) == "there are no labels"


def test_at_most_two_thousand_samples_of_each_split_are_tested(monkeypatch):
    assert side_by_side.MOST == 2000
    monkeypatch.setattr(side_by_side, "MOST", 6)
    whole = Gallery.of(both(), 99)
    found, places = rows_to_score(whole)
    assert (found.total, [len(rows) for rows in found.rows]) == (40, [6, 6])
    assert np.asarray(found.held_out).tolist() == [False] * 6 + [True] * 6
    assert found.names == [whole.names[place] for place in places]
    labels, of_all = np.asarray(found.labels), np.asarray(whole.labels)
    assert labels.tolist() == of_all[places].tolist()
    assert np.bincount(labels[:6]).tolist() == [3, 3]
    monkeypatch.undo()
    assert rows_to_score(whole)[1].tolist() == list(range(40))
    alone = Gallery.of(both().train, 99)
    assert rows_to_score(alone)[0] is alone


@pytest.mark.parametrize(
    ("total", "generative", "limits", "seconds"),
    [
        # points x (pass + thumbnail) + Jacobian norms + drawing + n log2(n + 1) x 600,000 operations
        (100, False, AT_END, 100 * 0.013 + 5 + 0 + 100 * math.log2(101) * 0.06),
        (100, True, AT_END, 100 * 0.013 + 5 + 2 + 200 * math.log2(201) * 0.06),
        (1000, True, AT_END, 1000 * 0.013 + 5 + 5 + 1256 * math.log2(1257) * 0.06),
        (10, True, AT_END, 10 * 0.013 + 1.2 + 0.2 + 20 * math.log2(21) * 0.06),
        (10**6, False, Limits(points=3000), 3000 * 0.013 + 15 + 3000 * math.log2(3001) * 0.06),
        (10**6, True, Limits(points=4800), 4800 * 0.013 + 15 + 10.24 + 5000 * math.log2(5001) * 0.06),
    ],
)
def test_a_report_is_priced_by_its_points(monkeypatch, total, generative, limits, seconds):
    monkeypatch.setattr(price, "_seconds_of_a_pass", lambda method, samples: 0.01)
    monkeypatch.setattr(price, "_seconds_of_a_step", lambda: 1e-7)
    monkeypatch.setattr(price, "generative", lambda method: object() if generative else None)
    found = price.report_seconds(SimpleNamespace(), Vectors(np.zeros((2, 2), np.float32)), total, limits)  # pyright: ignore
    assert found == pytest.approx(seconds)


@pytest.mark.parametrize(("n", "timed"), [(10, 10), (50, 32)])
def test_a_pass_is_timed_by_32_samples_at_most(monkeypatch, n, timed):
    now, passed = [0.0], []

    def extract(function, samples, device, rows):
        passed.append(rows)
        now[0] += 64.0

    monkeypatch.setattr(price, "extract", extract)
    monkeypatch.setattr(price.time, "perf_counter", lambda: now[0])
    method = SimpleNamespace(parameters=lambda: iter([SimpleNamespace(device="cpu")]), features=None)
    assert price._seconds_of_a_pass(method, [0] * n) == 64 / timed  # pyright: ignore[reportArgumentType]
    assert passed == [slice(0, timed)] * 2


def test_what_is_read_from_the_page_is_what_was_written(tmp_path):
    making = build._Making(tmp_path / "a.html", 1, Limits(), [].append)
    making.write([], [{"p": 0.5}], "a < b")
    text = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "<title>a &lt; b</title>" in text
    found = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    assert found == {"sao": build.__version__, "runs": [], "sheets": {}, "tested": [{"p": 0.5}]}
