"""Zip and tar archives: read as streams in memory, whatever their members call themselves or claim to be."""

import os
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from opening import embedded_images, encoded, images, labels, names, parts, refused, total, write_files, write_tar, write_zip
from PIL import Image

from sao.data.files import archives
from sao.data.files.open import data_exists, open_for_embedding, open_path, shard_paths
from sao.errors import InputError


def png(value):
    return encoded(Image.new("RGB", (16, 16), (value, 30, 60)))


MEMBERS = {f"photos/{name}/{i}.png": png(10 * i) for name in ("cat", "dog") for i in range(8)}


@pytest.mark.parametrize("kind", ["zip", "stored", "tar", "tar.gz", "tar.bz2", "tar.xz"])
def test_an_archive_is_the_same_as_its_folder(tmp_path, kind):
    path = tmp_path / f"photos.{kind}"
    if kind in ("zip", "stored"):
        write_zip(path, MEMBERS, zipfile.ZIP_STORED if kind == "stored" else zipfile.ZIP_DEFLATED)
    else:
        write_tar(path, MEMBERS, f"w:{kind[4:]}")
    plain = write_files(tmp_path / "plain", MEMBERS)
    before = set(os.listdir(tmp_path))
    for _ in range(2):  # the second time from the cache
        both = (parts(open_path(place, cache_folder=plain / ".cache")) for place in (path, plain))
        for one, other in zip(*both, strict=True):
            np.testing.assert_array_equal(one.inputs(slice(None)), other.inputs(slice(None)))
            np.testing.assert_array_equal(one.labels, other.labels)
            assert one.class_names == ["cat", "dog"]
    assert set(os.listdir(tmp_path)) == before


def test_members_that_point_outside_are_skipped_and_never_written(tmp_path):
    bad = {"../up.png": png(1), "/absolute.png": png(2), "a/../../b.png": png(3), "C:/windows.png": png(4)}
    paths = write_zip(tmp_path / "a.zip", MEMBERS | bad), write_tar(tmp_path / "a.tar", MEMBERS | bad)
    before = set(tmp_path.rglob("*"))
    for path in paths:
        opened = open_path(path)
        assert total(opened) == 16
        assert {item.name for item in opened.skipped} == set(bad)
    written = {path for path in set(tmp_path.rglob("*")) - before if "cache" not in path.parts}
    assert not written
    assert not (tmp_path.parent / "up.png").exists()


def test_links_devices_and_pipes_in_a_tar_are_skipped(tmp_path):
    path = write_tar(tmp_path / "a.tar", MEMBERS)
    kinds = {"sym.png": tarfile.SYMTYPE, "hard.png": tarfile.LNKTYPE, "pipe.png": tarfile.FIFOTYPE, "dev.png": tarfile.CHRTYPE}
    with tarfile.open(path, "a") as archive:
        for name, kind in kinds.items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    opened = open_path(path)
    assert total(opened) == 16
    assert {item.name for item in opened.skipped} == set(kinds)


def test_a_link_in_a_zip_is_skipped(tmp_path):
    write_zip(tmp_path / "a.zip", MEMBERS)
    with zipfile.ZipFile(tmp_path / "a.zip", "a") as archive:
        info = zipfile.ZipInfo("link.png")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    assert [item.name for item in open_path(tmp_path / "a.zip").skipped] == ["link.png"]


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_an_archive_bomb_is_refused(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(archives, "ALWAYS_ALLOWED_BYTES", 2**20)
    members = MEMBERS | {"zeros.bmp": bytes(50 * 2**20)}
    write = write_zip if kind == "zip" else lambda path, members: write_tar(path, members, "w:gz")
    with pytest.raises(InputError, match="times its size"):
        open_path(write(tmp_path / f"bomb.{kind}", members))


def test_a_member_that_is_too_large_is_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MAX_FILE_BYTES", 10_000)
    members = MEMBERS | {"large.png": bytes(20_000)}
    for path in (write_zip(tmp_path / "a.zip", members), write_tar(tmp_path / "a.tar", members)):
        (item,) = open_path(path).skipped
        assert item.name == "large.png"
        assert "larger" in item.reason


@pytest.mark.parametrize("reason", ["encrypted", "damaged in the archive"])
def test_a_member_that_is_encrypted_or_has_a_wrong_checksum_is_skipped(tmp_path, reason):
    path = write_zip(tmp_path / "a.zip", MEMBERS | {"bad.png": b"y" * 500}, zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    if reason == "encrypted":
        data[data.rindex(b"PK\x01\x02", 0, data.rindex(b"bad.png")) + 8] |= 1
    else:
        data[data.index(b"y" * 500) + 5] ^= 255
    path.write_bytes(data)
    (item,) = open_path(path).skipped
    assert item.name == "bad.png"
    assert item.reason.startswith(reason)


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_a_cut_tar_gives_what_it_still_has(tmp_path, mode):
    noise = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    path = write_tar(tmp_path / "cut.tar", {f"{i}.png": encoded(image) for i, image in enumerate(noise)}, mode)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * 0.6)])
    opened = open_path(path)
    assert 10 <= total(opened) < 40
    assert opened.skipped


@pytest.mark.parametrize("start", [b"PK\x03\x04rubbish", b"\x1f\x8brubbish", b"BZhrubbish", b"\xfd7zXZ\x00rubbish"])
def test_a_damaged_archive_is_one_clear_line(tmp_path, start):
    (tmp_path / "a").write_bytes(start * 20)
    with refused("cannot be read as an archive"):
        open_path(tmp_path / "a")


def test_litter_and_windows_separators(tmp_path):
    members = {f"d\\{k}\\{i}.png": png(i) for i in range(6) for k in "ab"}
    litter = {"__MACOSX/d/._0.png": b"x", "d/.DS_Store": b"x"}
    samples, skipped, _ = open_for_embedding(write_zip(tmp_path / "a.zip", members | litter), shape=(3, 8, 8))
    assert skipped == []
    assert samples.class_names == ["a", "b"]


# --- shards in the manner of WebDataset: one source in order, labels from .cls ----------------------------------------


PIXELS = np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3), dtype=np.uint8)


def write_shards(folder: Path, labelled: bool = True, damaged: int | None = None) -> str:
    """40 images in 4 shards of 10, each with a label and a caption."""
    for shard in range(4):
        members = {}
        for index in range(10 * shard, 10 * shard + 10):
            data = encoded(PIXELS[index])
            members[f"{index:06d}.png"] = data[: len(data) // 2] if index == damaged else data
            members |= {f"{index:06d}.cls": str(index % 2).encode()} if labelled else {}
            members[f"{index:06d}.json"] = b'{"caption": "none"}'
        write_tar(folder / f"train-{shard + 8:03d}.tar", members)
    return str(folder / "train-{008..011}.tar")


def test_a_pattern_names_files_in_order():
    assert shard_paths("a/{008..011}.tar") == [Path(f"a/{n}.tar") for n in ("008", "009", "010", "011")]
    assert shard_paths("{9..10}") == [Path("9"), Path("10")]
    assert shard_paths("a/000.tar") is None
    for wrong in ("{5..3}.tar", "{0..99999999}.tar"):
        with pytest.raises(InputError, match="names no shards, or more than"):
            shard_paths(wrong)


def test_shards_are_one_data_set_with_labels(tmp_path):
    pattern = write_shards(tmp_path)
    found = open_path(pattern)
    assert found.skipped == []
    assert any("2 class subfolders were found" in note for note in found.notes)
    for part in parts(found):
        rows = [int(name.split("/")[1].split(".")[0]) for name in names(part)]
        np.testing.assert_array_equal(images(part).pixels, PIXELS[rows])
        assert labels(part).tolist() == [row % 2 for row in rows]
    assert sorted(path.suffix for path in tmp_path.iterdir() if path.is_file()) == [".tar"] * 4  # nothing was unpacked


def test_a_label_is_found_by_the_name_up_to_the_first_dot(tmp_path):
    members = {f"run.1/{i:04d}.left.png": encoded(image) for i, image in enumerate(PIXELS[:10])}
    members |= {f"run.1/{i:04d}.cls": b"even" if i % 2 == 0 else b"odd" for i in range(10)}
    write_tar(tmp_path / "shard-0.tar", members)
    found = embedded_images(Path(f"{tmp_path}/shard-{{0..0}}.tar"), (3, 16, 16))
    assert names(found) == [f"{('even', 'odd')[i % 2]}/run.1/{i:04d}.left.png" for i in range(10)]


def test_without_labels_and_in_order_for_embedding(tmp_path):
    pattern = write_shards(tmp_path, labelled=False)
    assert open_path(pattern).dataset.classes is None
    np.testing.assert_array_equal(embedded_images(Path(pattern), (3, 16, 16)).pixels, PIXELS)


def test_a_damaged_image_is_skipped_and_named(tmp_path):
    found = open_path(write_shards(tmp_path, damaged=13))
    assert [item.name for item in found.skipped] == ["1/000013.png"]
    assert total(found) == 39


def test_a_missing_shard_is_one_line(tmp_path):
    pattern = write_shards(tmp_path)
    assert data_exists(pattern)
    (tmp_path / "train-010.tar").unlink()
    with pytest.raises(InputError, match=r"there is no file .*train-010.tar: 1 of 4 shards are missing"):
        open_path(pattern)
    assert not data_exists(tmp_path / "other-{0..3}.tar")


def test_changed_shards_are_decoded_again(tmp_path):
    pattern = write_shards(tmp_path)
    first = open_path(pattern)
    write_tar(tmp_path / "train-008.tar", {"new.png": encoded(PIXELS[0][::-1]), "new.cls": b"1"}, "a")
    second = open_path(pattern)
    assert total(second) == 41 == total(first) + 1
