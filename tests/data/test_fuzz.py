"""Mutated images, archives, arrays and tables: a usable answer, a skipped item or one clear line, and never anything else."""

import io
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import tifffile
from hypothesis import given, settings
from hypothesis import strategies as st
from opening import encoded, total, write_tar, write_zip
from PIL import Image
from pydicom.data import get_testdata_file

from sao.data.files.decode import Failure, Recipe, decode_chunk, inspect_chunk
from sao.data.files.open import open_path
from sao.errors import InputError

quick = settings(max_examples=150, deadline=None)
few = settings(max_examples=60, deadline=None)


def image_bytes(kind, mode="RGB", **options):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 24, 3), dtype=np.uint8)
    return encoded(Image.fromarray(pixels).convert(mode), kind, **options)


EXIF = Image.Exif()
EXIF[0x0112] = 6
SEEDS = [image_bytes(kind) for kind in ("PNG", "WEBP", "BMP", "TIFF", "GIF")]
SEEDS += [image_bytes("TIFF", compression=how) for how in ("tiff_lzw", "jpeg")]
SEEDS += [image_bytes("JPEG", exif=EXIF), image_bytes("JPEG", "CMYK"), image_bytes("JPEG", progressive=True)]
SEEDS.append(image_bytes("PNG", "P", transparency=3))


def stack_bytes() -> list[bytes]:
    """A TIFF of several pages, one of several channels, and DICOM files of a scanner."""
    values, found = np.random.default_rng(0).integers(0, 4096, (4, 20, 24)).astype(np.uint16), []
    ways: list[dict[str, Any]] = [{}, {"planarconfig": "separate"}, {"compression": "zlib"}]
    for how in ways:
        stream = io.BytesIO()
        tifffile.imwrite(stream, values, photometric="minisblack", metadata=None, **how)
        found.append(stream.getvalue())
    for name in ("MR_small.dcm", "SC_rgb_rle_2frame.dcm"):
        found.append(Path(str(get_testdata_file(name, download=False))).read_bytes())
    return found


@st.composite
def mutated(draw, seeds):
    """One of the seeds with bytes changed, cut out, repeated or cut off; mostly near the start, where headers are."""
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 6))):
        if not data:
            break
        at = draw(st.integers(0, len(data) - 1) | st.integers(0, min(63, len(data) - 1)))
        match draw(st.sampled_from(["flip", "set", "cut", "delete", "repeat", "insert"])):
            case "flip":
                data[at] ^= 1 << draw(st.integers(0, 7))
            case "set":
                data[at] = draw(st.sampled_from([0, 1, 127, 128, 255]))
            case "cut":
                del data[at:]
            case "delete":
                del data[at : at + draw(st.integers(1, 40))]
            case "repeat":
                data[at:at] = data[at : at + draw(st.integers(1, 40))]
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=16))
    return bytes(data)


def check_decoded(data: bytes, recipe: Recipe, kind: type) -> None:
    (result, _), (header,) = decode_chunk([data], recipe)[0], inspect_chunk([data])
    if isinstance(result, list):
        assert {(one.pixels.shape, one.pixels.dtype) for one in result} == {((8, 8, recipe.channels), np.dtype(kind))}
        assert {one.header for one in result} == {header}
    else:
        assert isinstance(result, Failure)
        assert result.reason.isprintable()
    assert not isinstance(header, Failure) or header.reason.isprintable()


@quick
@given(mutated(SEEDS), st.sampled_from([1, 3]), st.sampled_from(["crop", "pad"]))
def test_mutated_images(data, channels, fit):
    check_decoded(data, Recipe(8, channels, fit), np.uint8)


@quick
@given(mutated(stack_bytes()), st.sampled_from([1, 3, 4]), st.sampled_from([8, 16]))
def test_mutated_stacks(data, channels, bits):
    check_decoded(data, Recipe(8, channels, "crop", bits=bits), np.uint8 if bits == 8 else np.uint16)


@quick
@given(st.binary(max_size=200))
def test_any_bytes(data):
    for start in (b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF\0\0\0\0WEBP", b"BM", b"II*\0", b"GIF89a"):
        (result, _) = decode_chunk([start + data], Recipe(8, 3, "crop"))[0]
        assert isinstance(result, list | Failure)


def archive_seeds():
    members = {f"d/{name}/{i}.png": image_bytes("PNG") for name in "ab" for i in range(6)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "archive")
        seeds = [write_zip(path, members).read_bytes()]
        return seeds + [write_tar(path, members, mode).read_bytes() for mode in ("w", "w:gz", "w:xz", "w:bz2")]


def array_seeds():
    images = np.random.default_rng(0).integers(0, 256, (12, 8, 8), dtype=np.uint8)
    npy, npz, rows = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.save(npy, images)
    np.savez(npz, x=images, y=np.arange(12) % 2)
    np.save(rows, images.reshape(12, 64) / 7)
    return [npy.getvalue(), npz.getvalue(), rows.getvalue()]


def table_seeds():
    text = "a,b,label\n" + "".join(f"{i * 0.5},{i % 7},{'xy'[i % 2]}\n" for i in range(30))
    return [text.encode(), pandas.read_csv(io.StringIO(text))[["a", "b"]].to_parquet()]


def outcome(path, cache):
    try:
        return open_path(path, cache_folder=cache, workers=1), ""
    except InputError as error:
        return None, str(error)


@pytest.mark.parametrize("seeds", [archive_seeds(), array_seeds(), table_seeds()], ids=["archives", "arrays", "tables"])
def test_mutated_files(seeds):
    @few
    @given(mutated(seeds), st.sampled_from([".zip", ".npz", ".csv", ".dat"]))
    def check(data, suffix):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"file{suffix}")
            path.write_bytes(data)
            opened, message = outcome(path, Path(folder, "cache"))
            assert message.isprintable()
            if opened is not None:
                assert total(opened) >= 10
                assert all(item.name.isprintable() and item.reason.isprintable() for item in opened.skipped)
                assert all(note.isprintable() for note in opened.notes)
                assert np.isfinite(opened.dataset.train.inputs(slice(None)).numpy()).all()
            assert {path.name for path in Path(folder).iterdir()} <= {path.name, "cache"}

    check()
