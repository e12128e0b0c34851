"""Tables: what is a number, what is a label, what is left out; and the transform that new rows need."""

import csv
import json

import numpy as np
import pandas as pd
import pytest
from opening import names, numbers, parts, refused, total, vectors

from sao.data.dataset import Standardiser
from sao.data.files.objects import readable
from sao.data.files.open import open_for_embedding, open_path
from sao.data.files.tables import read_table
from sao.errors import InputError


@pytest.fixture
def rows():
    drawn = np.random.default_rng(0).normal(size=(60, 2))
    return [[f"{a:.6f}", f"{b:.6f}", f"id{i}", "5", "cat" if a > 0 else "dog"] for i, (a, b) in enumerate(drawn)]


HEADER = ["width", "height", "name", "same", "class"]


def write(path, rows, header: list[str] | None = HEADER, **options):
    with open(path, "w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, **options).writerows([header, *rows] if header else rows)
    return path


def test_numbers_labels_text_and_constants(tmp_path, rows):
    opened = open_path(write(tmp_path / "a.csv", rows))
    train = vectors(opened.dataset.train)
    assert train.shape == (2,)
    assert train.class_names == ["cat", "dog"]
    assert opened.skipped == []
    notes = " | ".join(opened.notes)
    for fragment in ("they are text: name", "one value in all training rows: same", "2 classes", "median distance"):
        assert fragment in notes
    bare = open_path(tmp_path / "a.csv", use_labels=False)
    assert (bare.dataset.train.labels, bare.dataset.train.shape) == (None, (2,))  # the label must not become an input instead
    assert any("class was left out" in note for note in bare.notes)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("header", [HEADER, None])
def test_delimiters_and_missing_headers(tmp_path, rows, delimiter, header):
    opened = open_path(write(tmp_path / "a.csv", rows, header, delimiter=delimiter))
    assert total(opened) == 60
    assert opened.dataset.train.shape == (2,)


def test_bad_rows_are_skipped_and_named(tmp_path, rows):
    rows[3][0], rows[5][1], rows[8][0], rows[9][1] = "nan", "inf", "oops", ""
    rows[11][0] = "1e300"
    rows[12] = rows[12][:3]
    opened = open_path(write(tmp_path / "a.csv", rows))
    assert [item.name for item in opened.skipped] == [f"row {i}" for i in (3, 5, 8, 9, 11, 12)]
    assert opened.skipped[0].reason == "width is not a finite number"
    assert total(opened) == 54
    with pytest.raises(InputError, match="row 3"):
        open_path(tmp_path / "a.csv", strict=True)


def test_a_column_that_is_mostly_empty_is_dropped_instead_of_its_rows(tmp_path, rows):
    for i, row in enumerate(rows):
        row[3] = str(i) if i < 20 else ""
    opened = open_path(write(tmp_path / "a.csv", rows))
    assert opened.skipped == []
    assert any("most of their cells are empty: same" in note for note in opened.notes)


def test_parquet_equals_csv(tmp_path, rows):
    table = pd.DataFrame(rows, columns=HEADER).astype({"width": float, "height": float, "same": int, "class": "category"})
    table.loc[4, "width"] = None
    table.to_parquet(tmp_path / "a.parquet")
    rows[4][0] = ""
    one, other = open_path(tmp_path / "a.parquet"), open_path(write(tmp_path / "a.csv", rows))
    for first, second in zip(parts(one), parts(other), strict=True):
        np.testing.assert_allclose(first.inputs(slice(None)), second.inputs(slice(None)), rtol=1e-6)
        np.testing.assert_array_equal(first.labels, second.labels)
    assert one.skipped == other.skipped
    assert one.notes == other.notes


def test_new_rows_are_embedded_with_the_same_transform(tmp_path, rows):
    opened = open_path(write(tmp_path / "a.csv", rows))
    assert opened.standardiser is not None
    stored = json.loads(json.dumps(opened.standardiser.to_dict()))
    standardiser = Standardiser.from_dict(stored)
    assert standardiser == opened.standardiser
    # Other column order, another constant, one row less: columns go by name.
    turned = [[row[1], "9", row[4], row[0]] for row in rows[:-1]]
    path = write(tmp_path / "b.csv", turned, ["height", "same", "class", "width"])
    samples, skipped, _ = open_for_embedding(path, shape=(2,), standardiser=standardiser)
    assert skipped == []
    assert samples.class_names == ["cat", "dog"]
    _, here, which = np.intersect1d(names(samples), names(opened.dataset.train), return_indices=True)
    assert len(here) >= 53
    np.testing.assert_allclose(samples.inputs(here), opened.dataset.train.inputs(which), rtol=1e-6)
    other = write(tmp_path / "c.csv", rows, ["width", "x", "name", "same", "class"])
    with pytest.raises(InputError, match="lacks the column height"):
        open_for_embedding(other, shape=(2,), standardiser=standardiser)
    with pytest.raises(InputError, match="expects"):
        open_for_embedding(tmp_path / "a.csv", shape=(5,), standardiser=standardiser)


def test_encodings_and_strange_bytes(tmp_path, rows):
    text = "\ufeffwidth,height,naïve\n" + "".join(f"{row[0]},{row[1]},é\n" for row in rows)
    (tmp_path / "utf8.csv").write_text(text, encoding="utf-8")
    (tmp_path / "utf16.csv").write_text(text[1:], encoding="utf-16")
    (tmp_path / "latin.csv").write_bytes(text[1:].encode("latin-1"))
    for name in ("utf8", "utf16", "latin"):
        opened = open_path(tmp_path / f"{name}.csv")
        assert opened.standardiser is not None
        assert opened.standardiser.columns == ("width", "height")
        json.dumps(opened.notes).encode()
        "".join(opened.notes).encode("utf-8")


def test_repeated_and_missing_column_names_are_told_apart(tmp_path):
    path = write(tmp_path / "a.csv", [[i, i * i, i**3] for i in range(20)], ["a", "a", ""])
    assert read_table(path).columns == ["a", "a (2)", "column 2"]


NO_DATA = ["", "\n\n\n", "a,b\n", "\0" * 100, "PAR1 but not really", "a\n" + "9" * 200_000 + "\n", 'a,b\n"' + "1,2\n" * 30]
NO_DATA += ["a,b\n" + row * n for row, n in (("x,y\n", 30), ("1,2\n", 30), ("1,2\n", 5), ("nan,1\n", 30))]


@pytest.mark.parametrize("content", NO_DATA)
def test_tables_that_are_no_data_are_one_clear_line(tmp_path, content):
    (tmp_path / "a.csv").write_text(content)
    with refused():
        open_path(tmp_path / "a.csv")


# --- the scale is fitted to training rows: other held-out rows leave it, and every training input, as they were -------------

KINDS = {
    "csv": lambda path, values: pd.DataFrame(values, columns=list("abc")).to_csv(path, index=False),
    "parquet": lambda path, values: pd.DataFrame(values, columns=list("abc")).to_parquet(path),
    "npy": np.save,
}


@pytest.mark.parametrize("kind", [*KINDS, "in memory"])
def test_held_out_rows_have_no_part_in_the_scale(kind, tmp_path):
    def opened(name: str):
        if kind == "in memory":
            return open_path(readable(values))
        KINDS[kind](tmp_path / f"{name}.{kind}", values)
        return open_path(tmp_path / f"{name}.{kind}")

    values = np.random.default_rng(0).normal(3, 2, (60, 3))
    values[:, 2] = 5.0  # it varies in no training row
    first = opened("first")
    held_out = numbers(first.dataset.test)
    assert len(held_out) == 6
    values[held_out] = 1000 + 300 * np.random.default_rng(1).normal(size=(6, 3))
    second, scale = opened("second"), first.standardiser
    assert second.dataset.test.names == first.dataset.test.names
    assert scale is not None
    assert scale == second.standardiser
    assert len(scale.columns) == 2
    np.testing.assert_array_equal(first.dataset.train.inputs(slice(None)), second.dataset.train.inputs(slice(None)))
    # They are seen in that scale all the same.
    expected = (values[held_out][:, :2] - scale.mean) / scale.std * scale.factor
    np.testing.assert_allclose(second.dataset.test.inputs(slice(None)), expected, rtol=1e-5)
    training = np.delete(values, held_out, axis=0)[:, :2]
    np.testing.assert_allclose(scale.mean, training.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(scale.std, training.std(axis=0), rtol=1e-12)
