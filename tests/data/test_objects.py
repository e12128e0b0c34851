"""Whatever a person has in Python gives the same images as the files that it came from."""

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from opening import embedded_images, encoded, images, labels, names, parts, vectors
from PIL import Image

from sao.data.files import streams
from sao.data.files.cache import Cache
from sao.data.files.objects import InMemory, holds_pictures, pictures_of, readable
from sao.data.files.open import open_for_embedding, open_path
from sao.data.files.streams import spooled
from sao.errors import InputError
from sao.runtime.torchvision_import import torchvision_datasets


@pytest.fixture
def folder(tmp_path) -> Path:
    """24 pictures of 16x16 in two classes."""
    draws = np.random.default_rng(0)
    for index in range(24):
        place = tmp_path / "pictures" / ("cat" if index % 3 else "dog")
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draws.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(place / f"{index:02d}.png")
    return tmp_path / "pictures"


def paths_of(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.png"))


def opened(path: Path) -> Image.Image:
    with Image.open(path) as image:
        image.load()
        return image


class Pairs(torch.utils.data.Dataset):
    """A map-style data set of (picture, label)."""

    def __init__(self, paths: list[Path], change=lambda image: image) -> None:
        self.paths, self.change, self.asked = paths, change, 0

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int):
        self.asked += 1
        return self.change(opened(self.paths[index])), int(self.paths[index].parent.name == "dog")


def as_tensor(image: Image.Image) -> torch.Tensor:
    """As torchvision's ToTensor."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255


def same_pixels(found: Any, folder: Path, rows: slice = slice(None)) -> None:
    """As the files of the folder have."""
    np.testing.assert_array_equal(np.asarray(found.pixels), np.asarray(embedded_images(folder, (3, 16, 16)).pixels)[rows])


def in_hugging_face(folder: Path, image: Callable[[Path], Any] = str):
    import datasets

    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    rows = {"image": [image(path) for path in paths_of(folder)], "label": [path.parent.name for path in paths_of(folder)]}
    return datasets.Dataset.from_dict(rows, features=features)


def stored_in_hugging_face(folder: Path):
    return in_hugging_face(folder, lambda path: {"bytes": path.read_bytes(), "path": path.name})


KINDS = {
    "pictures": lambda folder: [opened(path) for path in paths_of(folder)],
    "paths": paths_of,
    "texts": lambda folder: [str(path) for path in paths_of(folder)],
    "array": lambda folder: np.stack([np.array(opened(path)) for path in paths_of(folder)]),
    "tensor": lambda folder: torch.stack([as_tensor(opened(path)) for path in paths_of(folder)]),
    "torch data set": lambda folder: Pairs(paths_of(folder)),
    "torch data set of tensors": lambda folder: Pairs(paths_of(folder), as_tensor),
    "tensors of torch": lambda folder: torch.utils.data.TensorDataset(KINDS["tensor"](folder)),
    "torchvision": lambda folder: torchvision_datasets().ImageFolder(str(folder)),
    "Hugging Face": in_hugging_face,
    "pandas": lambda folder: pandas.DataFrame({"path": [str(path) for path in paths_of(folder)], "size": 3}),
    "stream": lambda folder: (opened(path) for path in paths_of(folder)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_object_gives_the_pixels_of_the_files(kind, folder):
    same_pixels(embedded_images(KINDS[kind](folder), (3, 16, 16)), folder)


@pytest.mark.parametrize("kind", ["torch data set", "torchvision", "Hugging Face", "paths"])
def test_labels_come_along(kind, folder):
    opened = open_path(readable(KINDS[kind](folder)))
    assert opened.dataset.classes == 2
    assert sorted(np.bincount(np.concatenate([labels(part) for part in parts(opened)]))) == [8, 16]
    if kind != "torch data set":
        assert list(opened.dataset.train.class_names or ()) == ["cat", "dog"]


def test_names_are_paths_where_they_are_known(folder):
    found = embedded_images(KINDS["torchvision"](folder), (3, 16, 16))
    assert names(found) == [str(path.relative_to(folder)) for path in paths_of(folder)]


def test_parts_of_hugging_face_stay_parts(folder):
    import datasets

    whole = in_hugging_face(folder)
    both = datasets.DatasetDict({"train": whole.select(range(16)), "test": whole.select(range(16, 24))})
    dataset = open_path(readable(both)).dataset
    assert (len(dataset.train), len(dataset.test)) == (16, 8)
    assert names(dataset.test)[0] == "test row 0"


def test_a_table_of_numbers_keeps_the_names_of_its_columns():
    draws = np.random.default_rng(0)
    frame = pandas.DataFrame({"a": draws.normal(size=30), "b": draws.normal(size=30), "label": ["x", "y"] * 15})
    assert not holds_pictures(frame)
    found = open_path(readable(frame))
    vectors(found.dataset.train)
    assert found.standardiser is not None
    assert found.standardiser.columns == ("a", "b")
    assert found.dataset.classes == 2


@pytest.mark.parametrize("labels", [["x", "y", "x"], [0, 1, 0]])
def test_a_label_is_no_column_of_numbers_however_names_are_stored(labels):
    frame = pandas.DataFrame({"a": [1.0, 2.0, 3.0], "label": labels})
    frame.columns = pandas.Index(["a", "label"], dtype="string")  # hands out another object for a name each time
    found = readable(frame)
    assert isinstance(found, InMemory)
    assert found.columns == ["a"]


def test_rows_of_a_torch_data_set_are_vectors():
    rows, labels = torch.randn(40, 3), torch.arange(40) % 2
    found = open_path(readable(torch.utils.data.TensorDataset(rows, labels))).dataset
    assert vectors(found.train).shape == (3,)
    assert found.classes == 2


def test_what_is_decoded_is_not_asked_for_again(folder):
    """Of Hugging Face, whose fingerprint says whether it has changed."""
    whole = in_hugging_face(folder)
    open_for_embedding(readable(whole), shape=(3, 16, 16))
    again = readable(whole)
    calls = []
    original = type(whole).__getitem__
    try:
        type(whole).__getitem__ = lambda self, key: calls.append(key) or original(self, key)
        open_for_embedding(again, shape=(3, 16, 16))
    finally:
        type(whole).__getitem__ = original
    assert not [key for key in calls if isinstance(key, int)]


def test_a_stream_goes_on_where_it_was_cut(folder, tmp_path):
    cache, asked = Cache(tmp_path / "spool"), []

    def stream(stop: int | None):
        for index, path in enumerate(paths_of(folder)):
            if index == stop:
                raise ConnectionError("gone")
            asked.append(index)
            yield opened(path)

    with pytest.raises(InputError, match=r"broke off \(ConnectionError: gone\); what came before is kept"):
        spooled(stream(15), cache)
    (place,) = cache.folder.iterdir()
    kept = (place / "items.bin").stat().st_size
    assert len((place / "index.jsonl").read_text().splitlines()) == 15
    (place / "items.bin").write_bytes((place / "items.bin").read_bytes() + b"cut short by a kill")
    told = []
    found = spooled(stream(None), cache, lambda done, total: told.append((done, total)))
    assert len(found.entries) == 24
    assert told == [*((done, 0) for done in range(16, 25)), (24, 24)]
    assert (place / "items.bin").stat().st_size == kept // 15 * 24
    asked.clear()
    again = spooled(stream(None), cache)
    assert len(asked) == 8  # those by which it is known again
    assert list(again.load()) == [streams.encoded(opened(path)) for path in paths_of(folder)]


@pytest.mark.parametrize("item", [object(), np.full((8, 8), np.nan), np.zeros((2, 2, 2, 2)), torch.full((3, 8, 8), 7.0), None])
def test_a_bad_item_is_named_and_not_used(item, folder):
    items = [opened(path) for path in paths_of(folder)]
    items[3] = item
    found, skipped, _ = open_for_embedding(readable(items), shape=(3, 16, 16))
    assert len(found) == 23
    assert [one.name for one in skipped] == ["row 3"]
    with pytest.raises(InputError, match="row 3"):
        pictures_of(items, (3, 16, 16))


def test_what_is_no_data_is_one_line():
    with pytest.raises(InputError, match="data of type int is not known"):
        readable(3)
    with pytest.raises(InputError, match="there are no samples"):
        readable([])
    with pytest.raises(InputError, match="there are no samples"):
        readable(pandas.DataFrame({"path": []}))
    with pytest.raises(InputError, match="the first sample cannot be read: FileNotFoundError"):
        readable(Pairs([Path("gone.png")]))


# --- files of the same kinds -------------------------------------------------------------------------------------------------


def test_a_text_file_of_paths(folder, tmp_path):
    lines = [os.path.relpath(path, tmp_path) for path in paths_of(folder)]
    (tmp_path / "list.txt").write_text("# pictures\n" + "\n".join([*lines, "pictures/missing.png"]) + "\n")
    found, skipped, _ = open_for_embedding(tmp_path / "list.txt", shape=(3, 16, 16))
    assert names(found) == lines
    assert [one.name for one in skipped] == ["pictures/missing.png"]
    assert open_path(tmp_path / "list.txt").dataset.classes == 2
    (tmp_path / "numbers.txt").write_text("\n".join("1.5,2,3" if index % 2 else "4,5,6.5" for index in range(20)))
    vectors(open_path(tmp_path / "numbers.txt").dataset.train)


@pytest.mark.parametrize("kind", ["parquet", "saved"])
def test_a_folder_of_tables_is_one_data_set_with_its_parts(kind, folder, tmp_path):
    import datasets

    whole, place = stored_in_hugging_face(folder), tmp_path / "tables"
    ranges = {"train": range(16), "test": range(16, 22), "validation": range(22, 24)}
    tables = datasets.DatasetDict({name: whole.select(rows) for name, rows in ranges.items()})
    if kind == "saved":
        tables.save_to_disk(str(place), num_shards={"train": 2, "test": 1, "validation": 1})
    else:
        (place / "data").mkdir(parents=True)
        for name, table in tables.items():
            table.to_parquet(str(place / "data" / f"{name}-00000-of-00001.parquet"))
    found = open_path(place).dataset
    assert (len(found.train), len(found.test)) == (16, 6)
    same_pixels(images(found.test), folder, slice(16, 22))
    assert list(found.train.class_names or []) == ["cat", "dog"]


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_tables_of_images_as_hugging_face_writes_them(kind, folder, tmp_path):
    whole = stored_in_hugging_face(folder)
    if kind == "parquet":
        whole.to_parquet(str(tmp_path / "t.parquet"))
    else:
        from pyarrow import ipc

        with ipc.new_stream(str(tmp_path / "t.arrow"), whole.data.table.schema) as writer:
            writer.write_table(whole.data.table)
    dataset = open_path(tmp_path / f"t.{kind}").dataset
    assert list(dataset.train.class_names or []) == ["cat", "dog"]
    found = embedded_images(tmp_path / f"t.{kind}", (3, 16, 16))
    assert names(found) == [path.name for path in paths_of(folder)]
    same_pixels(found, folder)


def table_of(paths: list[str], place: Path, kind: str) -> Path:
    """A table whose images are all elsewhere."""
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"image": [{"bytes": None, "path": path} for path in paths]})
    if kind == "parquet":
        pyarrow.parquet.write_table(table, place)
    else:
        with pyarrow.ipc.new_file(str(place), table.schema) as writer:
            writer.write_table(table)
    return place


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_table_opens_no_file_outside_its_folder(kind, folder, tmp_path):
    """Neither by an absolute path, nor by going up, nor through a link to a file or a folder; what lies inside is used."""
    own = [os.path.relpath(path, folder) for path in paths_of(folder)]
    (tmp_path / "private").mkdir()
    Image.new("RGB", (16, 16)).save(tmp_path / "private" / "a.png")
    (folder / "link.png").symlink_to(tmp_path / "private" / "a.png")
    (folder / "linked").symlink_to(tmp_path / "private")
    (folder / "near.png").symlink_to(folder / own[0])
    bad = [str(tmp_path / "private" / "a.png"), "../private/a.png", "cat/../../private/a.png", "/etc/passwd"]
    links = ["link.png", "linked/a.png"]
    table = table_of([*own, "near.png", *bad, *links], folder / f"t.{kind}", kind)
    for place in (table, folder):
        found, skipped, _ = open_for_embedding(place, shape=(3, 16, 16))
        assert names(found) == [*own, "near.png"]
        expected = [(path, "its path leaves the table's folder") for path in bad]
        expected += [(path, "a link that leaves the folder") for path in links]
        assert [(one.name, one.reason) for one in skipped] == expected
    with pytest.raises(InputError, match="leaves the table's folder"):
        open_for_embedding(table, shape=(3, 16, 16), strict=True)


def test_a_linked_table_outside_the_folder_is_not_opened(folder, tmp_path):
    table_of([str(path) for path in paths_of(folder)], tmp_path / "private.parquet", "parquet")
    place = tmp_path / "given"
    place.mkdir()
    stored_in_hugging_face(folder).to_parquet(str(place / "own.parquet"))
    (place / "train.parquet").symlink_to(tmp_path / "private.parquet")
    found, skipped, _ = open_for_embedding(place, shape=(3, 16, 16))
    assert len(found) == 24
    assert [(one.name, one.reason) for one in skipped] == [("train.parquet", "a link that leaves the folder")]


@pytest.mark.skipif(importlib.util.find_spec("pillow_heif") is not None, reason="the extra heic is installed")
def test_heic_without_its_plug_in_says_what_to_install(tmp_path):
    (tmp_path / "a.heic").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(100))
    with pytest.raises(InputError, match=r"a\.heic: a HEIC picture: pip install 'sao\[heic\]' to read it"):
        open_for_embedding(tmp_path / "a.heic", shape=(3, 8, 8))


def test_heic_is_read_with_its_plug_in(tmp_path):
    pillow_heif = pytest.importorskip("pillow_heif", reason="the extra heic is not installed")
    pillow_heif.from_pillow(Image.new("RGB", (32, 16), (200, 30, 60))).save(tmp_path / "a.heic", quality=95)
    found = embedded_images(tmp_path / "a.heic", (3, 8, 8))
    np.testing.assert_allclose(found.pixels[0].reshape(-1, 3).mean(0), (200, 30, 60), atol=6)


def test_avif_is_read_where_pillow_can(tmp_path):
    from PIL import features

    if features.check("avif"):
        (tmp_path / "b.avif").write_bytes(encoded(Image.new("RGB", (16, 16), "red"), "AVIF"))
        assert len(open_for_embedding(tmp_path / "b.avif", shape=(3, 16, 16))[0]) == 1
