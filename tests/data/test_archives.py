"""Zip and tar archives: read as streams in memory, whatever their members call themselves or claim to be."""

import io
import os
import tarfile
import zipfile
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sao.data.files import archives
from sao.data.files.open import open_for_embedding, open_path
from sao.errors import InputError


def png(value, size=(16, 16)):
    stream = io.BytesIO()
    Image.new("RGB", size, (value, 30, 60)).save(stream, "PNG")
    return stream.getvalue()


MEMBERS = {f"photos/{name}/{i}.png": png(10 * i) for name in ("cat", "dog") for i in range(8)}


def write_zip(path, members, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def write_tar(path, members, mode: Any = "w"):
    with tarfile.open(path, mode) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def total(opened):
    return len(opened.dataset.train) + len(opened.dataset.test)


@pytest.mark.parametrize("kind", ["zip", "stored", "tar", "tar.gz", "tar.bz2", "tar.xz"])
def test_an_archive_is_the_same_as_its_folder(tmp_path, kind):
    path = tmp_path / f"photos.{kind}"
    if kind in ("zip", "stored"):
        write_zip(path, MEMBERS, zipfile.ZIP_STORED if kind == "stored" else zipfile.ZIP_DEFLATED)
    else:
        write_tar(path, MEMBERS, f"w:{kind[4:]}")
    for name, data in MEMBERS.items():
        (tmp_path / "plain" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "plain" / name).write_bytes(data)
    before = set(os.listdir(tmp_path))
    for _ in range(2):  # the second time from the cache
        packed = open_path(path, cache_folder=tmp_path / "plain" / ".cache").dataset
        plain = open_path(tmp_path / "plain", cache_folder=tmp_path / "plain" / ".cache").dataset
        for one, other in ((packed.train, plain.train), (packed.test, plain.test)):
            np.testing.assert_array_equal(one.inputs(slice(None)), other.inputs(slice(None)))
            np.testing.assert_array_equal(one.labels, other.labels)
            assert one.class_names == ["cat", "dog"]
    assert set(os.listdir(tmp_path)) == before


def test_members_that_point_outside_are_skipped_and_never_written(tmp_path):
    bad = {"../up.png": png(1), "/absolute.png": png(2), "a/../../b.png": png(3), "C:/windows.png": png(4)}
    write_zip(tmp_path / "a.zip", MEMBERS | bad)
    write_tar(tmp_path / "a.tar", MEMBERS | bad)
    before = set(tmp_path.rglob("*"))
    for name in ("a.zip", "a.tar"):
        opened = open_path(tmp_path / name, cache_folder=tmp_path / "cache")
        assert total(opened) == 16
        assert {item.name for item in opened.skipped} == {name.lstrip() for name in bad}
    written = {path for path in set(tmp_path.rglob("*")) - before if "cache" not in path.parts}
    assert not written
    assert not (tmp_path.parent / "up.png").exists()


def test_links_devices_and_pipes_in_a_tar_are_skipped(tmp_path):
    path = tmp_path / "a.tar"
    write_tar(path, MEMBERS)
    kinds = {"sym.png": tarfile.SYMTYPE, "hard.png": tarfile.LNKTYPE, "pipe.png": tarfile.FIFOTYPE, "dev.png": tarfile.CHRTYPE}
    with tarfile.open(path, "a") as archive:
        for name, kind in kinds.items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    opened = open_path(path, cache_folder=tmp_path / "cache")
    assert total(opened) == 16
    assert {item.name for item in opened.skipped} == set(kinds)


def test_a_link_in_a_zip_is_skipped(tmp_path):
    write_zip(tmp_path / "a.zip", MEMBERS)
    with zipfile.ZipFile(tmp_path / "a.zip", "a") as archive:
        info = zipfile.ZipInfo("link.png")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    assert [item.name for item in open_path(tmp_path / "a.zip", cache_folder=tmp_path / "c").skipped] == ["link.png"]


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_an_archive_bomb_is_refused(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(archives, "ALWAYS_ALLOWED_BYTES", 2**20)
    members = MEMBERS | {"zeros.bmp": bytes(50 * 2**20)}
    path = tmp_path / f"bomb.{kind}"
    if kind == "zip":
        write_zip(path, members)
    else:
        write_tar(path, members, "w:gz")
    with pytest.raises(InputError, match="times its size"):
        open_path(path, cache_folder=tmp_path / "cache")


def test_a_member_that_is_too_large_is_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MAX_FILE_BYTES", 10_000)
    members = MEMBERS | {"large.png": bytes(20_000)}
    write_zip(tmp_path / "a.zip", members)
    write_tar(tmp_path / "a.tar", members)
    for name in ("a.zip", "a.tar"):
        (item,) = open_path(tmp_path / name, cache_folder=tmp_path / "cache").skipped
        assert item.name == "large.png"
        assert "larger" in item.reason


def test_an_encrypted_member_is_skipped(tmp_path):
    write_zip(tmp_path / "a.zip", MEMBERS | {"secret.png": png(3)}, zipfile.ZIP_STORED)
    data = bytearray((tmp_path / "a.zip").read_bytes())
    at = data.rindex(b"PK\x01\x02", 0, data.rindex(b"secret.png"))
    data[at + 8] |= 1
    (tmp_path / "a.zip").write_bytes(data)
    (item,) = open_path(tmp_path / "a.zip", cache_folder=tmp_path / "cache").skipped
    assert (item.name, item.reason) == ("secret.png", "encrypted")


def test_a_member_with_a_wrong_checksum_is_skipped(tmp_path):
    write_zip(tmp_path / "a.zip", MEMBERS | {"bad.png": b"y" * 500}, zipfile.ZIP_STORED)
    data = bytearray((tmp_path / "a.zip").read_bytes())
    data[data.index(b"y" * 500) + 5] ^= 255
    (tmp_path / "a.zip").write_bytes(data)
    (item,) = open_path(tmp_path / "a.zip", cache_folder=tmp_path / "cache").skipped
    assert item.name == "bad.png"
    assert "damaged in the archive" in item.reason


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_a_cut_tar_gives_what_it_still_has(tmp_path, mode):
    noise = np.random.default_rng(0)
    members = {}
    for i in range(40):
        stream = io.BytesIO()
        Image.fromarray(noise.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(stream, "PNG")
        members[f"{i}.png"] = stream.getvalue()
    path = tmp_path / "cut.tar"
    write_tar(path, members, mode)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * 0.6)])
    opened = open_path(path, cache_folder=tmp_path / "cache")
    assert 10 <= total(opened) < 40
    assert opened.skipped


@pytest.mark.parametrize("start", [b"PK\x03\x04rubbish", b"\x1f\x8brubbish", b"BZhrubbish", b"\xfd7zXZ\x00rubbish"])
def test_a_damaged_archive_is_one_clear_line(tmp_path, start):
    (tmp_path / "a").write_bytes(start * 20)
    with pytest.raises(InputError, match="cannot be read as an archive") as caught:
        open_path(tmp_path / "a", cache_folder=tmp_path / "cache")
    assert "\n" not in str(caught.value)


def test_litter_and_windows_separators(tmp_path):
    members = {f"d\\{k}\\{i}.png": png(i) for i in range(6) for k in "ab"}
    litter = {"__MACOSX/d/._0.png": b"x", "d/.DS_Store": b"x"}
    write_zip(tmp_path / "a.zip", members | litter)
    samples, skipped, _ = open_for_embedding(tmp_path / "a.zip", shape=(3, 8, 8), cache_folder=tmp_path / "cache")
    assert skipped == []
    assert samples.class_names == ["a", "b"]
