"""What is said of data while it is read, and the limits at which it is read in another way."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import fake

from sao.cli.inputs import _recoloured, as_trained
from sao.data.dataset import (
    Dataset,
    Images,
    PixelRange,
    ScaledRows,
    Standardiser,
    Vectors,
    described_images,
    joined,
    usable_rows,
)
from sao.data.files import images as of_files
from sao.data.files.arrays import ArrayImages, Arrays, _likely_axes, _usual_scale
from sao.data.files.decode import Header, Recipe
from sao.data.files.grouped import _distinct, _places, safe_name
from sao.data.files.images import choose_size, fit_note
from sao.data.files.open import open_path, shard_paths
from sao.data.files.reading import ReadOptions
from sao.data.files.tables import listed, read_numbers
from sao.data.labels import parsed_labels, with_class_for_unlabelled
from sao.data.named import digits, resized, spiral_point, spirals
from sao.data.split import layout_of
from sao.errors import InputError


def images(n: int, size: int = 8, channels: int = 1, labels: Any = None) -> Images:
    return Images(np.zeros((n, size, size, channels), np.uint8), labels)


@pytest.mark.parametrize(("sides", "largest", "size", "middle"), [
    ([64], None, 64, 64), ([63], None, 32, 63), ([127, 129, 1000], None, 128, 129), ([4000], None, 128, 4000),
    ([3], None, 8, 3), ([40, 100], None, 64, 70), ([500], 32, 32, 500), ([20], 32, 16, 20),
])  # fmt: skip
def test_the_size_is_a_power_of_two_below_the_median_side(sides, largest, size, middle):
    assert choose_size(sides, largest) == (
        size,
        f"size {size} was chosen: the median shorter side is {middle} pixels, and sizes are powers of two from 8 to "
        f"{largest or 128} unless set (up to 256)",
    )


@pytest.mark.parametrize(("sizes", "fit", "said"), [
    ({(32, 32): 5}, "crop", None), ({(64, 64): 5}, "crop", "images of 64x64 pixels were resized to 32x32"),
    ({(64, 48): 5}, "crop", "images of 64x48 pixels were centre-cropped to squares and resized to 32x32"),
    ({(64, 48): 5}, "pad", "images of 64x48 pixels were padded to squares with mid-grey and resized to 32x32"),
    ({(64, 64): 5, (32, 32): 1}, "crop", "images of 2 different sizes were resized to 32x32"),
    ({(32, 32): 5}, "centre", "images of 32x32 pixels were resized to a short side of 36, of which the centre 32x32 is kept"),
])  # fmt: skip
def test_how_images_became_squares(sizes, fit, said):
    assert fit_note(set(sizes), Recipe(32, 3, fit)) == said


def test_what_was_done_to_images_is_counted():
    several = Header(32, 32, False, False, "floats", more_pages=True)
    headers = Counter([Header(31, 90, False, True, "integers"), several, Header(90, 40, False, True)])
    assert of_files._notes_about(headers, Recipe(32, 3, "crop")) == [
        "images of 3 different sizes were centre-cropped to squares and resized to 32x32",
        "1 of 3 images are smaller than 32 pixels and were enlarged",
        "2 of 3 images have transparency and were composited on white",
        "1 files have more pages than the first: pip install 'sao[tiff]' to read them",
        "images are read as colour (3 channels)",
    ]
    assert of_files._notes_about(headers, Recipe(8, 1, "crop", frame=16))[-2:] == [
        "images are read as grey (1 channel)",
        "training sees random crops of the whole images, which are kept at 16x16 for it",
    ]
    lost = "2 of 3 images have more than 8 bits a pixel and were reduced to 8"
    assert of_files._lost_bits(headers, Recipe(8, 1, "crop")) == [lost]
    assert of_files._lost_bits(headers, Recipe(8, 1, "crop", bits=16)) == []


def stacks(*files: tuple[int, int, bool, int]) -> Counter:
    """(pages, pages of an image, whether told, files)"""
    return Counter(
        {Header(8, 8, True, False, "bytes", 1, pages, together, told): count for pages, together, told, count in files}
    )


@pytest.mark.parametrize(("kinds", "asked", "chosen", "said"), [
    (stacks((1, 1, False, 9)), "auto", "auto", None),
    (stacks((5, 1, False, 9)), "auto", "images",
     "9 files of 5 pages: pages are read as images of their own (--data.pages channels: as channels)"),
    (stacks((5, 1, False, 10)), "auto", "channels",
     "10 files of 5 pages: pages are read as channels (--data.pages images: as images)"),
    (stacks((16, 1, False, 10)), "auto", "channels", "10 files of 16 pages: pages are read as channels"),
    (stacks((17, 1, False, 10)), "auto", "images", "10 files of 17 pages: pages are read as images"),
    (stacks((5, 1, False, 9), (7, 1, False, 3)), "auto", "images", "12 files of up to 7 pages: pages are read as images"),
    (stacks((5, 1, False, 20), (1, 1, False, 1)), "auto", "images", "20 files of 5 pages: pages are read as images"),
    (stacks((5, 5, True, 1)), "auto", "channels", "1 file of 5 pages: pages are read as channels"),
    (stacks((5, 1, True, 20)), "auto", "images", "20 files of 5 pages: pages are read as images"),
    (stacks((5, 1, False, 3)), "channels", "channels", "3 files of 5 pages: pages are read as channels"),
])  # fmt: skip
def test_pages_of_ten_files_alike_are_channels(kinds, asked, chosen, said):
    found = of_files._meaning_of_pages(kinds, ReadOptions("x", pages=asked))
    assert (found[0], found[1] is None) == (chosen, said is None)
    assert said is None or str(found[1]).startswith(said)
    assert of_files._meaning_of_pages(kinds, ReadOptions("x", pages="auto", channels=2))[1] is None


@pytest.mark.parametrize(
    ("kinds", "channels"), [([(1, 5)], 1), ([(3, 1), (1, 9)], 3), ([(4, 5), (3, 4)], 4), ([(3, 5), (4, 5), (1, 1)], 3)]
)
def test_channels_are_those_of_most_files(kinds, channels):
    counted = Counter({Header(8, 8, False, False, "bytes", there): files for there, files in kinds})
    assert of_files._channels_of(counted, False) == channels
    assert of_files._channels_of(Counter({Header(8, 8, True, False, "bytes", 2, 3, 3, True): 4}), True) == 6


@pytest.mark.parametrize(
    ("count", "size", "workers"), [(999, 10, 1), (1000, 10, 8), (10, 32 * 2**20 // 10, 1), (10, 32 * 2**20 // 10 + 1, 8)]
)
def test_a_second_process_is_for_a_thousand_files_or_32_megabytes(monkeypatch, count, size, workers):
    monkeypatch.setattr(of_files, "usable_cores", lambda: 8)
    assert of_files._workers(fake(entries=[fake(size=size)] * count)) == workers


@pytest.mark.parametrize(("names", "size", "chunks"), [
    (["a.png"] * 130, 1, [64, 64, 2]), (["a.tif"] * 9, 1, [4, 4, 1]), (["a.png"] * 5, 4 * 2**20, [2, 2, 1]),
    (["a.png"] * 3, 2**40, [1, 1, 1]),
])  # fmt: skip
def test_files_are_read_in_chunks_of_64_or_eight_megabytes(names, size, chunks):
    source = fake(entries=[fake(name=name, size=size) for name in names], load=lambda: iter(names))
    assert [len(chunk) for chunk in of_files._chunks(source)] == chunks


def test_progress_counts_both_passes():
    said: list[tuple[int, int]] = []
    source = fake(entries=[fake(name="a.tif", size=1)] * 6, load=lambda: iter("abcdef"))
    options = ReadOptions("x", workers=1, progress=lambda *given: said.append(given))
    for done in (0, 1):
        found = of_files.over_files(lambda chunk: [[one] for one in chunk], source, options, lambda one: one, done, 2)
        assert [len(results) for results in found] == [4, 2]
    assert said == [(4, 12), (6, 12), (10, 12), (12, 12)]


@pytest.mark.parametrize(("kind", "low", "high", "found"), [
    ("f4", 0, 1, (255.0, 0.0, "in [0, 1]")), ("f4", 0, 1.01, (1.0, 0.0, "in [0, 255]")),
    ("f4", -1, 1, (127.5, 127.5, "in [-1, 1]")), ("f4", -0.01, 1.01, None), ("f4", 0, 255, (1.0, 0.0, "in [0, 255]")),
    ("f4", 0, 255.5, None), ("i4", 0, 1, (1.0, 0.0, "in [0, 255]")), ("?", 0, 1, (255.0, 0.0, "in [0, 1]")),
    ("u2", 0, 256, (1 / 257, 0.0, "of 16 bits")), ("i4", -1, 5, None),
])  # fmt: skip
def test_ranges_that_pictures_usually_have(kind, low, high, found):
    assert _usual_scale(np.dtype(kind), np.array([low]), np.array([high])) == found


@pytest.mark.parametrize(("values", "said"), [
    (np.full((3, 8, 8), 0.5, np.float32), "float32 pixels in [0, 1] were converted to 8 bits"),
    (np.full((3, 8, 8), -0.5), "float64 pixels in [-1, 1] were converted to 8 bits"),
    (np.full((3, 8, 8), 200, np.int64), "int64 pixels in [0, 255] were converted to 8 bits"),
])  # fmt: skip
def test_numbers_that_are_pictures_become_bytes(values, said):
    found = ArrayImages(Arrays(values), ReadOptions("x"))
    assert found.notes == [said]
    expected = {0.5: 128, -0.5: 64, 200.0: 200}[float(values[0, 0, 0])]
    assert {int(pixel) for pixel in np.unique(found.in_memory())} == {expected}


@pytest.mark.parametrize(("shape", "axes", "said"), [
    ((9, 20, 20), "NHW", ""), ((9, 20, 20, 3), "NHWC", ""),
    ((9, 3, 20, 20), "NCHW", "the arrays were read as (n, c, h, w): their last axis is not a channel axis"),
    ((9, 20, 20, 5), "NHWC", "the arrays were read as (n, h, w, c) with 5 channels (--data.axes NHWD: as slices of volumes)"),
    ((9, 6, 20, 20), "NCHW", "the arrays were read as (n, c, h, w) with 6 channels (--data.axes NDHW: as slices of volumes)"),
    ((9, 20, 20, 16), "NHWC", "the arrays were read as (n, h, w, c) with 16 channels (--data.axes NHWD: as slices of volumes)"),
])  # fmt: skip
def test_axes_are_guessed_and_said(shape, axes, said):
    assert _likely_axes(shape, ReadOptions("x")) == (axes, said)


@pytest.mark.parametrize("shape", [(9, 20, 20, 17), (9, 20, 20, 20), (9, 20, 20, 20, 3), (9, 5, 5, 5)])
def test_axes_that_nobody_can_guess_are_asked_for(shape):
    with pytest.raises(InputError, match=r"^x has shape .*--data\.axes"):
        _likely_axes(shape, ReadOptions("x"))


def test_slices_of_volumes_are_images_with_names_of_their_own():
    volumes = np.zeros((2, 3, 8, 8), np.uint8)
    found = ArrayImages(Arrays(volumes, x_test=volumes[:1]), ReadOptions("x", axes="NDHW"))
    assert len(found) == 9
    assert "2 volumes of 3 slices: every slice is an image" in found.reading
    assert found.arrays.names([0, 5, 6]) == ["train row 0 slice 1", "train row 1 slice 3", "test row 0 slice 1"]
    assert Arrays(np.zeros((2, 3))).names([0, 1]) == ["row 0", "row 1"]


@pytest.mark.parametrize(("low", "high", "said"), [
    ((0.0,), (4095.0,), "from 0 to 4095"), ((0.0, 0.0), (9.5, 9.5), "from 0 to 9.5"),
    ((0.0, -2.0), (9.0, 7.0), "from -2 to 9, each channel by its own range"),
])  # fmt: skip
def test_the_range_of_values_is_said(low, high, said):
    assert PixelRange(low, high).said() == said


def test_values_of_a_range_become_bytes_and_parts():
    levels = PixelRange((100.0, 5.0), (300.0, 5.0))
    rows = np.array([[[[100, 5], [300, 4]], [[200, 6], [50, 5]]]], np.uint16)
    assert levels.widths == (200.0, 1.0)
    np.testing.assert_allclose(levels.parts(rows)[0].reshape(4, 2), [[0, 0], [1, 0], [0.5, 1], [0, 0]])
    np.testing.assert_array_equal(ScaledRows(rows, levels, np.uint8)[:][0, 1, 0], [128, 255])
    of_colour = PixelRange.of(np.array([1, 2, 3]), np.array([9, 8, 7]))
    assert (of_colour.low, of_colour.high) == ((1.0,) * 3, (9.0,) * 3)
    assert PixelRange.of(np.array([1, 2]), np.array([9, 8])).low == (1.0, 2.0)
    inputs = Images(rows, levels=levels).inputs(slice(None))
    np.testing.assert_allclose(inputs[0, 0].flatten(), [-1, 1, 0, -1])


@pytest.mark.parametrize(("count", "said"), [(1, "c0"), (5, "c0, c1, c2, c3, c4"), (6, "c0, c1, c2, c3, c4 and 1 more")])
def test_five_columns_are_listed(count, said):
    assert listed([f"c{i}" for i in range(count)]) == said


def table(tmp_path: Path, *columns: tuple[str, list[Any]]) -> Any:
    lines = [",".join(map(str, row)) for row in zip(*([name, *cells] for name, cells in columns), strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    return read_numbers(tmp_path / "t.csv", ReadOptions("t.csv"))


def test_columns_that_are_half_text_or_half_empty_stay(tmp_path):
    text, empty = ("text", [1, "w", "x", "y"]), ("empty", [1, "", "", ""])
    found = table(tmp_path, ("half", [1, 2, "x", "y"]), text, empty, ("filled", [1, 2, "", ""]))
    assert list(found.samples.columns) == ["half", "filled"]
    assert found.notes == [
        "columns dropped because they are text: text",
        "columns dropped because most of their cells are empty: empty",
    ]
    reason = "half is not a finite number"
    assert [(item.name, item.reason) for item in found.skipped] == [("row 2", reason), ("row 3", reason)]
    assert found.samples.names == ["row 0", "row 1"]


def test_rows_of_another_width_are_named_with_their_cells(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n\n1,2,3\n4,5\n1e30,2e30\n")
    found = read_numbers(tmp_path / "t.csv", ReadOptions("t.csv"))
    assert [(item.name, item.reason) for item in found.skipped] == [
        ("row 1", "3 cells where 2 are expected"),
        ("row 3", "b is not a finite number"),
    ]
    assert found.samples.names == ["row 0", "row 2"]
    assert usable_rows(np.array([[1e30, -1e30], [1e30, 1.1e30], [np.nan, 1]])).tolist() == [True, False, False]


def test_a_table_is_standardised_to_a_median_distance_of_sixteen(tmp_path):
    rows = np.random.default_rng(0).normal(size=(60, 3)) * [1, 10, 100] + 5
    (tmp_path / "t.csv").write_text("a,b,c,same\n" + "\n".join(",".join(map(str, row)) + ",7" for row in rows) + "\n")
    opened = open_path(tmp_path / "t.csv")
    assert opened.standardiser is not None
    assert opened.notes == [
        "6 of 60 samples are held out (seed 0)",
        "columns dropped because they have one value in all training rows: same",
        f"3 columns were standardised by the training set and multiplied by {opened.standardiser.factor:.3g}, so that the "
        "median distance between rows is 16",
    ]
    values = opened.dataset.train.inputs(slice(None)).numpy()
    np.testing.assert_allclose(values.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(values.std(axis=0), opened.standardiser.factor, rtol=1e-5)
    apart = np.linalg.norm(values[:, None] - values[None], axis=2)
    assert np.median(apart[apart > 0]) == pytest.approx(16, rel=0.05)


def test_a_standardiser_is_undone_in_the_units_of_the_data():
    rows = np.array([[1.0, 5, 10], [3, 5, 20], [5, 5, 60]])
    found = Standardiser.fit(rows, ["a", "b", "c"], 4.0, 0)
    assert (found.columns, found.kept, found.width, found.mean) == (("a", "c"), (0, 2), 3, (3.0, 30.0))
    assert found.std == pytest.approx(rows[:, [0, 2]].std(axis=0))
    np.testing.assert_allclose(found.invert(found.apply(rows)), rows[:, [0, 2]], rtol=1e-5)
    np.testing.assert_array_equal(found.apply(rows), found.apply(rows[:, [0, 2]]))
    with pytest.raises(InputError, match=r"the network was trained on 3 columns \(2 of them in use\)$"):
        found.apply(rows[:, :1])


@pytest.mark.parametrize(("names", "notes"), [
    (["a/1", "b/2"], ["2 class subfolders were found; they are used for evaluation only, never for training"]),
    (["x/train/a/1", "x/test/b/2", "x/other/3", "x/other/4"],
     ["the folders train and test were used as training and test set; 2 images beside them were left out", "2 class"]),
    (["Train/1", "VAL/2"], ["the folders Train and VAL were used as training and test set"]),
    (["a/1", "2"], ["some images lie in subfolders and some do not, so the subfolders were not taken for classes"]),
    (["a/1", "a/2"], []),
])  # fmt: skip
def test_what_the_folders_of_images_mean(names, notes):
    found = layout_of(names, True).notes
    assert len(found) == len(notes)
    assert all(said.startswith(expected) for said, expected in zip(found, notes, strict=True))


def test_held_out_samples_and_those_of_given_splits_are_counted(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 8, 8), np.uint8)
    np.savez(tmp_path / "x.npz", x=pixels, y=np.arange(20) % 2)
    for share, count in ((0.1, 2), (0.25, 5)):
        notes = open_path(tmp_path / "x.npz", held_out=share, seed=3).notes
        assert f"{count} of 20 samples are held out, of every class its share (seed 3)" in notes
    np.savez(tmp_path / "x.npz", x_train=pixels[:15], x_test=pixels[15:])
    assert open_path(tmp_path / "x.npz").notes == ["15 samples to train on, 5 held out"]


@pytest.mark.parametrize(("pattern", "names"), [
    ("a/{08..11}.tar", ["a/08.tar", "a/09.tar", "a/10.tar", "a/11.tar"]), ("{3..3}", ["3"]), ("a{b}", None), ("a{1..x}", None),
    ("a", None),
])  # fmt: skip
def test_shards_are_all_numbers_from_the_first_to_the_last(pattern, names):
    found = shard_paths(pattern)
    assert (None if found is None else [str(path) for path in found]) == names
    with pytest.raises(InputError, match="write the lower number first"):
        shard_paths("{5..4}")


def test_names_of_groups_are_names_of_folders_on_any_system():
    names = {"a/b": "a_b", "con": "_con", "com1.txt": "_com1.txt", " . ": "_", "x" * 101: "x" * 100, "a. ": "a", "ü:?": "ü__"}
    assert {text: safe_name(text) for text in names} == names


def test_files_of_one_name_are_told_apart():
    assert _distinct(["a.png", "A.png", "a.png", "a-2.png", "b"]) == ["a.png", "A-2.png", "a-3.png", "a-2-2.png", "b"]
    assert _places(["g", "g", "h", "g"], ["x/1.png", "y/1.PNG", "x/1.png", "2.png"]) == [
        "g/x__1.png", "g/y__1.PNG", "h/1.png", "g/2.png",
    ]  # fmt: skip


def test_columns_of_labels_have_several_names():
    found = parsed_labels("Path;Target\nä/1.png;cat\nb\\2.png;dog\n3;\n", "l")
    assert dict(found.labels) == {"ä/1.png": "cat", "b/2.png": "dog"}
    for text, said in (
        ("file,kind\n", "l needs the columns name and label, and has file, kind"),
        ("", "l needs the columns name and label, and has none"),
        ("name,label\n,\n", "l has no row with a name and a label"),
    ):
        with pytest.raises(InputError, match=said):
            parsed_labels(text, "l")
    with pytest.raises(
        InputError, match=r"^l names no sample of the data \(the first: ä/1.png\); names there are like q: write"
    ):
        found.assign(["q"])


def test_samples_without_a_label_are_a_class_of_their_own_on_pages():
    data = Dataset("d", images(3, labels=np.array([0, -1, 1])), images(2, labels=np.array([1, 0])))
    found = with_class_for_unlabelled(data)
    assert np.asarray(found.train.labels).tolist() == [0, 2, 1]
    assert list(found.test.class_names or ()) == ["0", "1", "no label"]
    whole = Dataset("d", data.test, data.test)
    assert with_class_for_unlabelled(whole) is whole


@pytest.mark.parametrize(
    ("channels", "deep", "said"), [(1, False, "grey"), (3, True, "16-bit colour"), (2, False, "2-channel")]
)
def test_images_in_words(channels, deep, said):
    assert described_images(channels, PixelRange((0.0,), (1.0,)) if deep else None) == said


def test_named_data_is_brought_into_the_form_of_a_network():
    data = Dataset("d", images(3, 16), images(2, 16))
    found, notes = as_trained(data, (3, 8, 8))
    assert found.train.shape == (3, 8, 8)
    assert notes == [
        "images of 16x16 pixels were resized to 8x8, as the network was trained",
        "images were made colour (three equal channels), as the network was trained",
    ]
    assert as_trained(data, (1, 16, 16)) == (data, [])
    coloured = Images(np.array([[[[10, 20, 30]] * 8] * 8], np.uint8))
    assert _recoloured(coloured, 1).pixels[0, 0, 0, 0] == round(0.299 * 10 + 0.587 * 20 + 0.114 * 30)
    assert as_trained(Dataset("d", coloured, coloured), (1, 8, 8))[1] == ["images were made grey, as the network was trained"]
    with pytest.raises(InputError, match=r"^d has samples of shape \(1, 16, 16\), the run was trained on \(2, 8, 8\)$"):
        as_trained(data, (2, 8, 8))


def test_sizes_of_named_data():
    data = digits()
    assert (len(data.train), len(data.test), data.classes) == (1437, 360, 10)
    assert resized(data, 8) is data
    assert resized(Dataset("d", images(2), images(1)), 16).test.shape == (1, 16, 16)
    assert len(spirals(100).train) == 100
    arms = spiral_point(np.array([0.0, 1.0, 1.0]), np.array([0, 0, 1]))
    radius = 0.95 * 8 * math.sqrt(0.03)
    assert np.linalg.norm(arms, axis=1) == pytest.approx([radius, 0.95 * 8, 0.95 * 8])
    np.testing.assert_allclose(arms[1], -arms[2], atol=1e-12)


def test_both_splits_together_keep_labels_that_both_have():
    first, second = images(2, labels=np.array([0, 1])), images(1, labels=np.array([1]))
    assert np.asarray(joined(first, second).labels).tolist() == [0, 1, 1]
    assert joined(first, images(1)).labels is None
    assert len(joined(Vectors(np.zeros((2, 3), np.float32)), Vectors(np.ones((1, 3), np.float32)))) == 3
    with pytest.raises(InputError, match=r"^there are 2 samples but 1 labels: give one label for each sample, or none$"):
        images(2, labels=np.array([1]))


def test_options_of_reading_that_are_not_possible():
    for options, said in (
        ({"size": 20}, "size 20 is not possible: choose one of 8, 16, 32, 64, 128, 256"),
        ({"channels": 0}, "channels 0 is not possible"),
        ({"workers": 0}, "workers 0 is not possible: give 1 or more"),
        ({"range": (3.0, 3.0)}, "range"),
    ):
        with pytest.raises(InputError, match=said):
            ReadOptions("x", **options)  # pyright: ignore[reportArgumentType]
    options = ReadOptions("photos", minimum=10)
    options.check(10, [])
    with pytest.raises(InputError, match=r"^photos has only 9 usable samples: give at least 10, and many more to learn from$"):
        options.check(9, [])
    assert options.recipe(8, 3).frame is None
    assert ReadOptions("x", crop=0.5).recipe(8, 3).frame == 16
