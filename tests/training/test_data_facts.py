"""What a run knows of its data is enough to tell other data from it."""

from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from sao.config import Config, Data
from sao.data.dataset import Dataset, Images, PixelRange, Standardiser
from sao.data.files.open import open_for_embedding, open_path
from sao.data.files.reading import ReadOptions
from sao.training.data_facts import ABSOLUTE, GLIMPSED_ROWS, DataFacts, place_of, with_data_found
from sao.training.run_data import open_config_data, reading_of


def few(samples, count: int) -> Images:
    return samples.select(np.arange(count))


@pytest.fixture(scope="module")
def data() -> Dataset:
    """So few that every row is looked at."""
    digits = tiny.dataset()
    return Dataset("digits", few(digits.train, GLIMPSED_ROWS), few(digits.test, GLIMPSED_ROWS // 2))


def difference(then: Dataset, now: Dataset) -> str | None:
    return DataFacts.from_text(DataFacts.of(then).as_text()).difference(DataFacts.of(now))


def test_the_same_data_does_not_differ(data):
    assert difference(data, data) is None
    assert difference(data, Dataset("another name", data.train, data.test)) is None


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("row", [0, 13, -1])
@pytest.mark.parametrize("part", ["labels", "pixels"])
def test_one_other_label_or_picture_is_other_data(data, split, row, part):
    samples = getattr(data, split)
    values = np.array(getattr(samples, part))
    values[row] = (values[row] + 1) % 10 if part == "labels" else 255 - values[row]
    said = difference(data, replace(data, **{split: replace(samples, **{part: values})}))
    assert said == f"as many samples of the same shape, but other ones in the {split} set"


def test_a_picture_with_the_same_mean_and_another_contrast_is_other_data(data):
    pixels = np.array(data.train.pixels)
    pixels[7] = round(pixels[7].mean())
    assert difference(data, replace(data, train=replace(data.train, pixels=pixels))) is not None


def test_rows_in_another_order_are_other_data(data):
    turned = data.train.select(np.arange(GLIMPSED_ROWS)[::-1])
    assert difference(data, replace(data, train=turned)) is not None


def test_rounding_is_no_difference(data):
    """A pixel that is off by one, as by another version of an image library."""
    pixels = np.asarray(data.train.pixels)
    pixels = np.where(pixels < 255, pixels + 1, pixels).astype(np.uint8)
    assert ABSOLUTE > 1 / 127.5
    assert difference(data, replace(data, train=replace(data.train, pixels=pixels))) is None


def test_labels_that_came_or_went_are_a_difference(data):
    bare = Dataset("digits", replace(data.train, labels=None), replace(data.test, labels=None))
    assert difference(data, bare) == "64 samples of (1, 8, 8) with 10 classes then, 64 samples of (1, 8, 8) with no classes now"
    assert difference(bare, bare) is None


def test_fewer_samples_are_a_difference(data):
    assert difference(data, replace(data, train=few(data.train, GLIMPSED_ROWS - 1))) is not None
    assert difference(data, replace(data, test=few(data.test, 31))) is not None


def test_every_fact_comes_back_from_its_file():
    rows = np.random.default_rng(0).normal(size=(20, 3)) * [1, 0, 5]
    scale = Standardiser.fit(rows, ["a", "b", "c"], 4.0, 0)
    vectors = DataFacts("v", (2,), 20, None, scale.to_dict(), ("/here", "../here"), {"train": [(0.5, 0.25, None)]})
    span = PixelRange((0.0, 1.0, -3.5), (2.0, 9.0, 4.0))
    images = DataFacts("i", (3, 8, 8), 9, 4, None, None, {"test": [(0.5, 0.25, 3)]}, span.to_dict())
    for facts in (vectors, images):
        back = DataFacts.from_text(facts.as_text())
        assert asdict(back) == asdict(facts)
        assert {name for one in (vectors, images) for name, value in asdict(one).items() if value is not None} == {
            field.name for field in fields(DataFacts)
        }
    assert Standardiser.from_dict(scale.to_dict()) == scale
    assert PixelRange.from_dict(span.to_dict()) == span


def test_the_way_from_a_run_to_its_data_holds_through_links(tmp_path):
    """A run that is typed by way of a link, and data too, move together."""
    for name in ("disk/deep/runs", "disk/data"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "runs").symlink_to(tmp_path / "disk/deep/runs")
    (tmp_path / "data").symlink_to(tmp_path / "disk/data")
    place = place_of(Config(data=Data(source=str(tmp_path / "data"))), tmp_path / "runs" / "one")
    assert place == (str(tmp_path / "data"), "../../../data")
    (tmp_path / "disk").rename(tmp_path / "moved")
    found = with_data_found(Config(data=Data(source="gone")), tmp_path / "moved/deep/runs/one", place)
    assert Path(found.data.source).samefile(tmp_path / "moved/data")


class Asked(Exception):
    """The options with which a file would be read."""


@pytest.fixture
def asked(monkeypatch):
    def stop(path: Any, options: ReadOptions, shape: Any) -> None:
        raise Asked(options)

    monkeypatch.setattr("sao.data.files.open._read", stop)

    def options_of(read: Any, *given: Any, **more: Any) -> ReadOptions:
        with pytest.raises(Asked) as found:
            read(*given, **more)
        return found.value.args[0]

    return options_of


OF_DATA: dict[str, Any] = {
    "size": 16, "fit": "pad", "channels": 5, "axes": "NCHW", "pages": "images", "range": (0.0, 9.0), "crop": 0.5, "strict": True
}  # fmt: skip


def test_data_is_read_as_every_option_says(asked, tmp_path, monkeypatch):
    config = Config(seed=3, data=Data(source=str(tmp_path), labels=False, held_out=0.25, **OF_DATA))
    found = asked(open_config_data, config)
    assert {name: getattr(found, name) for name in OF_DATA} == OF_DATA
    assert (found.use_labels, found.split) == (False, True)
    assert asked(open_config_data, Config(data=Data(source=str(tmp_path)))).use_labels
    # Held out by numbers of their own; labels of a file take the place of those of folders.
    assert Data.model_fields.keys() - OF_DATA.keys() == {"source", "folder", "labels", "label_file", "held_out"}
    (tmp_path / "l.csv").write_text("name,label\n0.png,a\n")
    labelled = Config(data=Data(source=str(tmp_path), label_file=str(tmp_path / "l.csv")))
    assert not asked(open_config_data, labelled).use_labels
    monkeypatch.undo()
    passed: list[tuple[float, int]] = []
    monkeypatch.setattr("sao.data.files.open.held_out_samples", lambda names, labels, share, seed: passed.append((share, seed)))
    np.save(tmp_path / "x.npy", np.zeros((20, 8, 8), np.uint8))
    with pytest.raises(TypeError):
        open_config_data(Config(seed=3, data=Data(source=str(tmp_path / "x.npy"), held_out=0.25)))
    assert passed == [(0.25, 3)]


@pytest.mark.parametrize("read", [open_path, open_for_embedding])
@pytest.mark.parametrize("deep", [False, True])
def test_other_data_is_read_as_the_run_read_its_own(asked, tmp_path, read, deep):
    config = Config(data=Data(source="x", **OF_DATA))
    span = PixelRange.everywhere(0, 9, 5)
    facts = DataFacts("x", (5, 16, 16), 9, pixel_range=span.to_dict() if deep else None)
    found = asked(read, tmp_path, **reading_of(config, facts))
    assert (found.size, found.channels, found.bits) == (16, 5, 16 if deep else 8)
    assert (found.fit, found.axes, found.pages, found.pixel_range) == ("pad", "NCHW", "images", span if deep else None)
    assert (found.crop, found.strict) == (None, False)
    scale = Standardiser.fit(np.random.default_rng(0).normal(size=(9, 2)), ["a", "b"], 4.0, 0)
    table = DataFacts("x", (2,), 9, standardiser=scale.to_dict())
    assert asked(read, tmp_path, **reading_of(config, table)).columns == ("a", "b")
