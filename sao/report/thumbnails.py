"""Small pictures in a few large ones: thousands of files would not be one page, and not small."""

import base64
import hashlib
import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from sao.data.dataset import Images
from sao.training.pictures import as_shown

PAGE_BYTES = 10_000_000  # of a whole page, at the most
OTHER_BYTES = 1_200_000  # of it for code, curves and samples over time
BYTES_OF_A_NAME = 160  # of it for what is said of each sample, with its name and neighbours
SHEET_SIDE = 2048  # pixels of a sheet: a phone decodes it, a browser need not keep all of them at once
TRIED = 200  # thumbnails that are encoded to see how much a setting needs
LOSSLESS_SIDE = 16  # pixels: neighbours on the sheet would bleed into smaller ones
SIDES = (160, 128, 112, 96, 80, 64, 48, 40, 32, 24, 16)
QUALITIES = (80, 65, 50, 38, 28)  # of WebP
COARSE, COARSE_SIDE = 50, 48  # lower qualities than this only for thumbnails that are small already
GENERATED_BYTES = 300_000


def budget(samples: int) -> int:
    """Bytes for the thumbnails of so many samples on one page; a third more as text."""
    return max(GENERATED_BYTES, (PAGE_BYTES - OTHER_BYTES - BYTES_OF_A_NAME * samples) * 3 // 4)


def side_for(samples: int, room: int) -> int:
    """The largest thumbnails that are likely to fit in good quality: a pixel of a photograph takes about a sixth of a byte."""
    return next((side for side in SIDES if samples * side * side / 6 <= room), SIDES[-1])


class Sheets:
    """The sheets of a page by name; the same pictures, as runs on the same data show, are there once."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, Any]] = {}

    def add(self, tiles: np.ndarray, room: int = GENERATED_BYTES) -> str:
        """Of tiles uint8 (n, h, w, c); they are made smaller or coarser until they fit into so many bytes."""
        name = hashlib.blake2b(np.ascontiguousarray(tiles).data, digest_size=8).hexdigest()
        if name not in self.found:
            self.found[name] = sheet(tiles, room)
        return name


def sheet(tiles: np.ndarray, room: int = GENERATED_BYTES) -> dict[str, Any]:
    """All tiles on WebP pictures: their addresses, how many stand on each and in a row, width and height of each."""
    tiles = as_shown(tiles)
    tiles, quality = _that_fit(tiles if tiles.shape[-1] == 3 else tiles.repeat(3, axis=-1), room)
    height, width = tiles.shape[1:3]
    columns = max(1, min(SHEET_SIDE // width, math.ceil(math.sqrt(len(tiles)))))
    each = columns * max(1, SHEET_SIDE // height)
    parts = [tiles[start : start + each] for start in range(0, len(tiles), each)]
    return {
        "uris": [data_uri(_encoded(part, columns, quality), "webp") for part in parts],
        "each": each,
        "columns": columns,
        "width": width,
        "height": height,
    }


def tiles_of(images: Images, side: int, channels: Sequence[int] | None = None) -> np.ndarray:
    """uint8 (n, h, w, c) of images in memory as they are shown, no side longer than asked for."""
    return shrunk(lambda some: as_shown(images.bytes[some], channels), len(images), images.shape[1:], side)


def shrunk(read: Any, n: int, size: tuple[int, ...], side: int) -> np.ndarray:
    """Pictures that `read` gives for a slice of numbers, averaged down so that no side is longer than asked for."""
    height, width = size
    factor = min(1.0, side / max(height, width))
    smaller = max(1, round(height * factor)), max(1, round(width * factor))
    parts = []
    for start in range(0, n, 512):
        block = torch.from_numpy(np.array(read(slice(start, min(n, start + 512)))))
        if smaller != (height, width):
            pooled = torch.nn.functional.adaptive_avg_pool2d(block.permute(0, 3, 1, 2).float(), smaller)
            block = pooled.round().byte().permute(0, 2, 3, 1)
        parts.append(block.numpy())
    return np.concatenate(parts)


def data_uri(content: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}"


def picture(content: bytes, longest: int = 640) -> str:
    """A picture of any format as an address; as WebP where that is smaller, and no wider than is shown."""
    from PIL import Image

    with Image.open(io.BytesIO(content)) as opened:
        kind, shown = (opened.format or "png").lower(), opened.convert("RGB")
    if max(shown.size) > longest:
        shown.thumbnail((longest, longest))
        content, kind = b"", "webp"
    stream = io.BytesIO()
    shown.save(stream, "WEBP", quality=75)
    smaller = stream.getvalue()
    return data_uri(content, kind) if content and len(content) <= len(smaller) else data_uri(smaller, "webp")


def _that_fit(tiles: np.ndarray, room: int) -> tuple[np.ndarray, int | None]:
    """The largest and best thumbnails that there is room for; quality None is without loss."""
    some = tiles[np.linspace(0, len(tiles) - 1, min(TRIED, len(tiles))).astype(np.int64)]
    longer = max(tiles.shape[1:3])
    for side in [longer, *(side for side in SIDES if side < longer)]:
        tried = _resized(some, side)
        for quality in QUALITIES if side > LOSSLESS_SIDE else (None, *QUALITIES):
            needed = len(_encoded(tried, math.ceil(math.sqrt(len(tried))), quality)) / len(tried) * len(tiles)
            if needed <= room and (quality is None or quality >= COARSE or side <= COARSE_SIDE):
                return _resized(tiles, side), quality
    return _resized(tiles, min(longer, SIDES[-1])), QUALITIES[-1]


def _resized(tiles: np.ndarray, side: int) -> np.ndarray:
    return shrunk(lambda some: tiles[some], len(tiles), tiles.shape[1:3], side)


def _encoded(tiles: np.ndarray, columns: int, quality: int | None) -> bytes:
    from PIL import Image

    n, height, width, channels = tiles.shape
    lines = -(-n // columns)
    canvas = np.zeros((lines * columns, height, width, channels), np.uint8)
    canvas[:n] = tiles
    canvas = canvas.reshape(lines, columns, height, width, 3).swapaxes(1, 2).reshape(lines * height, columns * width, 3)
    stream = io.BytesIO()
    how: dict[str, Any] = {"lossless": True, "method": 2} if quality is None else {"quality": quality, "method": 3}
    Image.fromarray(canvas).save(stream, "WEBP", **how)
    return stream.getvalue()


def evenly(items: Sequence[Any], count: int) -> list[Any]:
    """At most so many of the items, the first and the last among them."""
    if len(items) <= count:
        return list(items)
    return [items[i] for i in np.linspace(0, len(items) - 1, count).round().astype(int)]
