"""Image files of any source to one memory-mapped array: choose size and channels, decode once, keep in the cache."""

import hashlib
import json
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import PIL

from sao.data.dataset import Frames, Images, PixelRange
from sao.data.files.cache import Stored
from sao.data.files.decode import (
    Failure,
    Header,
    Loaded,
    Pages,
    Picture,
    Recipe,
    counted,
    decode_chunk,
    digest,
    digest_chunk,
    inspect_chunk,
    read,
    readers,
)
from sao.data.files.reading import (
    FEW_CHANNELS,
    FRAME,
    FULL_RANGE,
    LINKED_FOLDER,
    Entry,
    Found,
    ReadOptions,
    Skipped,
    Source,
    codes_and_names,
    first_of,
    inside,
    links_said,
)
from sao.data.files.workers import map_in_order
from sao.data.split import SLICE, Layout, labels_or_note, layout_of
from sao.errors import InputError, printable
from sao.runtime.machine import usable_cores

FORMAT_VERSION = 2  # to be raised whenever the same files and options would give other pixels
SMALLEST, LARGEST_CHOSEN, LARGEST = 8, 128, 256
CHUNK_ITEMS, CHUNK_BYTES = 64, 8 * 2**20
CRASHED = Failure("the image decoder crashed on it")
STACK_ENDINGS, CHUNK_STACKS = (".tif", ".tiff", ".dcm"), 4  # a small file may hold thousands of images
FILES_OF_CHANNELS = 10  # so many files of as many pages each are images whose pages are channels
# Below these a second process would take longer to start than it saves.
ALONE_ITEMS, ALONE_BYTES = 1000, 32 * 2**20
# What file managers leave behind is nobody's data: not an image, and not worth a line in the list of skipped files.
LITTER = ("thumbs.db", "desktop.ini")


# --- where the files are -------------------------------------------------------------------------------------------------


class Folder(Source):
    """Every file below a folder. Links to files inside it are followed, all other links are not."""

    def __init__(self, root: Path, exclude: Path | None = None) -> None:
        """`exclude` (the cache) is passed over if it lies inside."""
        super().__init__()
        self.root = os.path.realpath(root)
        excluded = None if exclude is None else os.path.realpath(exclude)
        found: list[tuple[bytes, str, int, str]] = []
        pending = [""]
        while pending:
            relative = pending.pop()
            try:
                with os.scandir(os.path.join(self.root, relative)) as listing:
                    children = list(listing)
            except OSError as error:
                self.skip(relative or ".", f"this folder cannot be read: {error.strerror}")
                continue
            for child in children:
                name = f"{relative}/{child.name}" if relative else child.name
                if is_litter(child.name) or child.path == excluded:
                    continue
                if child.is_dir(follow_symlinks=False):
                    pending.append(name)
                elif isinstance(target := self._target(child), Failure):
                    self.skip(name, target.reason)
                else:
                    found.append((os.fsencode(name), name, target[1], target[0]))
        # By bytes: the same order on every machine, whatever its locale and file system say.
        for _, name, size, target in sorted(found):
            self.entries.append(Entry(name, size))
            self._paths.append(target)

    def _target(self, child: os.DirEntry) -> tuple[str, int] | Failure:
        """The regular file behind this directory entry: its path and size."""
        try:
            path = inside(child.path, self.root) if child.is_symlink() else child.path
            if isinstance(path, Failure):
                return path
            status = os.lstat(path)
        except (OSError, ValueError) as error:
            return Failure(f"cannot be read: {getattr(error, 'strerror', None) or error}")
        if stat.S_ISDIR(status.st_mode):
            return Failure(LINKED_FOLDER)
        return (path, status.st_size) if stat.S_ISREG(status.st_mode) else Failure("not a regular file")


class PathList(Source):
    """Files by their paths, each as a person named it: anywhere, and links are followed."""

    def __init__(self, paths: Sequence[str | os.PathLike[str]], base: str | Path = "") -> None:
        super().__init__()
        for path in paths:
            name = os.fspath(path)
            real = os.path.realpath(os.path.join(base, os.path.expanduser(name)))
            self._paths.append(real)
            self.entries.append(Entry(name, os.path.getsize(real) if os.path.isfile(real) else 0))


def is_litter(name: str) -> bool:
    return name.startswith(".") or name.lower() in LITTER


# --- from files to samples -----------------------------------------------------------------------------------------------


def read_images(source: Source, options: ReadOptions) -> Found:
    """Classes and splits are what the source says of every entry, or else what the folders in their names mean."""
    options.refuse(source.skipped)
    if not source.entries:
        raise _nothing_usable(options, source.skipped)
    stored = _from_cache(source, options)
    failed = dict(stored.facts["failed"])
    skipped = source.skipped + _skipped(source, failed)
    slices = dict(stored.facts.get("slices", []))
    counts = [0 if i in failed else slices.get(i, 1) for i in range(len(source.entries))]
    usable = np.repeat(np.arange(len(counts)), counts)
    options.check(len(usable), skipped)
    frames = None
    if "frames" in stored.arrays and options.crop is not None:
        frames = Frames(stored.arrays["frames"], np.array(stored.facts["aspects"], np.float32), options.crop)
    names = [
        name if count == 1 else f"{name}{SLICE}{number}"
        for name, count in zip((entry.name for entry in source.entries), counts, strict=True)
        for number in range(1, count + 1)
    ]
    if source.labels is None and source.splits is None:
        layout = layout_of(names, options.use_labels, options.split)
    else:
        layout = _given_layout(source, usable, options.use_labels)
    classes = codes_and_names(layout.labels, [printable(name) for name in names])
    links = links_said(options.where, source.skipped)
    notes = stored.facts["notes"] + layout.notes + ([links] if links else [])
    reading = list(stored.facts["reading"])
    levels, pixel_range = _levels(stored, options)
    if pixel_range is not None and options.pixel_range is None:
        reading.append(f"values of 16 bits are kept; they are normalised {pixel_range.said()}")
    images = Images(stored.pixels, *classes, frames, levels)
    return Found(images, layout.splits, skipped, notes, pixel_range, reading)


def _levels(stored: Stored, options: ReadOptions) -> tuple[PixelRange | None, PixelRange | None]:
    """The range of stored values of 16 bits that a network sees, and the same in the units of the data."""
    if stored.pixels.dtype == np.uint8:
        return None, None
    channels = stored.pixels.shape[3]
    if options.pixel_range is not None or options.range is not None:
        given = options.pixel_range or PixelRange.everywhere(*(options.range or FULL_RANGE), channels)
        return PixelRange.everywhere(*FULL_RANGE, channels), given
    levels = PixelRange.of(np.array(stored.facts["low"]), np.array(stored.facts["high"]))
    unit = 1 / FULL_RANGE[1] if stored.facts["floats"] else 1.0
    return levels, PixelRange(tuple(unit * low for low in levels.low), tuple(unit * high for high in levels.high))


def _given_layout(source: Source, usable: np.ndarray, use_labels: bool) -> Layout:
    labels, notes, splits = None, [], None
    if source.labels is not None and use_labels:
        labels, notes = labels_or_note(np.array(source.labels)[usable])
    if source.splits is not None:  # of all entries: as places among the usable ones
        first, second = (np.flatnonzero(np.isin(usable, split)) for split in source.splits)
        splits = first, second
    return Layout(splits, labels, notes)


def _from_cache(source: Source, options: ReadOptions) -> Stored:
    """The decoded images; decoded now where the cache does not have them."""
    cache, prefix = options.cache, _prefix(source, options)
    content = source.digest()
    if content is None and cache.keys(prefix):
        content = _content(source, options)
    stored = None if content is None else cache.read(prefix + content.hex())
    return _decode_all(source, options, prefix, content) if stored is None else stored


def _prefix(source: Source, options: ReadOptions) -> str:
    """Everything about an entry but the contents. If no entry has it, the files need no reading to know it is new."""
    given = None if options.pixel_range is None else options.pixel_range.to_dict()
    facts = [FORMAT_VERSION, PIL.__version__, options.size, options.largest, options.channels, options.fit]
    facts += [options.bits, options.range, given, options.pages]
    if options.crop is not None:
        facts.append(f"frames {FRAME}")
    facts += readers()  # what could not be read before they were installed can be read now
    facts.append([entry.size for entry in source.entries])
    return hashlib.blake2b(json.dumps(facts).encode(), digest_size=8).hexdigest() + "-"


def _content(source: Source, options: ReadOptions) -> bytes:
    combined = hashlib.blake2b(digest_size=16)
    for results in over_files(digest_chunk, source, options, lambda item: digest(read(item)), 0, 1):
        for one in results:
            combined.update(one)
    return combined.digest()


def _survey(source: Source, options: ReadOptions) -> tuple[Recipe, list[str], list[str]]:
    """The recipe, with what was not asked for chosen from the headers of all files; notes, and how pages are read."""
    if options.size is not None and options.channels is not None and options.bits is not None:
        return options.recipe(options.size, options.channels, options.bits), [], []
    headers: Counter[Header] = Counter()
    failures: list[Skipped] = []
    entries = iter(source.entries)
    for results in over_files(inspect_chunk, source, options, lambda _: CRASHED, 0, 2):
        for header, entry in zip(results, entries, strict=False):
            if isinstance(header, Failure):
                failures.append(Skipped(printable(entry.name), header.reason))
                options.refuse(failures)
            else:
                headers[header] += 1
    if not headers:
        raise _nothing_usable(options, source.skipped + failures)
    sides = [min(header.width, header.height) for header in headers.elements()]
    size, note = (options.size, None) if options.size is not None else choose_size(sides, options.largest)
    pages, said = _meaning_of_pages(headers, options)
    bits = options.bits or (16 if {header.values for header in headers} in ({"integers"}, {"floats"}) else 8)
    recipe = options.recipe(size, options.channels or _channels_of(headers, pages == "channels"), bits, pages)
    return recipe, [note] if note else [], [said] if said else []


def _meaning_of_pages(headers: Counter[Header], options: ReadOptions) -> tuple[Pages, str | None]:
    """Whether pages are channels or images: as asked for, as the files tell, or as their number suggests; and one line."""
    stacks = [header for header in headers if header.pages > 1]
    if not stacks:
        return options.pages, None
    chosen, most = options.pages, max(header.pages for header in stacks)
    if chosen == "auto" and all(header.told for header in stacks):
        chosen = "channels" if all(header.together > 1 for header in stacks) else "images"
    elif chosen == "auto":
        alike = len({header.pages for header in headers}) == 1 and most <= FEW_CHANNELS
        chosen = "channels" if alike and headers.total() >= FILES_OF_CHANNELS else "images"
    if options.channels is not None and options.pages == "auto":
        chosen = "auto"  # the channels that are asked for tell, file by file
    files = sum(headers[header] for header in stacks)
    many = f"{most}" if all(header.pages == most for header in stacks) else f"up to {most}"
    other = "channels" if chosen == "images" else "images"
    what = "images of their own" if chosen == "images" else "channels"
    said = (
        f"{files} file{'' if files == 1 else 's'} of {many} pages: pages are read as {what} (--data.pages {other}: as {other})"
    )
    return chosen, None if chosen == "auto" else said


def _channels_of(headers: Counter[Header], as_channels: bool) -> int:
    """Grey or colour; else the number of channels that most files have."""
    counts: Counter[int] = Counter()
    for header, files in headers.items():
        counts[header.channels * (header.together if as_channels else 1)] += files
    if counts.keys() <= {1, 3}:
        return 1 if counts.keys() == {1} else 3
    return counts.most_common(1)[0][0]


def _decode_all(source: Source, options: ReadOptions, prefix: str, content: bytes | None) -> Stored:
    recipe, notes, reading = _survey(source, options)
    surveyed = 1 if None in (options.size, options.channels, options.bits) else 0
    failed: dict[int, str] = {}
    slices: list[tuple[int, int]] = []
    low, high = np.full(recipe.channels, np.inf), np.full(recipe.channels, -np.inf)
    combined, index = hashlib.blake2b(digest_size=16), 0
    headers: Counter[Header] = Counter()
    aspects: list[float] = []
    shapes = {"pixels": recipe.shape} | ({"frames": (recipe.frame, recipe.frame, recipe.channels)} if recipe.frame else {})
    work = partial(decode_chunk, recipe=recipe)
    with options.cache.writer(shapes, len(source.entries), recipe.dtype) as writer:
        lost = lambda item: (CRASHED, digest(read(item)))  # noqa: E731
        for results in over_files(work, source, options, lost, surveyed, surveyed + 1):
            chunk: list[Picture] = []
            for pictures, one in results:
                combined.update(one)
                if isinstance(pictures, Failure):
                    failed[index] = pictures.reason
                    options.refuse(_skipped(source, {index: pictures.reason}))
                else:
                    headers.update(picture.header for picture in pictures)
                    chunk += pictures
                    slices += [(index, len(pictures))] if len(pictures) > 1 else []
                index += 1
            if chunk:
                stacked = {name: np.stack([getattr(picture, name) for picture in chunk]) for name in shapes}
                writer.append(**stacked)
                if recipe.bits > 8:
                    low = np.minimum(low, stacked["pixels"].min(axis=(0, 1, 2)))
                    high = np.maximum(high, stacked["pixels"].max(axis=(0, 1, 2)))
                aspects += [round(picture.aspect, 5) for picture in chunk]
        skipped = source.skipped + _skipped(source, failed)
        if len(failed) == len(source.entries):
            raise _nothing_usable(options, skipped)
        options.check(headers.total(), skipped)
        facts: dict[str, Any] = {"failed": list(failed.items()), "slices": slices}
        facts |= {"notes": notes + _notes_about(headers, recipe), "reading": reading + _lost_bits(headers, recipe)}
        if recipe.bits > 8:
            floats = any(header.values == "floats" for header in headers)
            facts |= {"low": low.tolist(), "high": high.tolist(), "floats": floats}
        if recipe.frame is not None:
            facts["aspects"] = aspects
        return writer.commit(prefix + (content or combined.digest()).hex(), facts)


def _skipped(source: Source, failed: dict[int, str]) -> list[Skipped]:
    return [Skipped(printable(source.entries[i].name), reason) for i, reason in failed.items()]


def _nothing_usable(options: ReadOptions, skipped: list[Skipped]) -> InputError:
    if links := links_said(options.where, skipped):
        return InputError(f"{options.where} has no usable image: {links}")
    return InputError(f"{options.where} has no usable image{first_of(skipped)}: give PNG, JPEG, WebP, BMP, TIFF or GIF files")


def over_files(
    work: Callable[[list], list], source: Source, options: ReadOptions, lost: Callable[[Loaded], object], done: int, passes: int
) -> Iterator[list]:
    """work over all of the source's items in order; progress is that of so many passes, of which some are done."""
    total = len(source.entries)
    count = done * total
    for results in map_in_order(work, _chunks(source), options.workers or _workers(source), lost):
        yield results
        count += len(results)
        if options.progress is not None:
            options.progress(count, passes * total)


def _chunks(source: Source) -> Iterator[list[Loaded]]:
    chunk: list[Loaded] = []
    size = 0
    for entry, item in zip(source.entries, source.load(), strict=True):
        chunk.append(item)
        size += entry.size
        most = CHUNK_STACKS if entry.name.lower().endswith(STACK_ENDINGS) else CHUNK_ITEMS
        if len(chunk) >= most or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _workers(source: Source) -> int:
    small = len(source.entries) < ALONE_ITEMS and sum(entry.size for entry in source.entries) < ALONE_BYTES
    return 1 if small else usable_cores()


# --- what is said of them ------------------------------------------------------------------------------------------------

KINDS = {1: "grey", 3: "colour"}


def _lost_bits(headers: Counter[Header], recipe: Recipe) -> list[str]:
    """Where only some files have more than 8 bits, or a network was trained on 8."""
    deep = sum(n for header, n in headers.items() if header.deep)
    said = f"{deep} of {headers.total()} images have more than 8 bits a pixel and were reduced to 8"
    return [said] if deep and recipe.bits == 8 else []


def _notes_about(headers: Counter[Header], recipe: Recipe) -> list[str]:
    total = headers.total()
    smaller = sum(n for header, n in headers.items() if min(header.width, header.height) < recipe.size)
    transparent = sum(n for header, n in headers.items() if header.transparent)
    more_pages = sum(n for header, n in headers.items() if header.more_pages)
    kept = f"kept at {recipe.frame}x{recipe.frame} for it"
    notes = [
        fit_note({(header.width, header.height) for header in headers}, recipe),
        smaller and f"{smaller} of {total} images are smaller than {recipe.size} pixels and were enlarged",
        transparent and f"{transparent} of {total} images have transparency and were composited on white",
        more_pages and f"{more_pages} files have more pages than the first: pip install 'sao[tiff]' to read them",
        f"images are read as {KINDS.get(recipe.channels, 'images')} ({counted(recipe.channels)})",
        recipe.frame and f"training sees random crops of the whole images, which are {kept}",
    ]
    return [note for note in notes if note]


def choose_size(shorter_sides: list[int], largest: int | None = None) -> tuple[int, str]:
    """The median shorter side rounded down to a power of two in 8..128 or `largest`, and the sentence that says so."""
    middle, largest = int(median(shorter_sides)), largest or LARGEST_CHOSEN
    size = min(max(1 << max(middle.bit_length() - 1, 0), SMALLEST), largest)
    return size, (
        f"size {size} was chosen: the median shorter side is {middle} pixels, and sizes are powers of two from"
        f" {SMALLEST} to {largest} unless set (up to {LARGEST})"
    )


def fit_note(sizes: set[tuple[int, int]], recipe: Recipe) -> str | None:
    """How images of these (width, height) became the recipe's squares; None if they already were."""
    square = all(width == height for width, height in sizes)
    if sizes == {(recipe.size, recipe.size)} and recipe.fit != "centre":
        return None
    (width, height), *others = sizes
    start = f"images of {len(sizes)} different sizes were" if others else f"images of {width}x{height} pixels were"
    if recipe.fit == "centre":
        return (
            f"{start} resized to a short side of {recipe.short_side}, of which the centre {recipe.size}x{recipe.size} is kept"
        )
    way = "centre-cropped to squares and " if recipe.fit == "crop" else "padded to squares with mid-grey and "
    return f"{start} {'' if square else way}resized to {recipe.size}x{recipe.size}"
