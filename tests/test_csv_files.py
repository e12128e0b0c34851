"""Tables that a spreadsheet opens compute nothing, and give the original names back."""

import csv

import pytest

from sao.data.files.tables import read_table
from sao.runtime.csv_files import original, tsv_text, write_csv

FORMULAS = ["=cmd|' /C calc'!A0", "+1+1", "-x", "@sum", "\tx", "\rx", "＝1+1"]
NAMES = [*FORMULAS, "'=x", "''-y", "'", "'quoted'", "a=b", "ü 猫.png", "-5", "1e3", ""]


@pytest.fixture
def table(tmp_path):
    write_csv(tmp_path / "t.csv", ["name", "label", "f0"], ((name, name, -1.5 + i) for i, name in enumerate(NAMES)))
    return tmp_path / "t.csv"


def cells(path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.reader(file))[1:]


def test_no_cell_is_a_formula_and_numbers_stay_numbers(table):
    assert table.read_bytes().startswith(b"\xef\xbb\xbf")
    for (name, _, number), given in zip(cells(table), NAMES, strict=True):
        assert name in ("-5", "1e3") or not name.startswith(("=", "+", "-", "@", "\t", "\r", "＝"))
        assert original(name) == given
        float(number)
    assert cells(table)[0][2] == "-1.5"


def test_a_feature_that_is_given_as_text_stays_a_number(tmp_path):
    numbers, others = ["-0.0628476292", "+1", "-1e-09", "-.5"], ["-inf", "-1-1", "+1\n"]
    write_csv(tmp_path / "t.csv", ["f0"], [[text] for text in numbers + others])
    assert [row[0] for row in cells(tmp_path / "t.csv")] == [*numbers, *(f"'{text}" for text in others)]


def test_the_reader_of_tables_gives_the_original_labels(tmp_path):
    labels = ["=a", "-b", "'=c", "@d", "ü"]
    write_csv(tmp_path / "t.csv", ["label", "f0", "f1"], ((label, i, -i) for i, label in enumerate(labels)))
    table = read_table(tmp_path / "t.csv")
    assert table.labels is not None
    assert list(table.labels) == labels
    assert list(table.columns) == ["f0", "f1"]


def test_the_list_of_skipped_items_is_such_a_table_too():
    assert tsv_text([("=x.png", "damaged"), ("b.png", "empty")]) == "\ufeff'=x.png\tdamaged\nb.png\tempty\n"
