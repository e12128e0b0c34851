"""A source's files to one memory-mapped array: choose size and channels from the data, decode once, keep in the cache."""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import PIL

from sao.data.dataset import Frames
from sao.data.file_source import Skipped, Source
from sao.data.files.cache import Cache, Stored
from sao.data.files.decode import (
    Failure,
    Loaded,
    Picture,
    decode_chunk,
    digest,
    digest_chunk,
    inspect_chunk,
    read,
)
from sao.data.files.workers import map_in_order
from sao.data.fitting import Recipe
from sao.data.image_notes import Tally, choose_size
from sao.errors import InputError, printable
from sao.machine import usable_cores

FORMAT_VERSION = 1  # to be raised whenever the same files and options would give other pixels
FRAME = 2  # a whole frame is kept at so many times the size: a crop of a quarter of its area then still has all its pixels
CHUNK_ITEMS, CHUNK_BYTES = 64, 8 * 2**20
# Below these a second process would take longer to start than it saves.
ALONE_ITEMS, ALONE_BYTES = 1000, 32 * 2**20

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ImageRequest:
    """What the user asked for; None is "choose from the data". With `crop`, whole images are kept beside the squares."""

    size: int | None
    channels: int | None
    fit: str
    crop: float | None = None

    def __post_init__(self) -> None:
        allowed = [2**k for k in range(3, 9)]
        if self.size is not None and self.size not in allowed:
            raise InputError(f"size {self.size} is not possible: choose one of {', '.join(map(str, allowed))}")
        if self.channels not in (None, 1, 3):
            raise InputError(f"channels {self.channels} is not possible: choose 1 (grey) or 3 (colour)")
        if self.fit not in ("crop", "pad", "centre"):
            raise InputError(f'fit "{self.fit}" is not known: choose "crop", "pad" or "centre"')

    def recipe(self, size: int, channels: int) -> Recipe:
        """With what was not asked for."""
        return Recipe(size, channels, self.fit, FRAME * size if self.crop is not None else None)


@dataclass(frozen=True)
class Pictures:
    """Usable images in the source's order, and what became of the others."""

    pixels: np.ndarray
    names: list[str]
    skipped: list[Skipped]
    notes: list[str]
    key: str
    usable: np.ndarray  # their places among the source's entries
    frames: Frames | None = None


@dataclass
class Reading:
    """How to go about it, as opposed to what comes out."""

    where: str
    minimum: int
    split: bool
    workers: int | None = None
    strict: bool = False
    progress: Progress | None = None


def read_pictures(source: Source, request: ImageRequest, cache: Cache, reading: Reading) -> Pictures:
    if reading.strict and source.skipped:
        raise strict_error(source.skipped[0])
    if not source.entries:
        raise nothing_usable(reading.where, source.skipped)
    prefix = _prefix(source, request)
    content = source.digest()
    if content is None and cache.keys(prefix):
        content = _content(source, reading)
    key = None if content is None else prefix + content.hex()
    stored = None if key is None else cache.read(key)
    if stored is None:
        key, stored = _decode_all(source, request, cache, reading, prefix, content)
    assert key is not None
    failed = dict(stored.facts["failed"])
    names = [entry.name for i, entry in enumerate(source.entries) if i not in failed]
    skipped = [Skipped(printable(source.entries[i].name), reason) for i, reason in failed.items()]
    if reading.strict and skipped:
        raise strict_error(skipped[0])
    check_enough(len(names), reading, source.skipped + skipped)
    frames = None
    if stored.frames is not None and request.crop is not None:
        frames = Frames(stored.frames, np.array(stored.facts["aspects"], np.float32), request.crop)
    usable = np.array([i for i in range(len(source.entries)) if i not in failed], np.int64)
    return Pictures(stored.pixels, names, source.skipped + skipped, stored.facts["notes"], key, usable, frames)


def strict_error(item: Skipped) -> InputError:
    return InputError(f"{item.name}: {item.reason}; mend or remove it")


def nothing_usable(where: str, skipped: list[Skipped]) -> InputError:
    why = f" ({len(skipped)} skipped, the first: {skipped[0].name}: {skipped[0].reason})" if skipped else ""
    return InputError(f"{where} has no usable image{why}: give PNG, JPEG, WebP, BMP, TIFF or GIF files")


def check_enough(usable: int, reading: Reading, skipped: list[Skipped]) -> None:
    if usable < reading.minimum:
        why = f" ({len(skipped)} skipped, the first: {skipped[0].name}: {skipped[0].reason})" if skipped else ""
        raise InputError(
            f"{reading.where} has only {usable} usable samples{why}: give at least {reading.minimum},"
            " and many more to learn from"
        )


def _prefix(source: Source, request: ImageRequest) -> str:
    """Everything about an entry but the contents. If no entry has it, the files need no reading to know it is new."""
    parts = [FORMAT_VERSION, PIL.__version__, request.size, request.channels, request.fit]
    if request.crop is not None:
        parts.append(f"frames {FRAME}")
    parts.append([entry.size for entry in source.entries])
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest() + "-"


def _content(source: Source, reading: Reading) -> bytes:
    combined = hashlib.blake2b(digest_size=16)
    for results in _process(digest_chunk, source, reading, lambda item: digest(read(item)), 0, 1):
        for one in results:
            combined.update(one)
    return combined.digest()


def _survey(source: Source, request: ImageRequest, reading: Reading) -> tuple[Recipe, list[str]]:
    """The recipe, with what was not asked for chosen from the headers of all files."""
    if request.size is not None and request.channels is not None:
        return request.recipe(request.size, request.channels), []
    shorter_sides: list[int] = []
    every_grey = True
    failures: list[Skipped] = []
    names = iter(source.entries)
    for results in _process(inspect_chunk, source, reading, lambda _: _CRASHED, 0, 2):
        for header, entry in zip(results, names, strict=False):
            if isinstance(header, Failure):
                failures.append(Skipped(printable(entry.name), header.reason))
                if reading.strict:
                    raise strict_error(failures[0])
                continue
            shorter_sides.append(min(header.width, header.height))
            every_grey = every_grey and header.grey
    if not shorter_sides:
        raise nothing_usable(reading.where, source.skipped + failures)
    notes = []
    size = request.size
    if size is None:
        size, note = choose_size(shorter_sides)
        notes.append(note)
    return request.recipe(size, request.channels or (1 if every_grey else 3)), notes


def _decode_all(
    source: Source, request: ImageRequest, cache: Cache, reading: Reading, prefix: str, content: bytes | None
) -> tuple[str, Stored]:
    recipe, notes = _survey(source, request, reading)
    surveyed = 1 if notes or request.channels is None else 0
    failed: list[tuple[int, str]] = []
    tally = Tally()
    combined = hashlib.blake2b(digest_size=16)
    index = 0
    shape, frames = ((side, side, recipe.channels) for side in (recipe.size, recipe.frame or 0))
    aspects: list[float] = []
    work = partial(decode_chunk, recipe=recipe)
    with cache.writer(shape, len(source.entries), frames if recipe.frame else None) as writer:
        lost = lambda item: (_CRASHED, digest(read(item)))  # noqa: E731
        for results in _process(work, source, reading, lost, surveyed, surveyed + 1):
            block: list[Picture] = []
            for picture, one in results:
                combined.update(one)
                if isinstance(picture, Picture):
                    tally.add(picture.header)
                    block.append(picture)
                else:
                    failed.append((index, picture.reason))
                    if reading.strict:
                        raise strict_error(Skipped(printable(source.entries[index].name), picture.reason))
                index += 1
            if block:
                whole = [picture.frame for picture in block if picture.frame is not None]
                writer.append(np.stack([picture.pixels for picture in block]), np.stack(whole) if whole else None)
                aspects += [round(picture.aspect, 5) for picture in block]
        names = [Skipped(printable(source.entries[i].name), reason) for i, reason in failed]
        if len(failed) == len(source.entries):
            raise nothing_usable(reading.where, source.skipped + names)
        check_enough(len(source.entries) - len(failed), reading, source.skipped + names)
        key = prefix + (content or combined.digest()).hex()
        facts = {"failed": failed, "notes": notes + tally.notes(recipe)}
        if recipe.frame is not None:
            facts["aspects"] = aspects
        return key, writer.commit(key, facts)


_CRASHED = Failure("the image decoder crashed on it")


def _process(
    work: Callable[[list], list], source: Source, reading: Reading, lost: Callable[[Loaded], object], phase: int, phases: int
) -> Iterator[list]:
    """work over all of the source's items in order, reporting progress as this phase of so many."""
    total = len(source.entries)
    done = phase * total
    for results in map_in_order(work, _chunks(source), _workers(source, reading.workers), lost):
        yield results
        done += len(results)
        if reading.progress is not None:
            reading.progress(done, phases * total)


def _chunks(source: Source) -> Iterator[list[Loaded]]:
    chunk: list[Loaded] = []
    size = 0
    for entry, item in zip(source.entries, source.load(), strict=True):
        chunk.append(item)
        size += entry.size
        if len(chunk) == CHUNK_ITEMS or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _workers(source: Source, asked: int | None) -> int:
    if asked is not None:
        if asked < 1:
            raise InputError(f"workers {asked} is not possible: give 1 or more")
        return asked
    small = len(source.entries) < ALONE_ITEMS and sum(entry.size for entry in source.entries) < ALONE_BYTES
    return 1 if small else usable_cores()
