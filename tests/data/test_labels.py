"""Tables of name,label: whom they name, and what is said of the rest."""

import numpy as np
import pytest
from opening import labels

from sao.data.dataset import Dataset, Images
from sao.data.labels import NO_LABEL, label_dataset, parsed_labels, read_labels, with_class_for_unlabelled
from sao.errors import InputError

NAMES = ["a/1.png", "a/2.png", "b/2.png", "ä.png"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_names_are_paths_or_file_names_that_are_there_once(tmp_path, encoding, delimiter):
    rows = [("Name", "Label"), ("a/1.png", "cat"), ("./b/2.png", "dog"), ("a\u0308.png", "cat")]
    (tmp_path / "l.csv").write_text("\r\n".join(delimiter.join(row) for row in rows), encoding=encoding)
    found = read_labels(tmp_path / "l.csv").assign(NAMES)
    assert found.codes.tolist() == [0, -1, 1, 0]
    assert found.class_names == ["cat", "dog"]
    assert read_labels(tmp_path / "l.csv").assign(["x/1.png", "b/2.png"]).codes.tolist() == [-1, 0]


def test_one_line_counts_what_was_not_used():
    text = "name,label\n1.png,x\n1.png,x\na/2.png,x\na/2.png,y\n2.png,z\nb/2.png,\nnowhere.png,x\n"
    found = parsed_labels(text, "l.csv").assign(NAMES)
    assert found.codes.tolist() == [0, -1, -1, -1]
    assert found.note == (
        "l.csv: 1 of 4 samples have a label, of 1 class; 3 have none; "
        "1 name is unknown (the first: nowhere.png); 1 file name is in several folders: write their paths; "
        "2 names come more than once, 1 of them with different labels and left out"
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"file,kind\n1.png,x\n", "l.csv needs the columns name and label, and has file, kind"),
        (b"", "needs the columns name and label, and has none"),
        (b"name,label\n1.png,\n", "has no row with a name and a label"),
        (b"name,label\n\xff.png,x\n", "is not UTF-8"),
    ],
)
def test_what_is_no_table_of_labels_is_one_line(tmp_path, content, said):
    (tmp_path / "l.csv").write_bytes(content)
    with pytest.raises(InputError, match=said):
        read_labels(tmp_path / "l.csv")
    with pytest.raises(InputError, match="there is no file"):
        read_labels(tmp_path / "other.csv")


def test_labels_of_other_data_are_refused():
    with pytest.raises(InputError, match=r"l\.csv names no sample of the data \(the first: q\.png\); names there are like a/1"):
        parsed_labels("name,label\nq.png,x\n", "l.csv").assign(NAMES)


def test_samples_without_a_label_are_a_class_of_their_own_in_pictures():
    four = Images(np.zeros((4, 8, 8, 1), np.uint8), np.array([1, 1, 0, 1]), NAMES, ["folder", "names"])
    halves = Dataset("four", four.select(np.array([0, 1])), four.select(np.array([2, 3])))
    dataset, _ = label_dataset(halves, parsed_labels("name,label\n1.png,x\nb/2.png,y\n", "l.csv"))
    assert labels(dataset.train).tolist() == [0, -1]
    shown = with_class_for_unlabelled(dataset)
    assert labels(shown.test).tolist() == [1, 2]
    assert shown.test.class_names == ["x", "y", NO_LABEL]
