"""Small pictures in one large one: a page of five thousand files would not be one file, and not small."""

import base64
import hashlib
import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from sao.data.dataset import Images

BYTES_EACH = 320  # of a thumbnail: five thousand of them leave room in 3 MB
LEAST_BUDGET = 300_000  # bytes that a sheet may have, however few there are
TRIED = 200  # thumbnails that are encoded to see how much a setting needs
LOSSLESS_SIDE = 16  # pixels: neighbours on the sheet would bleed into smaller ones
# From the best to the smallest: longer side in pixels, quality (None: without loss).
SETTINGS: tuple[tuple[int, int | None], ...] = ((48, None), (48, 80), (40, 75), (32, 75), (32, 55), (24, 55), (24, 35))


class Sheets:
    """The sheets of a page by name; the same pictures, as runs on the same data show, are there once."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, Any]] = {}

    def add(self, images: Images) -> str:
        digest = hashlib.blake2b(digest_size=8)
        for start in range(0, len(images), 1024):
            digest.update(images.pixels[start : start + 1024].tobytes())
        name = digest.hexdigest()
        if name not in self.found:
            self.found[name] = sheet(images)
        return name


def sheet(images: Images) -> dict[str, Any]:
    """All images on one WebP picture: its address, how many stand in a row, width and height of each."""
    tiles, quality = _that_fit(images)
    columns = math.ceil(math.sqrt(len(tiles)))
    height, width = tiles.shape[1:3]
    return {
        "uri": data_uri(_encoded(tiles, columns, quality), "webp"),
        "columns": columns,
        "width": width,
        "height": height,
    }


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


def _that_fit(images: Images) -> tuple[np.ndarray, int | None]:
    """The largest and best thumbnails that a page has room for."""
    budget = max(BYTES_EACH, LEAST_BUDGET / len(images))
    some = np.linspace(0, len(images) - 1, min(TRIED, len(images))).astype(np.int64)
    longer = max(images.shape[1:])
    for side, quality in SETTINGS[:-1]:
        if quality is None and min(side, longer) > LOSSLESS_SIDE:
            continue
        tiles = _tiles(images, side, some)
        if len(_encoded(tiles, math.ceil(math.sqrt(len(tiles))), quality)) <= budget * len(tiles):
            return _tiles(images, side), quality
    side, quality = SETTINGS[-1]
    return _tiles(images, side), quality


def _tiles(images: Images, side: int, rows: np.ndarray | None = None) -> np.ndarray:
    """uint8 (n, h, w, 3), no side longer than asked for."""
    rows = np.arange(len(images)) if rows is None else rows
    height, width = images.shape[1:]
    factor = min(1.0, side / max(height, width))
    size = max(1, round(height * factor)), max(1, round(width * factor))
    tiles = np.empty((len(rows), *size, 3), np.uint8)
    for start in range(0, len(rows), 512):
        block = torch.from_numpy(np.array(images.pixels[rows[start : start + 512]]))
        if size != (height, width):
            pooled = torch.nn.functional.adaptive_avg_pool2d(block.permute(0, 3, 1, 2).float(), size)
            block = pooled.round().byte().permute(0, 2, 3, 1)
        tiles[start : start + len(block)] = block[..., :3].numpy() if block.shape[-1] >= 3 else block[..., :1].numpy()
    return tiles


def _encoded(tiles: np.ndarray, columns: int, quality: int | None) -> bytes:
    from PIL import Image

    n, height, width, _ = tiles.shape
    lines = -(-n // columns)
    canvas = np.zeros((lines * columns, height, width, 3), np.uint8)
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
