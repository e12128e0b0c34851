"""Named data sets: the same split for the same seed, arms that are apart, and archives that are checked."""

import numpy as np
import pytest
import tiny
from opening import images, labels, refused, vectors
from PIL import Image

from sao.data import named
from sao.data.dataset import Dataset, Images
from sao.data.files.open import open_data
from sao.errors import InputError


def test_digits_are_split_once_and_for_all_by_the_seed():
    from sklearn.datasets import load_digits

    first, again, other = named.digits(seed=3), named.digits(seed=3), named.digits(seed=4)
    assert np.array_equal(images(first.train).pixels, images(again.train).pixels)
    assert np.array_equal(images(first.test).pixels, images(again.test).pixels)
    assert not np.array_equal(images(first.test).pixels, images(other.test).pixels)
    assert (len(first.train), len(first.test), first.train.shape, first.classes) == (1437, 360, (1, 8, 8), 10)
    both = np.concatenate([images(first.train).pixels, images(first.test).pixels]).reshape(1797, -1)
    whole = np.round(load_digits().images * (255 / 16)).reshape(1797, -1)  # pyright: ignore[reportAttributeAccessIssue]
    assert sorted(map(bytes, both)) == sorted(map(bytes, whole.astype(np.uint8)))  # every digit once: nothing is held out twice


def test_digits_are_held_out_by_class():
    data = named.digits(held_out=0.25)
    assert abs(len(data.test) / 1797 - 0.25) < 0.01
    train, test = np.bincount(labels(data.train)), np.bincount(labels(data.test))
    assert abs(test / (train + test) - 0.25).max() < 0.01


def test_pixels_become_inputs_between_minus_one_and_one():
    part = images(tiny.dataset().train)
    inputs = part.inputs(np.array([5, 2]))
    assert inputs.shape == (2, 1, 8, 8)
    np.testing.assert_allclose(inputs[0, 0].numpy(), part.pixels[5, :, :, 0] / 127.5 - 1, atol=1e-6)
    assert (float(inputs.min()), float(inputs.max())) == (-1, 1)


def test_spirals_are_two_arms_apart():
    data = named.spirals(2000, seed=1)
    rows, arms = vectors(data.train).rows, labels(data.train)
    assert np.bincount(arms).tolist() == [1000, 1000]
    assert np.abs(rows).max() < named.SPIRAL_BOX * 1.1
    assert np.array_equal(rows, vectors(named.spirals(2000, seed=1).train).rows)
    assert not np.array_equal(rows, vectors(data.test).rows)
    for arm in (0, 1):
        points = named.spiral_point(np.linspace(0, 1, 4000), np.full(4000, arm))
        own, other = (np.linalg.norm(rows[arms == arm][:, None] - line, axis=2).min(1) for line in (points, -points))
        assert own.max() < 6 * named.SPIRAL_NOISE
        assert (own < other).mean() > 0.99


@pytest.fixture
def archive(tmp_path):
    def save(name: str = "mnist", **changed) -> Dataset:
        draws = np.random.default_rng(0)
        arrays = {
            "x_train": draws.integers(0, 256, (20, 8, 8), dtype=np.uint8),
            "y_train": np.arange(20) % 4,
            "x_test": draws.integers(0, 256, (8, 8, 8), dtype=np.uint8),
            "y_test": np.arange(8) % 4,
        } | changed
        np.savez(tmp_path / f"{name}.npz", **{key: value for key, value in arrays.items() if value is not None})
        return open_data(name, folder=str(tmp_path)).dataset

    return save


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "mnist", "fashion_mnist"])
def test_an_archive_in_the_folder_is_taken_instead_of_a_download(archive, name):
    data = archive(name)
    assert (data.name, len(data.train), len(data.test), data.train.shape, data.classes) == (name, 20, 8, (1, 8, 8), 4)


def test_labels_of_an_archive_may_be_a_column_or_missing(archive):
    assert archive(y_train=np.arange(20)[:, None] % 4).train.labels.tolist() == [n % 4 for n in range(20)]
    bare = archive(y_train=None, y_test=None)
    assert bare.classes is None


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"x_train": None}, "no array x_train"),
        ({"x_test": None}, "no array x_test"),
        ({"y_train": np.arange(19)}, "20 samples but 19 labels"),
        ({"y_test": None}, "labels for one part only"),
        ({"y_train": np.linspace(0, 1, 20)}, "class number"),
        ({"y_train": -np.arange(20)}, "class number"),
        ({"x_train": np.zeros((20, 8, 8), np.float32)}, "uint8"),
        ({"x_train": np.zeros(20, np.uint8)}, "uint8"),
    ],
)
def test_refuses_an_archive_that_does_not_fit(archive, changed, words):
    with refused(words) as refusal:
        archive(**changed)
    assert "mnist.npz" in str(refusal.value)


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04 cut short", b"\x93NUMPY"])
def test_refuses_an_archive_that_cannot_be_read(tmp_path, content):
    (tmp_path / "mnist.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"mnist.npz cannot be read as an .npz"):
        open_data("mnist", folder=str(tmp_path))


def test_refuses_an_archive_with_a_damaged_member(tmp_path, archive):
    archive()
    content = bytearray((tmp_path / "mnist.npz").read_bytes())
    content[400] ^= 0xFF
    (tmp_path / "mnist.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"mnist.npz cannot be read as an .npz"):
        open_data("mnist", folder=str(tmp_path))


def test_a_failed_download_is_one_line_that_says_what_to_do(tmp_path, monkeypatch):
    from sao.runtime.torchvision_import import torchvision_datasets

    class Offline:
        def __init__(self, *args, **kwargs):
            raise OSError("no route\nto host")

    monkeypatch.setattr(torchvision_datasets(), "CIFAR10", Offline)
    with pytest.raises(InputError, match=r"could not be downloaded \(no route to host\).*cifar10.npz.*--data.folder"):
        open_data("cifar10", folder=str(tmp_path))
    with pytest.raises(InputError, match="was not downloaded"):
        open_data("cifar10", folder=str(tmp_path), download=False)


def test_refuses_what_is_neither_a_name_nor_a_path(tmp_path):
    with pytest.raises(InputError, match=r"no file or folder .*cifar11.*cifar10"):
        open_data("cifar11", folder=str(tmp_path))


def test_labels_can_be_left_unseen():
    data = open_data("digits", folder="", labels=False).dataset
    assert (data.train.labels, data.test.labels, data.classes) == (None, None, None)


def test_images_can_be_resized():
    data = open_data("digits", folder="", size=16, held_out=0.2).dataset
    assert data.train.shape == (1, 16, 16)
    assert np.array_equal(data.train.labels, tiny.dataset().train.labels)  # pyright: ignore[reportArgumentType]
    small = named.resized(data, 8)
    there_and_back, original = np.ravel(images(small.train).pixels), np.ravel(images(tiny.dataset().train).pixels)
    assert np.corrcoef(there_and_back, original)[0, 1] > 0.9
    assert named.resized(small, 8) is small


@pytest.mark.parametrize("size", [5, 12])
@pytest.mark.parametrize("channels", [1, 3])
def test_resized_pixels_are_the_bytes_nearest_to_what_pillow_computes(size, channels):
    pixels = np.random.default_rng(0).integers(0, 256, (6, 8, 8, channels), dtype=np.uint8)
    found = images(named.resized(Dataset("noise", Images(pixels), Images(pixels)), size).train).pixels
    planes = [Image.fromarray(plane) for plane in np.moveaxis(pixels, -1, 1).reshape(-1, 8, 8).astype(np.float32)]
    exact = np.stack([np.asarray(plane.resize((size, size), Image.Resampling.BILINEAR)) for plane in planes])
    assert np.abs(np.moveaxis(found[:], -1, 1).reshape(exact.shape) - exact).max() <= 0.5 + 1e-3
