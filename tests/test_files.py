"""What is written appears whole or not at all."""

import os
import re
from pathlib import Path

import pytest

from sao.runtime.files import UNFINISHED, write_text, written, written_folder


@pytest.fixture
def target(tmp_path):
    write_text(tmp_path / "a.txt", "old")
    return tmp_path / "a.txt"


def test_a_file_appears_when_it_is_whole(target):
    with written(target) as temporary:
        temporary.write_text("new")
        assert target.read_text() == "old"
        assert re.fullmatch(UNFINISHED, temporary.name)
    assert target.read_text() == "new"
    assert os.listdir(target.parent) == ["a.txt"]


def half_of_it(path: Path) -> None:
    path.write_text("half")
    raise FileNotFoundError


def test_a_file_that_fails_leaves_the_old_one(target):
    with pytest.raises(FileNotFoundError), written(target) as temporary:
        half_of_it(temporary)
    assert target.read_text() == "old"
    assert os.listdir(target.parent) == ["a.txt"]


def test_a_folder_appears_when_it_is_whole(tmp_path):
    target = tmp_path / "below" / "results.v2"
    with written_folder(target) as temporary:
        (temporary / "one").write_text("1")
        assert not target.exists()
        assert re.fullmatch(UNFINISHED, temporary.name)
    assert (target / "one").read_text() == "1"
    assert os.listdir(target.parent) == ["results.v2"]


def test_a_folder_that_fails_leaves_nothing(tmp_path):
    target = tmp_path / "results"
    with pytest.raises(FileNotFoundError), written_folder(target) as temporary:
        (temporary / "missing" / "one").write_text("1")
    assert os.listdir(tmp_path) == []


def test_a_folder_takes_the_place_of_an_empty_one_and_of_no_other(tmp_path):
    target = tmp_path / "results"
    target.mkdir()
    with written_folder(target) as temporary:
        (temporary / "one").write_text("1")
    with pytest.raises(OSError, match="not empty"), written_folder(target) as temporary:
        (temporary / "two").write_text("2")
    assert os.listdir(target) == ["one"]
    assert os.listdir(tmp_path) == ["results"]


def test_of_a_folder_that_is_replaced_nothing_is_left(tmp_path):
    write_text(tmp_path / "results" / "old", "1")
    with written_folder(tmp_path / "results", replace=True) as temporary:
        (temporary / "new").write_text("2")
        assert os.listdir(tmp_path / "results") == ["old"]
    assert os.listdir(tmp_path / "results") == ["new"]
    assert os.listdir(tmp_path) == ["results"]
