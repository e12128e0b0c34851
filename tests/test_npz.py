"""The one reader of .npz files: a hostile or damaged file is one line, whichever door it comes through."""

from pathlib import Path

import numpy as np
import pytest

from sao.data.files import npz
from sao.data.files.npz import npz_names, read_npz
from sao.data.files.open import open_data, open_path
from sao.errors import InputError
from sao.evaluation.features import load_features

DOORS = {
    "a path": lambda path: open_path(path, cache_folder=path.parent / "cache"),
    "a named data set": lambda path: open_data("mnist", folder=str(path.parent)),
    "features": load_features,
}


def test_what_was_saved_comes_back(tmp_path):
    arrays = {"x": np.arange(6).reshape(2, 3), "names": np.array(["a", "ß"]), "one": np.float32(3)}
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    assert npz_names(tmp_path / "a.npz") == list(arrays)
    read = read_npz(tmp_path / "a.npz")
    assert all(np.array_equal(read[name], arrays[name]) for name in arrays)
    assert list(read_npz(tmp_path / "a.npz", ("names", "absent"))) == ["names"]


@pytest.mark.parametrize("door", DOORS)
def test_a_file_that_unpacks_to_very_much_is_refused_before_it_does(tmp_path, monkeypatch, door):
    monkeypatch.setattr(npz, "ALWAYS_ALLOWED_BYTES", 1000)
    images = np.zeros((5000, 8, 8), np.uint8)
    np.savez_compressed(tmp_path / "mnist.npz", x_train=images, x_test=images)
    with pytest.raises(InputError, match=r"mnist.npz unpacks to more than 200 times its size"):
        DOORS[door](tmp_path / "mnist.npz")


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("content", [b"PK\x03\x04 cut short", b"PK"])
def test_a_damaged_file_is_one_line(tmp_path: Path, door, content):
    (tmp_path / "mnist.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"mnist.npz cannot be read as an .npz of plain arrays") as refusal:
        DOORS[door](tmp_path / "mnist.npz")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("door", DOORS)
def test_nothing_is_unpickled(tmp_path, door):
    np.savez(tmp_path / "mnist.npz", x_train=np.array([{}]), x_test=np.array([{}]), features=np.array([{}]))
    with pytest.raises(InputError, match="without pickled objects"):
        DOORS[door](tmp_path / "mnist.npz")
