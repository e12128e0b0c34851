"""What folders mean, and which samples are held out."""

import numpy as np
import pytest

from sao.data.split import encode_labels, held_out_rows, labels_or_note, layout_of
from sao.errors import InputError

PLAIN, BY_CLASS = [0, 1, 7, 10, 13, 15], [2, 3, 5, 6, 10, 13]


def parts(*names: str, **options) -> tuple[list[int], list[int]] | None:
    found = layout_of(names, True, **options).splits
    return None if found is None else (found[0].tolist(), found[1].tolist())


def test_train_and_test_folders_are_the_parts_and_what_lies_beside_is_left_out():
    names = ("set/train/a/1.png", "set/train/b/2.png", "set/test/a/3.png", "set/extra/4.png", "set/5.png")
    layout = layout_of(names, True)
    assert parts(*names) == ([0, 1], [2])
    assert layout.labels is not None
    assert layout.labels.names == ["a", "b"]
    assert layout.labels.codes.tolist() == [0, 1, 0, -1, -1]
    assert layout.notes[0].endswith("training and test set; 2 images beside them were left out")


@pytest.mark.parametrize("name", ["test", "val", "valid", "validation", "Test", "VAL"])
def test_a_held_out_part_has_many_names(name):
    assert parts("train/1.png", f"{name}/2.png") == ([0], [1])


def test_of_several_held_out_parts_the_test_set_is_scored():
    assert parts("train/1.png", "val/2.png", "validation/3.png", "test/4.png", "valid/5.png") == ([0], [3])
    assert parts("train/1.png", "validation/2.png", "val/3.png", "valid/4.png") == ([0], [2])


def test_a_file_named_like_a_folder_is_no_part():
    assert parts("train", "test", "other/1.png") is None
    assert parts("train/1.png", "test") is None


def test_without_a_split_every_image_keeps_its_class():
    names = ("train/a/1.png", "test/b/2.png", "test/a/3.png")
    layout = layout_of(names, True, split=False)
    assert layout.splits is None
    assert layout.labels is not None
    assert layout.labels.codes.tolist() == [0, 1, 0]
    assert layout.notes == ["2 class subfolders were found; they are used for evaluation only, never for training"]


def test_shared_folders_are_passed_over_and_one_class_is_none():
    assert layout_of(("x/y/a/1.png", "x/y/b/2.png"), True).labels is not None
    assert layout_of(("x/y/a/1.png", "x/y/a/2.png"), True).labels is None
    assert layout_of(("a/1.png", "b/2.png"), use_labels=False).labels is None


def test_images_beside_subfolders_make_no_classes():
    layout = layout_of(("a/1.png", "b/2.png", "3.png"), True)
    assert layout.labels is None
    assert layout.notes == ["some images lie in subfolders and some do not, so the subfolders were not taken for classes"]


def test_labels_that_are_incomplete_or_no_classes_are_not_used():
    assert labels_or_note(np.array(["a", "", "a", "b"]))[1] == ["the labels were not used: 1 of 4 samples have none"]
    assert labels_or_note(np.array([0.5, np.nan, 0.5]))[1] == ["the labels were not used: 1 of 3 samples have none"]
    assert labels_or_note(np.array([1, 2, 3]))[0] is None
    assert labels_or_note(np.array([1, 2, 1, 2]))[0] is not None


def test_classes_are_numbered_in_the_order_of_numbers_also_when_written_as_text():
    found = encode_labels(["10", "9", "10", "2"])
    assert (found.names, found.codes.tolist()) == (["2", "9", "10"], [2, 1, 2, 0])
    assert encode_labels(np.array([2.0, 1.0])).names == ["1", "2"]
    assert encode_labels(np.array([2.5, 1.0])).names == ["1.0", "2.5"]
    assert encode_labels(np.array([b"b", b"a"])).names == ["a", "b"]


def test_the_rows_that_are_held_out_are_pinned():
    """A resumed run, and every published number, depends on them."""
    assert held_out_rows(20, None, 0.3, 5)[1].tolist() == PLAIN
    assert held_out_rows(20, np.arange(20) % 3, 0.3, 5)[1].tolist() == BY_CLASS
    assert held_out_rows(20, None, 0.3, 2**63 + 5)[1].tolist() == PLAIN  # a seed of any size


def test_every_class_gives_its_share_and_keeps_a_training_sample():
    labels = np.repeat([0, 1, 2], [60, 30, 10])
    train, test = held_out_rows(100, labels, 0.2, 0)
    assert np.bincount(labels[test]).tolist() == [12, 6, 2]
    assert sorted([*train, *test]) == list(range(100))
    alone = np.array([0, 0, 0, 0, 1])
    for seed in range(8):
        assert 1 in alone[held_out_rows(5, alone, 0.5, seed)[0]]
    assert len(held_out_rows(10, np.arange(10), 0.1, 0)[1]) == 1  # where every class has a single sample


@pytest.mark.parametrize("fraction", [0, 1, -0.5, 2])
def test_an_impossible_fraction_is_refused(fraction):
    with pytest.raises(InputError, match=r"held_out .* is not possible: give a fraction between 0 and 1"):
        held_out_rows(10, None, fraction, 0)
