"""What a run knows of its data is enough to tell other data from it."""

from dataclasses import replace

import numpy as np
import pytest
import tiny

from sao.data.dataset import Dataset, Images
from sao.training.data_facts import ABSOLUTE, GLIMPSED_ROWS, DataFacts


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
