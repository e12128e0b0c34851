"""Samples are checked; selected rows read like the copy that they replace; the scale of vectors."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch

from sao.data import dataset
from sao.data.dataset import Frames, Images, PixelRange, SelectedRows, Standardiser, Vectors, joined, select_rows
from sao.errors import InputError

ARRAY = np.random.default_rng(0).integers(0, 256, (20, 4, 4, 3), dtype=np.uint8)
CHOSEN = np.array([3, 19, 0, 7, 8])


@pytest.mark.parametrize("key", [2, slice(1, 4), slice(None), np.array([4, 0, 0]), (slice(None), 1), (0, 2, 1), CHOSEN > 5])
def test_indexing(key):
    selected = SelectedRows(ARRAY, CHOSEN)
    np.testing.assert_array_equal(selected[key], ARRAY[CHOSEN][key])


def test_it_can_be_measured_and_turned_into_an_array():
    selected, copy = SelectedRows(ARRAY, CHOSEN), ARRAY[CHOSEN]
    found = (len(selected), selected.shape, selected.ndim, selected.dtype, selected.nbytes)
    assert found == (5, copy.shape, 4, np.uint8, copy.nbytes)
    np.testing.assert_array_equal(np.asarray(selected), copy)
    np.testing.assert_array_equal(np.concatenate([selected, selected]), np.concatenate([copy, copy]))  # pyright: ignore
    assert torch.equal(torch.as_tensor(np.asarray(selected, np.float32)), torch.from_numpy(copy).float())


def test_few_rows_are_copied_a_run_is_a_view_and_many_are_an_index(monkeypatch):
    assert isinstance(select_rows(ARRAY, CHOSEN), np.ndarray)
    assert np.shares_memory(select_rows(ARRAY, np.arange(4, 9)), ARRAY)  # pyright: ignore[reportArgumentType]
    monkeypatch.setattr(dataset, "IN_MEMORY_BYTES", 3 * ARRAY[0].nbytes)
    many = select_rows(ARRAY, CHOSEN)
    assert isinstance(many, SelectedRows)
    again = select_rows(many, np.array([4, 2, 1, 0]))
    assert isinstance(again, SelectedRows)
    assert again.array is ARRAY
    np.testing.assert_array_equal(again[:], ARRAY[CHOSEN][[4, 2, 1, 0]])
    np.testing.assert_array_equal(np.asarray(select_rows(many, CHOSEN > 5)), ARRAY[CHOSEN][CHOSEN > 5])


def test_images_of_an_index_are_those_of_the_copy(monkeypatch):
    monkeypatch.setattr(dataset, "IN_MEMORY_BYTES", 1)
    whole = Images(ARRAY, np.arange(20), [str(i) for i in range(20)])
    part = whole.select(CHOSEN)
    assert isinstance(part.pixels, SelectedRows)
    assert (part.shape, len(part), part.names) == ((3, 4, 4), 5, ["3", "19", "0", "7", "8"])
    assert torch.equal(part.inputs(slice(1, 3)), whole.inputs(CHOSEN[1:3]))


LEVELS = PixelRange.everywhere(0, 60_000, 3)
NAMED: dict[str, Any] = {"labels": np.arange(20) % 4, "names": [f"n{i}" for i in range(20)], "class_names": list("abcd")}
WHOLE = [
    Images(ARRAY, **NAMED, frames=Frames(ARRAY.repeat(2, 1).repeat(2, 2), np.linspace(0.5, 2, 20, dtype=np.float32), 0.5)),
    Images(ARRAY.astype(np.uint16), **NAMED, levels=LEVELS),
    Vectors(ARRAY.reshape(20, -1).astype(np.float32), **NAMED),
]


@pytest.mark.parametrize("whole", WHOLE)
@pytest.mark.parametrize("rows", [CHOSEN, np.arange(3, 9), np.arange(20) % 3 == 0])
def test_samples_that_are_selected_keep_everything_that_is_known_of_them(whole, rows):
    part = whole.select(rows)
    for field in fields(whole):
        before, after = getattr(whole, field.name), getattr(part, field.name)
        if isinstance(before, Frames):
            np.testing.assert_array_equal(after.pixels, np.asarray(before.pixels)[rows])
            np.testing.assert_array_equal(after.aspects, before.aspects[rows])
            assert after.crop == before.crop
        elif field.name in ("class_names", "levels"):
            assert after == before
        elif before is not None:
            np.testing.assert_array_equal(np.asarray(after), np.asarray(before)[rows])


@pytest.mark.parametrize("whole", WHOLE[1:])
def test_two_parts_that_are_joined_again_are_the_whole(whole):
    again = joined(whole.select(np.arange(7)), whole.select(np.arange(7, 20)))
    assert type(again) is type(whole)
    for field in fields(whole):
        before, after = getattr(whole, field.name), getattr(again, field.name)
        np.testing.assert_array_equal(np.asarray(after), np.asarray(before))


def test_samples_are_checked():
    with pytest.raises(InputError, match="3 samples but 2 labels"):
        Images(np.zeros((3, 8, 8, 1), np.uint8), np.zeros(2, int))
    with pytest.raises(InputError, match="3 samples but 1 names"):
        Vectors(np.zeros((3, 2), np.float32), names=["a"])
    with pytest.raises(InputError, match="float32"):
        Vectors(np.zeros((3, 2)))


def test_the_standardiser_takes_all_columns_or_the_kept_ones():
    rows = np.random.default_rng(0).normal(size=(50, 3))
    rows[:, 1] = 4
    standardiser = Standardiser.fit(rows, ["a", "b", "c"], 16.0, 0)
    np.testing.assert_array_equal(standardiser.apply(rows), standardiser.apply(rows[:, [0, 2]]))
    with pytest.raises(InputError):
        standardiser.apply(rows[:, :1])
