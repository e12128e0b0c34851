"""TIFF stacks and DICOM files, written by tifffile and pydicom: channels, slices, bits, windows, and what hostile files do."""

import io
import struct
from pathlib import Path

import numpy as np
import pydicom
import pytest
import tifffile
import torch
from opening import embedded_images, images, names, numbers, opened_images, total
from PIL import Image
from pydicom.data import get_testdata_file
from pydicom.dataset import FileMetaDataset
from pydicom.pixels.processing import apply_modality_lut, apply_voi_lut
from pydicom.uid import UID, CTImageStorage, ExplicitVRLittleEndian, JPEGLSLossless

from sao.data.dataset import Images, PixelRange
from sao.data.files import stacks
from sao.data.files.decode import Failure, Header, Recipe, decode_all, decode_chunk, inspect_chunk
from sao.data.files.open import Opened, open_path
from sao.data.loader import Batches
from sao.errors import InputError

DRAWS = np.random.default_rng(0)


def values(*shape: int, most: int = 4096) -> np.ndarray:
    return DRAWS.integers(0, most, shape).astype(np.uint16)


def opened_folder(folder: Path, **options) -> tuple[Opened, Images]:
    opened = open_path(folder, **options)
    return opened, images(opened.dataset.train)


def written(folder: Path, arrays, **how) -> Path:
    folder.mkdir()
    for i, array in enumerate(arrays):
        tifffile.imwrite(folder / f"{i:03d}.tif", array, **how)
    return folder


def failure(data: bytes, recipe: Recipe | None = None) -> str:
    found, header = decode_chunk([data], recipe or Recipe(8, 1, "crop"))[0][0], inspect_chunk([data])[0]
    assert isinstance(found, Failure), found
    assert isinstance(header, Failure | Header)
    assert "\n" not in found.reason
    return found.reason


def tiff(array: np.ndarray, photometric: str = "minisblack", **how) -> bytes:
    stream = io.BytesIO()
    tifffile.imwrite(stream, array, photometric=photometric, **how)
    return stream.getvalue()


def decoded(data: bytes, recipe: Recipe) -> np.ndarray:
    """All images of a file."""
    found = decode_all(data, recipe)
    assert isinstance(found, list), found
    return np.stack([picture.pixels for picture in found])


def header_of(data: bytes) -> Header:
    header = inspect_chunk([data])[0]
    assert isinstance(header, Header)
    return header


# --- TIFF ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("planar", ["contig", "separate"])
def test_samples_of_a_page_are_channels(tmp_path, planar):
    arrays = values(12, 16, 16, 5)
    order = arrays if planar == "contig" else np.moveaxis(arrays, -1, 1)
    folder = written(tmp_path / "d", order, photometric="minisblack", planarconfig=planar)
    opened, train = opened_folder(folder)
    assert train.shape == (5, 16, 16)
    assert train.pixels.dtype == np.uint16
    np.testing.assert_array_equal(train.pixels, arrays[numbers(train)])
    low, high = (of(arrays, axis=(0, 1, 2)) for of in (np.min, np.max))
    assert opened.pixel_range == PixelRange.of(low, high)


def test_pages_of_many_files_alike_are_channels_and_it_can_be_changed(tmp_path):
    folder = written(tmp_path / "d", values(12, 4, 16, 16), photometric="minisblack", metadata=None)
    opened, train = opened_folder(folder)
    assert train.shape == (4, 16, 16)
    assert any("12 files of 4 pages: pages are read as channels (--data.pages images" in note for note in opened.reading)
    opened, train = opened_folder(folder, pages="images")
    assert train.shape == (1, 16, 16)
    assert total(opened) == 48
    assert all(" slice " in name for name in names(train))
    assert len(embedded_images(folder, (1, 16, 16), pixel_range=opened.pixel_range)) == 48
    assert len(embedded_images(folder, (4, 16, 16), pixel_range=PixelRange.everywhere(0, 4095, 4))) == 12


def test_pages_of_one_file_are_images(tmp_path):
    pages = values(30, 16, 16)
    tifffile.imwrite(tmp_path / "stack.tif", pages, metadata=None)
    opened, train = opened_folder(tmp_path / "stack.tif")
    assert train.shape == (1, 16, 16)
    assert any("1 file of 30 pages: pages are read as images of their own" in note for note in opened.reading)
    rows = [int(name.rpartition(" ")[2]) - 1 for name in names(train)]
    np.testing.assert_array_equal(np.asarray(train.pixels)[..., 0], pages[rows])


@pytest.mark.parametrize(
    ("how", "shape", "order"),
    [
        ({"imagej": True, "metadata": {"axes": "ZCYX"}}, (6, 3, 16, 16), (0, 2, 3, 1)),
        ({"metadata": {"axes": "CZYX"}}, (3, 6, 16, 16), (1, 2, 3, 0)),
        ({"ome": True, "metadata": {"axes": "CZYX"}}, (3, 6, 16, 16), (1, 2, 3, 0)),
    ],
)
def test_axes_that_a_file_names_are_followed(how, shape, order):
    array = values(*shape)
    np.testing.assert_array_equal(decoded(tiff(array, **how), Recipe(16, 3, "crop", bits=16)), array.transpose(order))


def test_bytes_stay_with_pillow_and_numbers_of_several_kinds_are_reduced(tmp_path):
    folder = written(tmp_path / "d", DRAWS.integers(0, 256, (10, 16, 16, 3), dtype=np.uint8))
    Image.fromarray(values(16, 16, most=60000)).save(folder / "deep.png")
    opened, train = opened_folder(folder)
    assert train.shape == (3, 16, 16)
    assert train.pixels.dtype == np.uint8
    assert any("1 of 11 images have more than 8 bits" in note for note in opened.reading)


def test_colours_of_sixteen_bits_keep_them(tmp_path):
    arrays = values(12, 16, 16, 3, most=60000)
    _, train = opened_folder(written(tmp_path / "d", arrays, photometric="rgb"))
    assert train.shape == (3, 16, 16)
    np.testing.assert_array_equal(train.pixels, arrays[numbers(train)])


def test_deep_png_files_keep_sixteen_bits(tmp_path):
    (tmp_path / "d").mkdir()
    arrays = values(12, 16, 16)
    for i, array in enumerate(arrays):
        Image.fromarray(array).save(tmp_path / "d" / f"{i:03d}.png")
    opened, train = opened_folder(tmp_path / "d")
    np.testing.assert_array_equal(np.asarray(train.pixels)[..., 0], arrays[numbers(train)])
    assert any("values of 16 bits are kept; they are normalised from" in note for note in opened.reading)
    samples = embedded_images(tmp_path / "d", (1, 16, 16), pixel_range=opened.pixel_range)
    np.testing.assert_allclose(samples.inputs(np.array(numbers(train))), train.inputs(slice(None)), atol=2e-4)
    assert samples.inputs(slice(0, 1)).dtype == train.inputs(slice(0, 1)).dtype


def test_floats_need_a_range_unless_they_are_parts_of_one(tmp_path):
    reflectance = DRAWS.random((12, 16, 16, 2)).astype(np.float32) / 2
    how = {"photometric": "minisblack", "planarconfig": "contig"}
    opened, train = opened_folder(written(tmp_path / "d", reflectance, **how))
    assert opened.pixel_range is not None
    assert max(opened.pixel_range.high) <= 0.5
    found = opened.pixel_range.values(train.inputs(slice(None))).numpy()
    np.testing.assert_allclose(found, reflectance[numbers(train)], atol=1e-4)
    folder = written(tmp_path / "e", 1000 * reflectance, **how)
    with pytest.raises(InputError, match=r"values go from .* say what range they are in by --data\.range"):
        opened_folder(folder)
    opened, _ = opened_folder(folder, range=(0, 500))
    assert opened.pixel_range == PixelRange.everywhere(0, 500, 2)


def test_floats_of_another_range_are_not_those_in_the_cache(tmp_path):
    values = 100 * DRAWS.random((12, 16, 16)).astype(np.float32)
    folder = written(tmp_path / "d", values)
    for most in (200, 1000, 200):
        opened, train = opened_folder(folder, range=(0, most), cache_folder=tmp_path / "cache")
        assert opened.pixel_range is not None
        found = opened.pixel_range.values(train.inputs(slice(None))).numpy()
        np.testing.assert_allclose(found[..., 0], values[numbers(train)], atol=0.02)


def test_a_page_that_is_a_thumbnail_is_passed_over():
    stream = io.BytesIO()
    with tifffile.TiffWriter(stream) as writer:
        writer.write(values(32, 32), metadata=None)
        writer.write(values(8, 8), metadata=None)
    assert header_of(stream.getvalue()).pages == 1


def test_min_is_white_is_inverted():
    array = values(3, 16, 16, most=65535)
    data = tiff(array, photometric="miniswhite", metadata=None)
    np.testing.assert_array_equal(decoded(data, Recipe(16, 1, "crop", bits=16))[..., 0], 65535 - array)


def test_damaged_tiff_files_are_failures_with_a_reason():
    whole = tiff(values(4, 32, 32), metadata=None)
    for length in (9, 60, 300, len(whole) - 1000):
        failure(whole[:length])
    nan = DRAWS.random((4, 16, 16)).astype(np.float32)
    nan[2, 3, 3] = np.nan
    assert "not a finite number" in failure(tiff(nan, metadata=None), Recipe(8, 1, "crop", bits=16))
    assert failure(tiff(values(16, 16, 5), planarconfig="contig")).startswith("it has 5 channels")
    assert "8 bits a pixel" in failure(tiff(np.zeros((3, 8, 8), np.uint8)), Recipe(8, 1, "crop", bits=16))


PAGE = struct.pack("<H", 3) + b"".join(struct.pack("<HHII", tag, 4, 1, 8) for tag in (256, 257, 273))


def test_a_chain_of_seventy_thousand_pages_is_refused_at_once():
    following = [8 + (number + 1) * (len(PAGE) + 4) for number in range(69_999)] + [0]
    body = b"".join(PAGE + struct.pack("<I", offset) for offset in following)
    assert "more than 4096 pages" in failure(b"II*\x00" + struct.pack("<I", 8) + body)


def test_pages_in_a_circle_come_to_an_end():
    failure(b"II*\x00" + struct.pack("<I", 8) + PAGE + struct.pack("<I", 8))


def test_a_header_of_a_billion_pixels_is_refused_before_it_is_read():
    whole = bytearray(tiff(values(2, 8, 8, 5), planarconfig="contig", metadata=None))
    with tifffile.TiffFile(io.BytesIO(bytes(whole))) as opened:
        first = opened.pages.first
        for name in ("ImageWidth", "ImageLength"):
            tag = first.tags[name]
            size = tifffile.TIFF.DATA_FORMATS[tag.dtype]
            struct.pack_into(f"<{size[-1]}", whole, tag.valueoffset, 60_000)
    assert "million pixels" in failure(bytes(whole), Recipe(8, 5, "crop", bits=16))


def test_without_tifffile_only_first_pages_are_read_and_it_is_said(tmp_path, monkeypatch):
    pages = DRAWS.integers(0, 256, (10, 3, 16, 16), dtype=np.uint8)
    folder = written(tmp_path / "d", pages, photometric="minisblack", metadata=None)
    monkeypatch.setattr(stacks, "has_tifffile", lambda: False)
    monkeypatch.setattr("sao.data.files.decode.has_tifffile", lambda: False)
    opened, train = opened_folder(folder)
    assert train.shape == (1, 16, 16)
    assert any("10 files have more pages than the first: pip install 'sao[tiff]'" in note for note in opened.notes)
    assert "pip install 'sao[tiff]'" in failure(tiff(values(16, 16, 5), planarconfig="contig"))


def test_random_crops_are_of_sixteen_bits_too(tmp_path):
    folder = written(tmp_path / "d", values(12, 20, 16, 5), photometric="minisblack", planarconfig="contig")
    _, train = opened_folder(folder, size=8, crop=0.5)
    assert train.frames is not None
    assert train.frames.pixels.dtype == np.uint16
    rows = torch.arange(6)
    seen = Batches(train, torch.device("cpu")).training_inputs(rows, seed=0, step=0, places=slice(0, 6))
    assert seen.shape == (6, 5, 8, 8)
    assert 0.2 < float(seen.std()) < 1
    assert -1 <= float(seen.min()) <= float(seen.max()) <= 1


def test_data_sets_of_torch_may_hold_any_channels():
    arrays = values(12, 5, 16, 16)
    train = opened_images([(torch.from_numpy(array.astype(np.int32)), i % 2) for i, array in enumerate(arrays)])
    assert train.shape == (5, 16, 16)
    np.testing.assert_array_equal(train.pixels, np.moveaxis(arrays[numbers(train)], 1, -1))
    assert opened_images([(array, 0) for array in values(12, 16, 16)]).pixels.dtype == np.uint16


# --- DICOM ---------------------------------------------------------------------------------------------------------------


def dicom(frames: np.ndarray, **tags) -> bytes:
    """A CT image of 12 bits, or several frames of one."""
    found = pydicom.Dataset()
    found.file_meta = FileMetaDataset()
    found.file_meta.TransferSyntaxUID = tags.pop("syntax", ExplicitVRLittleEndian)
    found.file_meta.MediaStorageSOPClassUID = found.SOPClassUID = CTImageStorage
    found.file_meta.MediaStorageSOPInstanceUID = found.SOPInstanceUID = UID("1.2.3")
    found.Rows, found.Columns = frames.shape[-2:]
    found.SamplesPerPixel, found.PhotometricInterpretation = 1, "MONOCHROME2"
    found.BitsAllocated, found.BitsStored, found.HighBit, found.PixelRepresentation = 16, 12, 11, 0
    if frames.ndim == 3:
        found.NumberOfFrames = len(frames)
    found.PixelData = frames.astype("<u2").tobytes()
    for name, value in tags.items():
        if value is None:
            delattr(found, name)
        else:
            setattr(found, name, value)
    stream = io.BytesIO()
    found.save_as(stream, enforce_file_format=True)
    return stream.getvalue()


def grey(data: bytes, size: int = 16) -> np.ndarray:
    return decoded(data, Recipe(size, 1, "crop", bits=16))[..., 0].astype(np.float64)


def test_rescaled_values_without_a_window_are_seen_by_all_their_bits():
    frame = values(16, 16)
    data = dicom(frame, RescaleSlope=2, RescaleIntercept=-1024)
    np.testing.assert_allclose(grey(data)[0], frame / 4095 * 65535, atol=0.51)


def test_the_window_and_the_modality_are_those_of_pydicom():
    frame, tags = values(16, 16), {"RescaleSlope": 1, "RescaleIntercept": -1024, "WindowCenter": 40, "WindowWidth": 400}
    data = dicom(frame, **tags)
    found = pydicom.dcmread(io.BytesIO(data))
    shown = apply_voi_lut(apply_modality_lut(found.pixel_array, found), found)
    np.testing.assert_allclose(grey(data)[0], (shown + 1024) / 4095 * 65535, atol=0.51)
    np.testing.assert_array_equal(grey(dicom(frame, **tags, PhotometricInterpretation="MONOCHROME1")), 65535 - grey(data))


def test_frames_are_slices_with_windows_of_their_own(tmp_path):
    frames = values(12, 16, 16)
    groups = []
    for width in range(12):
        voi, item = pydicom.Dataset(), pydicom.Dataset()
        voi.WindowCenter, voi.WindowWidth = 2048, 400 + 100 * width
        item.FrameVOILUTSequence = [voi]
        groups.append(item)
    data = dicom(frames, PerFrameFunctionalGroupsSequence=groups)
    found = grey(data)
    assert len(found) == 12
    for i in (0, 11):
        alone = dicom(frames[i], WindowCenter=2048, WindowWidth=400 + 100 * i)
        np.testing.assert_array_equal(found[i], grey(alone)[0])
    (tmp_path / "one.dcm").write_bytes(data)
    opened, train = opened_folder(tmp_path / "one.dcm")
    assert train.shape == (1, 16, 16)
    assert {*names(train), *names(opened.dataset.test)} == {f"one.dcm slice {number}" for number in range(1, 13)}


def test_a_folder_of_dicom_files_with_and_without_endings(tmp_path):
    (tmp_path / "d").mkdir()
    for i in range(12):
        (tmp_path / "d" / (f"IM{i:04d}" if i % 2 else f"{i}.dcm")).write_bytes(dicom(values(16, 16)))
    (tmp_path / "d" / "DICOMDIR.dcm").write_bytes(dicom(values(16, 16), PixelData=None))
    opened, train = opened_folder(tmp_path / "d")
    assert total(opened) == 12
    assert train.pixels.dtype == np.uint16
    assert [(item.name, item.reason) for item in opened.skipped] == [("DICOMDIR.dcm", "a DICOM file without pixel data")]


def scanned(name: str) -> bytes:
    return Path(str(get_testdata_file(name, download=False))).read_bytes()


GREY = ["CT_small.dcm", "MR_small.dcm", "MR_small_RLE.dcm", "MR_small_bigendian.dcm"]
COLOUR = ["SC_rgb_rle_2frame.dcm", "examples_palette.dcm", "SC_rgb_jpeg_dcmtk.dcm"]


@pytest.mark.parametrize(("name", "channels"), [*((name, 1) for name in GREY), *((name, 3) for name in COLOUR)])
def test_files_of_scanners_are_read(name, channels):
    found = decoded(scanned(name), Recipe(16, channels, "crop", bits=16 if channels == 1 else 8))
    assert len(found) == (2 if "2frame" in name else 1)
    assert found[0].std() > 0
    assert header_of(scanned(name)).channels == channels


@pytest.mark.parametrize(
    "name", ["MR_truncated.dcm", "test-SR.dcm", "rtplan.dcm", "rtdose.dcm", "image_dfl.dcm", "MR_small_jpeg_ls_lossless.dcm"]
)
def test_files_that_cannot_be_read_are_failures_with_a_reason(name):
    failure(scanned(name))


def test_what_pydicom_cannot_decode_is_named():
    assert JPEGLSLossless.name in failure(scanned("MR_small_jpeg_ls_lossless.dcm"))


def test_hostile_dicom_files_are_failures():
    frame = values(16, 16)
    whole = dicom(frame)
    for length in (133, 200, 400, len(whole) - 100):
        failure(whole[:length])
    assert "million pixels" in failure(dicom(frame, Rows=60_000, Columns=60_000))
    assert "more than 4096 pages" in failure(dicom(frame, NumberOfFrames=100_000))
    assert "finite" in failure(dicom(frame, RescaleSlope=0, RescaleIntercept=0))
    failure(dicom(frame, BitsStored=None))
    failure(dicom(frame, WindowCenter=40, WindowWidth=0))


def test_a_constant_image_is_an_image():
    assert (grey(dicom(np.full((16, 16), 7))) == round(7 / 4095 * 65535)).all()
    assert (grey(tiff(np.full((2, 16, 16), 7, np.uint16), metadata=None)) == 7).all()


def test_without_pydicom_one_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(stacks, "has_pydicom", lambda: False)
    (tmp_path / "a.dcm").write_bytes(dicom(values(16, 16)))
    with pytest.raises(InputError, match=r"pip install 'sao\[dicom\]'"):
        open_path(tmp_path / "a.dcm")
