"""Arrays in .npy and .npz: images of any number type, vectors, labels, and never a pickle."""

import os
import zipfile

import numpy as np
import pytest
from opening import embedded_images, images, labels, numbers, parts, refused, vectors

from sao.data import dataset
from sao.data.dataset import SelectedRows
from sao.data.files import arrays as reading
from sao.data.files.open import open_for_embedding, open_path
from sao.errors import InputError


@pytest.fixture
def pixels():
    return np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3), dtype=np.uint8)


def saved(tmp_path, array, name="x.npy"):
    np.save(tmp_path / name, array)
    return tmp_path / name


def all_pixels(opened):
    order = np.argsort([number for part in parts(opened) for number in numbers(part)])
    return np.concatenate([images(part).pixels for part in parts(opened)])[order]


def test_uint8_images_are_taken_as_they_are(tmp_path, pixels):
    opened = open_path(saved(tmp_path, pixels))
    np.testing.assert_array_equal(all_pixels(opened), pixels)
    assert opened.dataset.train.labels is None
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (lambda x: (x / 255).astype(np.float32), "in [0, 1]"),
        (lambda x: x / 127.5 - 1, "in [-1, 1]"),
        (lambda x: x.astype(np.float64), "in [0, 255]"),
        (lambda x: x.astype(np.int64), "in [0, 255]"),
        (lambda x: np.moveaxis(x, -1, 1), "(n, c, h, w)"),
        (lambda x: np.concatenate([x, np.full_like(x[..., :1], 255)], -1), "composited on white"),
    ],
)
def test_other_types_give_the_same_pixels_and_a_note(tmp_path, pixels, change, note):
    opened = open_path(saved(tmp_path, change(pixels)))
    np.testing.assert_array_equal(all_pixels(opened), pixels)
    assert any(note in sentence for sentence in [*opened.notes, *opened.reading])


def test_grey_images_and_odd_sizes(tmp_path, pixels):
    opened = open_path(saved(tmp_path, np.pad(pixels[..., 0], ((0, 0), (6, 6), (6, 8)))))
    assert opened.dataset.train.shape == (1, 16, 16)
    assert any("28x30" in note or "30x28" in note for note in opened.notes)
    bits = open_path(saved(tmp_path, pixels[..., 0] > 127))
    assert set(np.unique(all_pixels(bits))) == {0, 255}


def test_images_with_nan_are_skipped(tmp_path, pixels):
    floats = pixels / 255
    floats[3, 2, 2] = np.nan
    floats[7, 0, 0] = np.inf
    opened = open_path(saved(tmp_path, floats))
    assert [item.name for item in opened.skipped] == ["row 3", "row 7"]
    np.testing.assert_array_equal(all_pixels(opened), np.delete(pixels, [3, 7], axis=0))
    with pytest.raises(InputError, match="row 3"):
        open_path(tmp_path / "x.npy", strict=True)


@pytest.mark.parametrize(("x", "y"), ["xy", "XY"])
def test_npz_with_parts(tmp_path, pixels, x, y):
    codes = np.arange(40) % 4
    members = {f"{x}_train": pixels[:30], f"{y}_train": codes[:30], f"{x}_test": pixels[30:], f"{y}_test": codes[30:, None]}
    np.savez(tmp_path / "a.npz", **members)  # pyright: ignore[reportArgumentType]
    train, test = parts(open_path(tmp_path / "a.npz"))
    np.testing.assert_array_equal(images(train).pixels, pixels[:30])
    np.testing.assert_array_equal(images(test).pixels, pixels[30:])
    np.testing.assert_array_equal(labels(test), codes[30:])
    np.testing.assert_array_equal(embedded_images(tmp_path / "a.npz", (3, 16, 16)).pixels, pixels)


@pytest.mark.parametrize(
    ("given", "classes"),
    [([0, 1, 2, 0] * 10, ["0", "1", "2"]), (["b", "a"] * 20, ["a", "b"]), ([b"7", b"10"] * 20, ["7", "10"])],
)
def test_npz_with_one_array(tmp_path, pixels, given, classes):
    np.savez_compressed(tmp_path / "a.npz", images=pixels, labels=given)
    dataset = open_path(tmp_path / "a.npz").dataset
    assert (dataset.train.class_names, dataset.classes) == (classes, len(classes))
    np.savez(tmp_path / "b.npz", pixels)
    assert len(open_path(tmp_path / "b.npz").dataset.train) == 36


def test_labels_of_one_part_only_are_not_used(tmp_path, pixels):
    np.savez(tmp_path / "a.npz", x_train=pixels[:30], y_train=np.arange(30) % 2, x_test=pixels[30:])
    opened = open_path(tmp_path / "a.npz")
    assert opened.dataset.train.labels is None
    assert any("labels were not used" in note for note in opened.notes)


def test_vectors_are_standardised_and_scaled(tmp_path):
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(200, 5)) * [1, 10, 0.1, 5, 0] + [0, 100, 3, 0, 7]
    opened = open_path(saved(tmp_path, rows))
    train, standardiser = vectors(opened.dataset.train), opened.standardiser
    assert train.shape == (4,)
    assert standardiser is not None
    np.testing.assert_allclose(train.rows.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(train.rows.std(0), standardiser.factor, rtol=1e-4)
    distances = np.linalg.norm(train.rows[:, None] - train.rows[None], axis=-1)
    assert abs(np.median(distances[np.triu_indices(len(train), 1)]) / 16 - 1) < 0.05
    assert any("one value in all training rows: column 4" in note for note in opened.notes)
    again = vectors(open_for_embedding(tmp_path / "x.npy", shape=(4,), standardiser=standardiser)[0])
    np.testing.assert_array_equal(again.rows[numbers(opened.dataset.test)], opened.dataset.test.inputs(slice(None)))
    wider = open_path(tmp_path / "x.npy", length_scale=32.0).dataset.train
    np.testing.assert_allclose(wider.inputs(slice(None)), 2 * train.rows, rtol=1e-5)


def test_large_arrays_go_through_the_cache_in_blocks(tmp_path, pixels, monkeypatch):
    monkeypatch.setattr(dataset, "IN_MEMORY_BYTES", 1000)
    monkeypatch.setattr(reading, "CHUNK_BYTES", 5000)
    for _ in range(2):
        opened = open_path(saved(tmp_path, pixels / 255))
        assert isinstance(images(opened.dataset.train).pixels, SelectedRows)
        np.testing.assert_array_equal(all_pixels(opened), pixels)
    assert len(list((tmp_path / "cache").iterdir())) == 1  # both parts are an index of it


def test_images_that_need_no_change_are_not_copied_at_all(tmp_path, pixels, monkeypatch):
    monkeypatch.setattr(dataset, "IN_MEMORY_BYTES", 1000)
    opened = open_path(saved(tmp_path, pixels))
    for part in map(images, parts(opened)):
        assert isinstance(part.pixels, SelectedRows)
        assert isinstance(part.pixels.array, np.memmap)
        assert part.inputs(slice(0, 2)).shape == (2, 3, 16, 16)
    np.testing.assert_array_equal(all_pixels(opened), pixels)
    assert not (tmp_path / "cache").exists()


class Evil:
    def __reduce__(self):
        return os.system, ("touch unpickled",)


def test_a_pickle_is_never_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    evil = np.array([Evil()] * 20, dtype=object)
    np.save("a.npy", evil, allow_pickle=True)
    np.savez("b.npz", x=evil)
    for name in ("a.npy", "b.npz"):
        with pytest.raises(InputError, match="without pickled objects"):
            open_path(name)
    assert not os.path.exists("unpickled")


NO_DATA = [np.zeros(shape) for shape in ((30,), (30, 5, 5, 7), (30, 2, 2, 2, 2), (30, 0), (30, 5))]
NO_DATA += [np.zeros((n, 8, 8), np.uint8) for n in (9, 0)]
NO_DATA += [np.full((30, 8, 8), np.nan), np.zeros((30, 8, 8), complex), np.array(["a"] * 30), np.array(3)]


@pytest.mark.parametrize("array", NO_DATA)
def test_arrays_that_are_no_data_are_one_clear_line(tmp_path, array):
    with refused():
        open_path(saved(tmp_path, array))


def test_an_npz_that_is_no_data_is_one_clear_line(tmp_path, pixels):
    np.savez(tmp_path / "names.npz", one=pixels, two=pixels)
    np.savez(tmp_path / "labels.npz", x=pixels, y=np.zeros(7))
    np.savez(tmp_path / "shapes.npz", x_train=pixels, x_test=pixels[:, :8])
    with zipfile.ZipFile(tmp_path / "rubbish.npz", "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00v\x00{'descr': '|u1', 'shape': (99999999999, 9, 9)}")
    for name in ("names", "labels", "shapes", "rubbish"):
        with refused():
            open_path(tmp_path / f"{name}.npz")
