"""Tar shards in the manner of WebDataset: one source in order, labels from .cls, nothing unpacked."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sao.data.dataset import Images
from sao.data.files.archives import data_exists, shard_paths
from sao.data.files.open import Opened, open_for_embedding, open_path
from sao.errors import InputError

DRAWS = np.random.default_rng(0)
PIXELS = DRAWS.integers(0, 256, (40, 16, 16, 3), dtype=np.uint8)


def add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def write_shards(folder: Path, labelled: bool = True, damaged: int | None = None) -> str:
    """40 images in 4 shards of 10, each with a label and a caption."""
    for shard in range(4):
        with tarfile.open(folder / f"train-{shard + 8:03d}.tar", "w") as archive:
            for index in range(10 * shard, 10 * shard + 10):
                picture = io.BytesIO()
                Image.fromarray(PIXELS[index]).save(picture, "png")
                data = picture.getvalue()
                add(archive, f"{index:06d}.png", data[: len(data) // 2] if index == damaged else data)
                if labelled:
                    add(archive, f"{index:06d}.cls", str(index % 2).encode())
                add(archive, f"{index:06d}.json", b'{"caption": "none"}')
    return str(folder / "train-{008..011}.tar")


def opened(pattern: str, tmp_path: Path, **options) -> Opened:
    return open_path(pattern, cache_folder=tmp_path / "cache", **options)


def test_a_pattern_names_files_in_order():
    assert shard_paths("a/{008..011}.tar") == [Path(f"a/{n}.tar") for n in ("008", "009", "010", "011")]
    assert shard_paths("{9..10}") == [Path("9"), Path("10")]
    assert shard_paths("a/000.tar") is None
    for wrong in ("{5..3}.tar", "{0..99999999}.tar"):
        with pytest.raises(InputError, match="names no shards, or more than"):
            shard_paths(wrong)


def test_shards_are_one_data_set_with_labels(tmp_path):
    pattern = write_shards(tmp_path)
    found = opened(pattern, tmp_path)
    assert found.skipped == []
    assert any("2 class subfolders were found" in note for note in found.notes)
    for part in (found.dataset.train, found.dataset.test):
        assert isinstance(part, Images)
        assert part.names is not None
        assert part.labels is not None
        rows = [int(name.split("/")[1].split(".")[0]) for name in part.names]
        np.testing.assert_array_equal(part.pixels, PIXELS[rows])
        assert part.labels.tolist() == [row % 2 for row in rows]
    assert sorted(path.suffix for path in tmp_path.iterdir() if path.is_file()) == [".tar"] * 4  # nothing was unpacked


def test_without_labels_and_in_order_for_embedding(tmp_path):
    pattern = write_shards(tmp_path, labelled=False)
    assert opened(pattern, tmp_path).dataset.classes is None
    samples, _, _ = open_for_embedding(pattern, shape=(3, 16, 16), cache_folder=tmp_path / "cache")
    assert isinstance(samples, Images)
    np.testing.assert_array_equal(samples.pixels, PIXELS)


def test_a_damaged_image_is_skipped_and_named(tmp_path):
    found = opened(write_shards(tmp_path, damaged=13), tmp_path)
    assert [item.name for item in found.skipped] == ["1/000013.png"]
    assert len(found.dataset.train) + len(found.dataset.test) == 39


def test_a_missing_shard_is_one_line(tmp_path):
    pattern = write_shards(tmp_path)
    assert data_exists(pattern)
    (tmp_path / "train-010.tar").unlink()
    with pytest.raises(InputError, match=r"there is no file .*train-010.tar: 1 of 4 shards are missing"):
        opened(pattern, tmp_path)
    assert not data_exists(tmp_path / "other-{0..3}.tar")


def test_changed_shards_are_decoded_again(tmp_path):
    pattern = write_shards(tmp_path)
    first = opened(pattern, tmp_path)
    with tarfile.open(tmp_path / "train-008.tar", "a") as archive:
        picture = io.BytesIO()
        Image.fromarray(PIXELS[0][::-1]).save(picture, "png")
        add(archive, "new.png", picture.getvalue())
        add(archive, "new.cls", b"1")
    second = opened(pattern, tmp_path)
    assert len(second.dataset.train) + len(second.dataset.test) == 41 == len(first.dataset.train) + len(first.dataset.test) + 1
