"""Broken and hostile files: skipped, counted and named; one clear line when nothing is left; nothing outside is touched."""

import os
import socket
import struct
import zlib
from functools import partial

import numpy as np
import pytest
from opening import encoded, names, parts, refused, total, write_files
from PIL import Image

from sao.data.files import decode as decoding
from sao.data.files.images import Folder
from sao.data.files.open import open_path
from sao.errors import InputError


@pytest.fixture
def folder(tmp_path):
    """Twelve good images, so that whatever a test adds is the only thing wrong."""
    good = {f"good{i:02d}.png": encoded(Image.new("RGB", (16, 16), (20 * i, 5, 9))) for i in range(12)}
    return write_files(tmp_path / "data", good)


@pytest.fixture
def opened(folder):
    return partial(open_path, folder)


GOOD = encoded(np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8))


def bomb_png(width, height):
    """A few hundred bytes that claim any number of pixels."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")


BROKEN = {
    "empty.png": (b"", "not an image|empty"),
    "text.jpg": (b"hello, I am no image", "not an image"),
    "cut.png": (GOOD[:200], "damaged"),
    "bomb.png": (bomb_png(60_000, 60_000), "million pixels"),
    "warned.png": (bomb_png(10_500, 10_500), "million pixels"),
    "lie.png": (bomb_png(500, 500), "damaged"),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.filterwarnings("error")
def test_a_broken_file_is_skipped_and_named(folder, opened, name, capfd):
    data, reason = BROKEN[name]
    (folder / name).write_bytes(data)
    result = opened()
    assert total(result) == 12
    assert [item.name for item in result.skipped] == [name]
    assert any(part in result.skipped[0].reason for part in reason.split("|"))
    assert capfd.readouterr() == ("", "")
    with refused(name):  # also where only the cache remembers it
        opened(strict=True)


def test_contents_decide_not_extensions(folder, opened):
    write_files(folder, dict.fromkeys(["photo.txt", "photo.jpg", "photo"], GOOD))
    result = opened()
    assert total(result) == 15
    assert result.skipped == []


def test_hidden_files_and_litter_are_not_worth_a_line(folder, opened):
    write_files(folder, dict.fromkeys([".DS_Store", "Thumbs.db", ".git/HEAD"], b"x"))
    assert opened(strict=True).skipped == []


def test_links_stay_inside(folder, opened, tmp_path):
    outside = write_files(tmp_path / "outside", {"secret.png": GOOD})
    (folder / "inside.png").symlink_to(folder / "good00.png")
    (folder / "leaving.png").symlink_to(outside / "secret.png")
    (folder / "leaving").symlink_to(outside)
    (folder / "loop").symlink_to(folder)
    (folder / "self.png").symlink_to("self.png")
    (folder / "dangling.png").symlink_to("nowhere.png")
    result = opened()
    found = [name for part in parts(result) for name in names(part)]
    assert len(found) == 13
    assert "inside.png" in found
    assert {item.name for item in result.skipped} == {"leaving.png", "leaving", "loop", "self.png", "dangling.png"}


def test_a_folder_beside_with_the_same_beginning_is_outside(tmp_path):
    (tmp_path / "data").mkdir()
    write_files(tmp_path / "data2", {"a.png": GOOD})
    (tmp_path / "data" / "a.png").symlink_to(tmp_path / "data2" / "a.png")
    source = Folder(tmp_path / "data")
    assert source.entries == []
    assert "leaves" in source.skipped[0].reason


def test_pipes_sockets_and_devices_are_not_opened(folder, opened, monkeypatch):
    os.mkfifo(folder / "pipe.png")
    monkeypatch.chdir(folder)  # a socket's path may only be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.png")
        (folder / "null.png").symlink_to("/dev/null")
        result = opened()
    assert {item.name: item.reason for item in result.skipped} == {
        "pipe.png": "not a regular file",
        "socket.png": "not a regular file",
        "null.png": "a link that leaves the folder",
    }
    assert isinstance(decoding.read(str(folder / "pipe.png")), decoding.Failure)


def test_a_file_that_became_a_link_after_listing_is_not_followed(tmp_path):
    (tmp_path / "secret.png").write_bytes(GOOD)
    (tmp_path / "late.png").symlink_to(tmp_path / "secret.png")
    assert isinstance(decoding.read(str(tmp_path / "late.png")), decoding.Failure)


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_files_and_folders_without_permission_are_skipped(folder, opened):
    (folder / "locked.png").write_bytes(GOOD)
    (folder / "locked.png").chmod(0)
    (folder / "closed").mkdir()
    (folder / "closed").chmod(0)
    try:
        assert {item.name for item in opened().skipped} == {"locked.png", "closed"}
    finally:
        (folder / "closed").chmod(0o700)


def test_a_file_that_cannot_be_read_is_skipped(folder, opened, monkeypatch):
    """The same as root, who may read everything: the system's refusal is made up."""
    real = os.open

    def refusing(path, *arguments, **options):
        if str(path).endswith("good03.png"):
            raise PermissionError(13, "Permission denied", path)
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refusing)
    assert [(item.name, item.reason) for item in opened().skipped] == [("good03.png", "cannot be read: Permission denied")]


def test_a_file_larger_than_allowed_is_not_read(folder, opened, monkeypatch):
    monkeypatch.setattr(decoding, "MAX_FILE_BYTES", 1000)
    with open(folder / "huge.png", "wb") as stream:
        stream.truncate(10_000)
    assert "larger than" in opened().skipped[0].reason


def test_names_that_are_no_text_are_read_and_printed(folder, opened):
    write_files(folder, {os.fsdecode(b"caf\xe9\n\x1b.png"): GOOD, os.fsdecode(b"bad\xff.png"): b"nothing"})
    result = opened()
    found = [name for part in parts(result) for name in names(part)]
    assert len(found) == 13
    for text in [*found, result.skipped[0].name]:
        assert text.isprintable()
        text.encode("utf-8")
    with pytest.raises(InputError) as caught:
        opened(strict=True)
    str(caught.value).encode("utf-8")


@pytest.mark.parametrize("content", [[], [b""], [b"text", b"", GOOD[:100]]])
def test_no_usable_image_is_one_clear_line(tmp_path, content):
    write_files(tmp_path / "d", {f"{i}.png": data for i, data in enumerate(content)})
    for asked in (None, 1):  # chosen from the headers, or decoded at once
        with refused("no usable image"):
            open_path(tmp_path / "d", size=asked and 8, channels=asked)
    assert not list((tmp_path / "cache").glob("*")) if (tmp_path / "cache").exists() else True


def test_fewer_than_ten_is_too_few(tmp_path):
    with pytest.raises(InputError, match="only 9 usable samples"):
        open_path(write_files(tmp_path, {f"{i}.png": GOOD for i in range(9)}))


@pytest.mark.parametrize("kind", ["missing", "image", "random", "pipe", "empty"])
def test_a_path_that_holds_no_data_is_one_clear_line(tmp_path, kind):
    path = tmp_path / "it"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind != "missing":
        path.write_bytes({"image": GOOD, "random": os.urandom(1000), "empty": b""}[kind])
    with refused():
        open_path(path)


def test_a_cache_inside_the_data_is_not_data(folder):
    first = open_path(folder, cache_folder=folder / "cache")
    second = open_path(folder, cache_folder=folder / "cache")
    assert first.skipped == second.skipped == []


def test_a_cache_that_cannot_be_used_is_one_clear_line(folder, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="SAO_CACHE"):
        open_path(folder, cache_folder=tmp_path / "file" / "cache")
