"""The files of a study may be damaged or a stranger's: each is one line, and no link inside a run is followed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny

from sao.errors import InputError
from sao.reproduce.figure1 import _numbers
from sao.reproduce.rows import Row, StudyRun
from sao.reproduce.study import read_scores
from sao.reproduce.table import read_result
from sao.reproduce.table1 import table1

METRIC = {"name": "svm", "value": 0.5, "std": None, "protocol": {}}
DEEP = "[" * 100_000


def result_of(folder: Path) -> dict[str, float]:
    run = StudyRun(Row("x", "x"), "digits", tiny.config(), folder, folder)
    return {name: metric.value for name, metric in read_result(run).items()}


def numbers_of(folder: Path) -> dict[str, float]:
    return _numbers(folder, None, None, 0)  # pyright: ignore[reportArgumentType]  (nothing is measured where there is a file)


READERS: list[Callable[[Path], dict[str, float]]] = [result_of, numbers_of]


@pytest.mark.parametrize("reader", READERS)
def test_numbers_are_those_of_the_file_without_what_was_not_measured(reader, tmp_path):
    (tmp_path / "eval.json").write_text(json.dumps([METRIC, {**METRIC, "name": "kmeans", "value": None}]))
    assert reader(tmp_path) == {"svm": 0.5}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "content",
    [
        "",
        '[{"name": "svm"',
        json.dumps([METRIC]).replace("0.5", "NaN"),
        json.dumps({"svm": 0.5}),
        json.dumps([{"name": "svm"}]),
        json.dumps([{**METRIC, "value": "0.5"}]),
        DEEP,
    ],
)
def test_a_damaged_evaluation_of_a_run_is_one_line(reader, content, tmp_path):
    (tmp_path / "eval.json").write_text(content)
    with pytest.raises(InputError, match=r"eval\.json is there and holds no metrics: remove it") as caught:
        reader(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("reader", READERS)
def test_a_link_in_place_of_an_evaluation_is_not_followed(reader, tmp_path):
    (tmp_path / "elsewhere.json").write_text(json.dumps([METRIC]))
    (tmp_path / "run").mkdir()
    (tmp_path / "run/eval.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(InputError, match=r"eval\.json is a symbolic link"):
        reader(tmp_path / "run")


@pytest.mark.parametrize("content", ["", DEEP, "[]", '{"search": [{"row": "x", "data": "y", "scores": {"1": NaN}}]}'])
def test_rates_of_a_damaged_table_are_one_line(content, tmp_path):
    (tmp_path / "table1.json").write_text(content)
    with pytest.raises(InputError, match=r"holds no search for learning rates: give the table1\.json of a finished table"):
        read_scores(tmp_path / "table1.json", table1("cpu"))


def test_rates_may_be_named_by_a_link_of_a_persons_own(tmp_path):
    table = table1("cpu")
    row = next(row for row in table.rows if row.rates)
    scores = dict.fromkeys(row.rates, 0.5)
    data = next(iter(table.presets))
    (tmp_path / "real.json").write_text(json.dumps({"search": [{"row": row.name, "data": data, "scores": scores}]}))
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    assert read_scores(tmp_path / "link.json", table) == {(row.name, data): scores}
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_scores(tmp_path / "none.json", table)
