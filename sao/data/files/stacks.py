"""TIFF of several pages or channels, by tifffile, and DICOM, by pydicom: arrays of any number of channels and bits.

Both libraries are extras. This module is imported by worker processes, so it imports no torch, and a library only when a file
needs it. Files may come from strangers: sizes are checked before anything is decoded, and no other file is opened.
"""

import importlib.util
import io
import json
import re
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, BinaryIO

import numpy as np

TIFF_STARTS = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")
START_BYTES, DICOM = 132, b"DICM"  # after 128 bytes
MOST_PAGES = 4096
MOST_PIXELS = 1_000_000_000  # of all pages together
PAGE_PIXELS = 100_000_000
PAGE_BYTES = 800_000_000
DEFLATED = "1.2.840.10008.1.2.1.99"  # inflated as a whole by pydicom, whatever it becomes
FULL = 65535


class StackError(ValueError):
    """Why a file cannot be used; a sentence fragment."""


@dataclass(frozen=True, eq=False)
class Stack:
    """Pages (h, w, c) that are read one at a time.

    `grid` lists the pages of each image where pages are channels; `told` says whether the file itself has it so.
    """

    height: int
    width: int
    samples: int  # channels of a page
    dtype: np.dtype
    grid: list[list[int]]
    told: bool
    read: Any  # page number → array (h, w, c)

    @property
    def pages(self) -> int:
        return sum(map(len, self.grid))

    def images(self, as_channels: bool) -> Iterator[np.ndarray]:
        groups = self.grid if as_channels else [[page] for pages in self.grid for page in pages]
        for pages in groups:
            planes = [self.read(page) for page in pages]
            yield planes[0] if len(planes) == 1 else np.concatenate(planes, axis=-1)


def open_stack(stream: BinaryIO, start: bytes) -> Stack | None:
    """Of a file that begins so; None where Pillow reads it as well, StackError where it cannot be used."""
    if start[128:132] == DICOM:
        return _dicom(stream)
    return _tiff(stream) if has_tifffile() else None


@cache
def has_tifffile() -> bool:
    return importlib.util.find_spec("tifffile") is not None


@cache
def has_pydicom() -> bool:
    return importlib.util.find_spec("pydicom") is not None


def _check_size(width: int, height: int, samples: int, itemsize: int, pages: int) -> None:
    if min(width, height, samples) < 1:
        raise StackError("the image has no pixels")
    if width * height > PAGE_PIXELS or width * height * samples * itemsize > PAGE_BYTES:
        raise StackError(f"{width}x{height} with {samples} channels is more than {PAGE_PIXELS // 1_000_000} million pixels")
    if pages > MOST_PAGES:
        raise StackError(f"more than {MOST_PAGES} pages: split it")
    if width * height * pages > MOST_PIXELS:
        raise StackError(f"{pages} pages of {width}x{height} are more than {MOST_PIXELS // 1_000_000} million pixels")


# --- TIFF ----------------------------------------------------------------------------------------------------------------


def _tiff(stream: BinaryIO) -> Stack | None:
    import tifffile

    length = stream.seek(0, io.SEEK_END)
    stream.seek(0)
    opened = tifffile.TiffFile(stream, name="image")  # else it asks the stream, which may have a number
    with suppress(IndexError):
        opened.pages[MOST_PAGES]
        raise StackError(f"more than {MOST_PAGES} pages: split it")
    if _ends_early(opened, stream):
        raise StackError("cut off: a page is missing")
    first: Any = opened.pages.first
    alphas = sum(int(kind) in (1, 2) for kind in first.extrasamples)
    grey = first.photometric in (0, 1)
    alike = [number for number, page in enumerate(opened.pages) if number == 0 or _alike(page, first)]
    if len(alike) == 1 and (first.samplesperpixel == 1 or (first.bitspersample <= 8 and not (grey and alphas == 0))):
        return None
    if first.dtype is None or not (grey or first.photometric == 2):
        raise StackError(f"a TIFF stack with colours of the kind {first.photometric}, which is not read")
    samples = first.samplesperpixel - (alphas if not grey else 0)
    _check_size(first.imagewidth, first.imagelength, first.samplesperpixel, first.dtype.itemsize, len(alike))

    def read(number: int) -> np.ndarray:
        page: Any = opened.pages[alike[number]]
        if any(offset + size > length for offset, size in zip(page.dataoffsets, page.databytecounts, strict=True)):
            raise StackError("cut off: the file is shorter than its pages")
        try:
            values = page.asarray(maxworkers=1)
        except ValueError as error:
            raise StackError(_codec(error, page)) from None
        if page.axes.startswith("S"):
            values = np.moveaxis(values, 0, -1)
        values = values.reshape(page.imagelength, page.imagewidth, page.samplesperpixel)[..., :samples]
        if values.dtype == bool:
            values = values.astype(np.uint8) * 255
        inverted = page.photometric == 0 and values.dtype.kind == "u"
        return np.iinfo(values.dtype).max - values if inverted else values

    grid = _grid(first.description, len(alike))
    told = grid is not None
    return Stack(first.imagelength, first.imagewidth, samples, first.dtype, grid or [list(range(len(alike)))], told, read)


def _ends_early(opened: Any, stream: BinaryIO) -> bool:
    """Whether the last page that was found names another, which tifffile passes over in silence."""
    form, last = opened.tiff, opened.pages[-1]
    stream.seek(last.offset)
    (count,) = struct.unpack(form.tagnoformat, stream.read(form.tagnosize))
    stream.seek(last.offset + form.tagnosize + count * form.tagsize)
    (following,) = struct.unpack(form.offsetformat, stream.read(form.offsetsize))
    return following != 0


def _alike(page: Any, first: Any) -> bool:
    """Pages of another form are thumbnails, or the same image at other sizes."""
    page = page.aspage()
    return page.shape == first.shape and page.dtype == first.dtype


def _codec(error: Exception, page: Any) -> str:
    if "imagecodecs" in str(error):
        return f"compressed by {page.compression.name}: pip install imagecodecs to read it"
    return f"damaged: {str(error)[:80]}"


def _grid(description: str, pages: int) -> list[list[int]] | None:
    """The pages of each image, as ImageJ, OME or tifffile wrote them into the file; None where nothing tells."""
    axes = _axes(description[:100_000])
    if axes is None or np.prod([count for _, count in axes]) != pages:
        return None
    order, names = np.arange(pages).reshape([count for _, count in axes]), [name for name, _ in axes]
    order = np.moveaxis(order, names.index("C"), -1) if "C" in names else order[..., None]
    return order.reshape(-1, order.shape[-1]).tolist()


def _axes(description: str) -> list[tuple[str, int]] | None:
    """Axes of the pages with their lengths, the slowest first."""
    if description.startswith("ImageJ="):
        told = dict(re.findall(r"^(channels|slices|frames|images)=(\d+)\s*$", description, re.MULTILINE))
        sizes = [("T", int(told.get("frames", 1))), ("Z", int(told.get("slices", 1))), ("C", int(told.get("channels", 1)))]
        return sizes if len(told.keys() - {"images"}) else None
    if "<OME" in description:
        order = re.search(r'DimensionOrder="XY([ZCT]{3})"', description)
        told = {name: re.search(rf'\bSize{name}="(\d+)"', description) for name in "ZCT"}
        if order is None or None in told.values():
            return None
        return [(name, int(told[name].group(1))) for name in reversed(order.group(1))]  # pyright: ignore
    try:
        told = json.loads(description) if description.startswith('{"shape"') else {}
        axes, shape = told["axes"], told["shape"]
        if len(axes) != len(shape):
            return None
        return [(axis, int(count)) for axis, count in zip(axes, shape, strict=True) if axis not in "YXS"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


# --- DICOM ---------------------------------------------------------------------------------------------------------------


def _dicom(stream: BinaryIO) -> Stack:
    """Grey values become 16 bits: by the window of the file, or without one by all that its bits can hold."""
    if not has_pydicom():
        raise StackError("a DICOM file: pip install 'sao[dicom]' to read it")
    from pydicom import dcmread
    from pydicom.filereader import _read_file_meta_info, read_preamble
    from pydicom.pixels.processing import apply_color_lut
    from pydicom.pixels.utils import pixel_array

    stream.seek(0)
    read_preamble(stream, False)
    try:
        syntax = str(_read_file_meta_info(stream).get("TransferSyntaxUID", ""))
    except (struct.error, EOFError):
        raise StackError("damaged: its header is cut off") from None
    if syntax == DEFLATED:
        raise StackError("a deflated DICOM file: save it without that compression")
    stream.seek(0)
    found = dcmread(stream)
    if "Rows" not in found or not any(name in found for name in ("PixelData", "FloatPixelData", "DoubleFloatPixelData")):
        raise StackError("a DICOM file without pixel data")
    if "PixelData" not in found:
        raise StackError("a DICOM file of floating-point pixels, which is not read")
    pages, samples = int(found.get("NumberOfFrames") or 1), int(found.SamplesPerPixel)
    height, width = int(found.Rows), int(found.Columns)
    _check_size(width, height, samples, int(found.BitsAllocated) // 8 or 1, pages)
    palette = found.PhotometricInterpretation == "PALETTE COLOR"

    def read(page: int) -> np.ndarray:
        try:
            frame = pixel_array(found, index=page)
        except (RuntimeError, NotImplementedError):
            name = getattr(found.file_meta.TransferSyntaxUID, "name", syntax)
            raise StackError(f"compressed by {name}, for which pydicom has no decoder here") from None
        if palette:
            frame = apply_color_lut(frame, found)
            return frame if frame.dtype == np.uint8 else (frame >> 8).astype(np.uint8)
        if samples > 1:
            return (frame >> max(0, int(found.BitsStored) - 8)).astype(np.uint8)
        return _sixteen_bits(frame, _facts(found, page))[..., None]

    kind = np.dtype(np.uint8 if palette or samples > 1 else np.uint16)
    return Stack(height, width, 3 if palette else samples, kind, [[page] for page in range(pages)], True, read)


def _facts(found: Any, page: int) -> Any:
    """What says how stored values become grey ones: of an enhanced file it lies in the groups of each frame."""
    from pydicom import Dataset

    facts = Dataset()
    names = ("BitsStored", "PixelRepresentation", "PhotometricInterpretation", "RescaleSlope", "RescaleIntercept")
    names += ("ModalityLUTSequence", "VOILUTSequence", "VOILUTFunction", "WindowCenter", "WindowWidth")
    for name in names:
        if found.get(name) is not None:
            setattr(facts, name, found.get(name))
    facts.file_meta = found.file_meta
    groups = list(found.get("SharedFunctionalGroupsSequence") or [])[:1]
    groups += list(found.get("PerFrameFunctionalGroupsSequence") or [])[page : page + 1]
    for group in groups:
        for name in ("PixelValueTransformationSequence", "FrameVOILUTSequence"):
            if group.get(name):
                facts.update(group[name].value[0])
    return facts


def _sixteen_bits(frame: np.ndarray, facts: Any) -> np.ndarray:
    from pydicom.pixels.processing import apply_modality_lut, apply_voi_lut

    bits = int(facts.BitsStored)
    windowed = None not in (facts.get("WindowCenter"), facts.get("WindowWidth"))
    if bits > 16 and not windowed:
        raise StackError(f"{bits} bits a pixel and no window: save 16 bits")
    values = apply_voi_lut(apply_modality_lut(frame, facts), facts).astype(np.float64)
    if facts.get("VOILUTSequence"):
        low, high = 0.0, 2.0 ** int(facts.VOILUTSequence[0].LUTDescriptor[2]) - 1
    else:
        low, high = _extremes(facts, bits)
        if not windowed:
            low, high = min(low, high), max(low, high)
    if not (np.isfinite([low, high]).all() and low != high and np.isfinite(values).all()):
        raise StackError("damaged: its rescaling or its window is not of finite numbers")
    grey = np.rint(((values - low) / (high - low)).clip(0, 1) * FULL).astype(np.uint16)
    return FULL - grey if facts.PhotometricInterpretation == "MONOCHROME1" else grey


def _extremes(facts: Any, bits: int) -> tuple[float, float]:
    """What the stored bits can hold, after the modality's own table or line: so windows map to it, too."""
    if facts.get("ModalityLUTSequence"):
        return 0.0, 2.0 ** int(facts.ModalityLUTSequence[0].LUTDescriptor[2]) - 1
    signed = int(facts.PixelRepresentation) == 1
    low, high = (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1) if signed else (0.0, 2.0**bits - 1)
    slope, intercept = facts.get("RescaleSlope"), facts.get("RescaleIntercept")
    if slope is None or intercept is None:
        return low, high
    return low * float(slope) + float(intercept), high * float(slope) + float(intercept)
