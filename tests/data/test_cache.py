"""The cache: an entry is whole or absent, whatever runs beside it, kills it or damages it."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from opening import encoded, images, parts, write_files, write_tar, write_zip
from PIL import Image
from tiny import draw_pictures

from sao.data import dataset
from sao.data.dataset import PixelRange, SelectedRows
from sao.data.files.cache import Cache
from sao.data.files.images import Folder, _prefix
from sao.data.files.open import open_for_embedding, open_path
from sao.data.files.reading import ReadOptions
from sao.errors import InputError

OPEN = """
import sys, time
from pathlib import Path
from sao.data.files.open import open_path
folder, cache, workers, *stalls = sys.argv[1:]
def told(done, total):
    if stalls and done > 1.5 * total / 2:
        print("in the middle", flush=True)
        time.sleep(600)
data = open_path(folder, cache_folder=Path(cache), workers=int(workers), progress=told).dataset
print(len(data.train), len(data.test), data.train.pixels.sum(), data.test.pixels.sum())
"""


@pytest.fixture
def folder(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (300, 20, 16, 3), dtype=np.uint8)
    return write_files(tmp_path / "data", {f"{i:03d}.png": encoded(image) for i, image in enumerate(pixels)})


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def start(*arguments):
    command = [sys.executable, "-c", OPEN, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def entries(cache):
    return sorted(os.listdir(cache))


def test_the_second_time_nothing_is_decoded(folder, cache, monkeypatch):
    first = open_path(folder, cache_folder=cache)
    monkeypatch.setattr("sao.data.files.images.decode_chunk", None)
    monkeypatch.setattr("sao.data.files.images.inspect_chunk", None)
    second = open_path(folder, cache_folder=cache)
    np.testing.assert_array_equal(first.dataset.train.inputs(slice(None)), second.dataset.train.inputs(slice(None)))
    assert first.notes == second.notes


def test_the_key_is_the_content(folder, cache, tmp_path):
    open_path(folder, cache_folder=cache)
    (before,) = entries(cache)
    folder.rename(tmp_path / "moved")
    (tmp_path / "moved" / "000.png").rename(tmp_path / "moved" / "000.renamed")
    open_path(tmp_path / "moved", cache_folder=cache)
    assert entries(cache) == [before]
    # One pixel of one file, with its length and its times kept.
    path = tmp_path / "moved" / "007.png"
    status, image = path.stat(), np.asarray(Image.open(path)).copy()
    image[3, 3] ^= 255
    Image.fromarray(image).save(path)
    with open(path, "ab") as stream:
        stream.write(bytes(max(0, status.st_size - path.stat().st_size)))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    changed = open_path(tmp_path / "moved", cache_folder=cache)
    assert len(entries(cache)) == 2
    assert len(changed.dataset.train) == 270


def test_options_have_their_own_entries(folder, cache):
    asked: list[dict[str, Any]] = [{}, {"size": 8}, {"channels": 1}, {"fit": "pad"}]
    for options in asked:
        open_path(folder, cache_folder=cache, **options)
    assert len(entries(cache)) == 4
    open_path(folder, cache_folder=cache, seed=4, held_out=0.3, use_labels=False)
    assert len(entries(cache)) == 4


OTHER_PIXELS: dict[str, Any] = {
    "size": 16, "largest": 8, "channels": 1, "fit": "pad", "pages": "images", "range": (0.0, 9.0), "bits": 16, "crop": 0.5,
    "pixel_range": PixelRange.everywhere(0, 9, 3),
}  # fmt: skip
SAME_PIXELS: dict[str, Any] = {
    "where": "there", "minimum": 3, "split": True, "columns": ("a",), "axes": "NHW", "use_labels": False, "strict": True,
    "cache_folder": Path("other"), "workers": 2, "progress": print,
}  # fmt: skip


def test_every_option_of_reading_is_in_the_key_if_and_only_if_pixels_depend_on_it(folder):
    assert OTHER_PIXELS.keys() | SAME_PIXELS.keys() == {field.name for field in fields(ReadOptions)}
    source, plain = Folder(folder), ReadOptions("here")

    def key(**options: Any) -> str:
        return _prefix(source, replace(plain, **options))

    assert len({key(), *(key(**{name: value}) for name, value in OTHER_PIXELS.items())}) == 1 + len(OTHER_PIXELS)
    assert {key(**{name: value}) for name, value in SAME_PIXELS.items()} == {key()}


def test_a_size_that_was_chosen_within_a_limit_is_not_taken_without_it(tmp_path, cache):
    draw_pictures(tmp_path / "data", 10, (70, 70, 3))
    for limit, side in ((16, 16), (None, 64), (16, 16)):
        assert open_path(tmp_path / "data", cache_folder=cache, largest=limit).dataset.train.shape == (3, side, side)


@pytest.mark.parametrize("library", ["pillow_heif", "tifffile", "pydicom"])
def test_a_library_that_was_installed_since_makes_another_entry(folder, monkeypatch, library):
    source, options = Folder(folder), ReadOptions("here")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    before = _prefix(source, options)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: True if name == library else None)
    assert _prefix(source, options) != before


def write_shards(place: Path, files: dict[str, bytes]) -> Path:
    place.mkdir(exist_ok=True)
    names = list(files)
    for number in range(2):
        write_tar(place / f"s-{number}.tar", {name: files[name] for name in names[7 * number :][:7]})
    return place / "s-{0..1}.tar"


def write_tables(place: Path, files: dict[str, bytes]) -> Path:
    (place / "data").mkdir(parents=True, exist_ok=True)
    cells = [{"bytes": data, "path": name} for name, data in files.items()]
    for number in range(2):
        table = pyarrow.table({"image": cells[7 * number :][:7]})
        pyarrow.parquet.write_table(table, place / "data" / f"{number}.parquet", compression="none")
    return place


def write_list(place: Path, files: dict[str, bytes]) -> Path:
    write_files(place, files)
    (place / "list.txt").write_text("\n".join(files))
    return place / "list.txt"


@pytest.mark.parametrize("write", [write_files, write_zip, write_tar, write_shards, write_tables, write_list])
@pytest.mark.parametrize("changed", [0, 13])
def test_what_was_decoded_of_other_contents_is_never_taken(write, changed, tmp_path, cache):
    """Another first or last image of as many bytes, wherever it lies."""
    pixels = np.random.default_rng(0).integers(0, 256, (14, 8, 8, 3), dtype=np.uint8)
    for _ in range(2):
        files = {f"{i:02d}.bmp": encoded(image, "BMP") for i, image in enumerate(pixels)}
        where = write(tmp_path / "data", files)
        for _ in range(2):
            samples = images(open_for_embedding(where, shape=(3, 8, 8), cache_folder=cache)[0])
            np.testing.assert_array_equal(samples.pixels[:], pixels)
        pixels[changed] ^= 1
    assert len(entries(cache)) == 2


def test_every_option_has_its_own_entry_of_a_large_array(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(dataset, "IN_MEMORY_BYTES", 1000)
    array = np.random.default_rng(0).integers(0, 4096, (12, 10, 12, 12), dtype=np.uint16)
    asked: list[dict[str, Any]] = [{"axes": "NHWC"}, {"axes": "NHWC", "fit": "pad"}, {"axes": "NHWC", "size": 16}]
    asked += [{"axes": "NHWC", "range": (0, most)} for most in (4095, 2000)]
    asked += [{"axes": axes} for axes in ("NWHC", "NCHW", "NHCW")]
    for values in (array.astype(np.float32), array.astype(np.float32) + 1):
        np.save(tmp_path / "x.npy", values)
        seen = [open_path(tmp_path / "x.npy", cache_folder=cache, **one) for one in asked]
        monkeypatch.setattr(dataset, "IN_MEMORY_BYTES", 10**9)
        for one, found in zip(asked, seen, strict=True):
            straight = open_path(tmp_path / "x.npy", **one)
            np.testing.assert_array_equal(images(found.dataset.train).pixels[:], images(straight.dataset.train).pixels[:])
        monkeypatch.setattr(dataset, "IN_MEMORY_BYTES", 1000)
    assert len(entries(cache)) == 2 * len(asked)


def test_two_runs_at_once(folder, cache):
    """Neither script has a `__main__` guard, so this also shows that workers do not start the caller's script again."""
    runs = [start(folder, cache, workers) for workers in (1, 2)]
    outputs = [run.communicate() for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
    assert len({output for output, _ in outputs}) == 1
    assert {error for _, error in outputs} == {""}
    assert len(entries(cache)) == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_killed_in_the_middle_then_opened_again(folder, cache, workers):
    run = start(folder, cache, workers, "stall")
    assert run.stdout is not None
    assert run.stdout.readline() == "in the middle\n"
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    assert all(name.startswith(".writing-") for name in entries(cache))
    os.kill(run.pid, signal.SIGKILL)
    run.communicate()
    opened = open_path(folder, cache_folder=cache)
    assert len(opened.dataset.train) == 270
    assert len(entries(cache)) == 1  # and what the killed run left is gone
    while any(os.path.exists(f"/proc/{child}") for child in children):
        time.sleep(0.05)  # its workers end by themselves


def test_a_living_writer_is_left_alone(tmp_path):
    cache = Cache(tmp_path)
    with cache.writer({"pixels": (8, 8, 1)}, 5) as first:
        first.append(pixels=np.ones((2, 8, 8, 1), np.uint8))
        with cache.writer({"pixels": (8, 8, 1)}, 5) as second:
            second.append(pixels=np.ones((2, 8, 8, 1), np.uint8))
            second.commit("key", {"who": 2})
        stored = first.commit("key", {"who": 1})
    assert stored.facts["who"] == 2  # the first to finish wins, the other uses it
    assert entries(tmp_path) == ["key"]


def test_a_failure_while_writing_leaves_nothing(tmp_path):
    def fail():
        with Cache(tmp_path).writer({"pixels": (8, 8, 1)}, 5) as writer:
            writer.append(pixels=np.ones((2, 8, 8, 1), np.uint8))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert entries(tmp_path) == []


@pytest.mark.parametrize("damage", ["cut", "facts", "header", "missing"])
def test_a_damaged_entry_is_made_again(folder, cache, damage):
    first = open_path(folder, cache_folder=cache)
    (key,) = entries(cache)
    pixels, facts = cache / key / "pixels.npy", cache / key / "facts.json"
    if damage == "cut":
        os.truncate(pixels, pixels.stat().st_size // 2)
    elif damage == "facts":
        facts.write_text("{")
    elif damage == "header":
        pixels.write_bytes(b"rubbish" * 1000)
    else:
        pixels.unlink()
    again = open_path(folder, cache_folder=cache)
    np.testing.assert_array_equal(first.dataset.train.inputs(slice(None)), again.dataset.train.inputs(slice(None)))
    json.loads(facts.read_text())


def test_a_full_disk_is_one_clear_line(folder, cache, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
    with pytest.raises(InputError, match="No space left"):
        open_path(folder, cache_folder=cache)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_room_is_asked_for_to_the_byte_before_anything_is_written(kind, cache, monkeypatch):
    shapes = {"pixels": (8, 8, 3), "frames": (4, 4, 1)}
    free = SimpleNamespace(free=sum(np.zeros((5, *shape), kind).nbytes for shape in shapes.values()))
    monkeypatch.setattr("shutil.disk_usage", lambda _: free)
    with Cache(cache).writer(shapes, 5, np.dtype(kind)):
        free.free -= 1
    with pytest.raises(InputError, match="No space left"):
        Cache(cache).writer(shapes, 5, np.dtype(kind))


def test_a_split_too_large_for_memory_is_an_index_into_the_cache_and_not_a_second_copy(folder, cache, monkeypatch):
    small = parts(open_path(folder, cache_folder=cache))
    assert not isinstance(images(small[0]).pixels, SelectedRows)
    monkeypatch.setattr(dataset, "IN_MEMORY_BYTES", 1000)
    for _ in range(2):
        for one, other in zip(small, parts(open_path(folder, cache_folder=cache)), strict=True):
            pixels = images(other).pixels
            assert isinstance(pixels, SelectedRows)
            assert isinstance(pixels.array, np.memmap)
            np.testing.assert_array_equal(one.inputs(slice(None)), other.inputs(slice(None)))
            assert one.names == other.names
    assert len(entries(cache)) == 1


def test_the_environment_names_the_folder(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("SAO_CACHE", str(tmp_path / "elsewhere"))
    open_path(folder)
    assert len(entries(tmp_path / "elsewhere")) == 1
