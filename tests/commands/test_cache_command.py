"""sao cache shows what is kept and removes it, and nothing else."""

import numpy as np
import pytest
import tiny
from filelock import FileLock

from sao.cli.main import main
from sao.data.dataset import Vectors
from sao.data.files.open import open_path
from sao.search.index import stored_features


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """With one entry, what a killed run left, and somebody's files."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("SAO_CACHE", str(folder))
    open_path(tiny.draw_pictures(tmp_path / "data", 12, (9, 9)), workers=1)
    (folder / f".writing-{'0' * 16}").mkdir()
    (folder / f".writing-{'0' * 16}" / "pixels.npy").write_bytes(bytes(1000))
    (folder / "datasets").mkdir()
    (folder / "datasets" / "mnist.npz").write_bytes(b"mine")
    (folder / f"{'0' * 16}-{'0' * 32}").mkdir()
    (folder / f"{'0' * 16}-{'0' * 32}" / "thesis.txt").write_bytes(b"mine")
    return folder


def test_it_shows_what_is_kept(cache, capsys):
    said = tiny.said(capsys, "cache")
    assert said.startswith(f"{cache} (SAO_CACHE): 2 entries, 0.0 MB\n")
    assert "12 images of 8x8, grey" in said
    assert "unfinished" in said
    assert "thesis" not in said


def test_it_clears_what_sao_wrote_and_nothing_else(cache, capsys):
    assert "removed 0 entries" in tiny.said(capsys, "cache", "--clear", "--older-than", "1")
    with FileLock(cache / f".writing-{'0' * 16}" / "lock"):  # its writer lives
        said = tiny.said(capsys, "cache", "--clear")
    assert "removed 1 entry" in said
    assert "1 entry stayed: another process is writing there" in said
    assert main(["cache", "--clear"]) == 0
    assert list(tiny.contents(cache)) == [f"{'0' * 16}-{'0' * 32}/thesis.txt", "datasets/mnist.npz"]
    assert "0 entries, 0.0 MB" in tiny.said(capsys, "cache")


def test_features_of_a_search_are_shown_and_cleared_too(cache, capsys):
    """All that sao keeps there, whoever made it, and no file of another name."""
    stored_features(Vectors(np.zeros((4, 2), np.float32)), "weights", lambda: np.ones((4, 3), np.float32))
    (cache / "features-mine.npz").write_bytes(b"mine")
    (cache / f"features-{'0' * 32}.npz").symlink_to(cache / "features-mine.npz")
    said = tiny.said(capsys, "cache")
    assert "3 entries" in said
    assert said.count("features of a search") == 1
    assert "removed 3 entries" in tiny.said(capsys, "cache", "--clear")
    assert sorted(path.name for path in cache.iterdir()) == [
        f"{'0' * 16}-{'0' * 32}", "datasets", f"features-{'0' * 32}.npz", "features-mine.npz"
    ]  # fmt: skip


def test_a_cache_that_is_not_there_is_empty(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SAO_CACHE", str(tmp_path / "nowhere"))
    assert main(["cache"]) == 0
    assert "0 entries" in tiny.said(capsys, "cache", "--clear")


@pytest.mark.parametrize("words", [["--older-than", "3"], ["--clear", "--older-than", "-1"], ["--clear", "--older-than", "x"]])
def test_bad_input_is_one_line(cache, capsys, words):
    before = sorted(cache.rglob("*"))
    tiny.refused(capsys, "cache", *words)
    assert sorted(cache.rglob("*")) == before
