"""Image files of any source to one memory-mapped array: choose size and channels, decode once, keep in the cache."""

import hashlib
import json
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import PIL

from sao.data.dataset import Frames, Images
from sao.data.files.cache import Stored
from sao.data.files.decode import (
    Failure,
    Header,
    Loaded,
    Picture,
    Recipe,
    decode_chunk,
    digest,
    digest_chunk,
    inspect_chunk,
    read,
)
from sao.data.files.reading import FRAME, Entry, Found, ReadOptions, Skipped, Source, Splits, codes_and_names, first_of, inside
from sao.data.files.workers import map_in_order
from sao.data.split import Layout, labels_or_note, layout_of
from sao.errors import InputError, printable
from sao.runtime.machine import usable_cores

FORMAT_VERSION = 1  # to be raised whenever the same files and options would give other pixels
SMALLEST, LARGEST_CHOSEN, LARGEST = 8, 128, 256
CHUNK_ITEMS, CHUNK_BYTES = 64, 8 * 2**20
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
            return Failure("a link to a folder; only links to files are followed")
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
    usable = np.array([i for i in range(len(source.entries)) if i not in failed], np.int64)
    options.check(len(usable), skipped)
    frames = None
    if "frames" in stored.arrays and options.crop is not None:
        frames = Frames(stored.arrays["frames"], np.array(stored.facts["aspects"], np.float32), options.crop)
    names = [source.entries[i].name for i in usable]
    if source.labels is None and source.splits is None:
        layout = layout_of(names, options.use_labels, options.split)
    else:
        layout = _given_layout(source, usable, options.use_labels)
    classes = codes_and_names(layout.labels, [printable(name) for name in names])
    return Found(Images(stored.pixels, *classes, frames), layout.splits, skipped, stored.facts["notes"] + layout.notes)


def _given_layout(source: Source, usable: np.ndarray, use_labels: bool) -> Layout:
    labels, notes = None, []
    if source.labels is not None and use_labels:
        labels, notes = labels_or_note(np.array(source.labels)[usable])
    return Layout(_among(usable, source.splits), labels, notes)


def _among(usable: np.ndarray, splits: Splits | None) -> Splits | None:
    """Splits of all entries as places among the usable ones."""
    if splits is None:
        return None
    first, second = (np.flatnonzero(np.isin(usable, split)) for split in splits)
    return first, second


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
    facts = [FORMAT_VERSION, PIL.__version__, options.size, options.channels, options.fit]
    if options.crop is not None:
        facts.append(f"frames {FRAME}")
    facts.append([entry.size for entry in source.entries])
    return hashlib.blake2b(json.dumps(facts).encode(), digest_size=8).hexdigest() + "-"


def _content(source: Source, options: ReadOptions) -> bytes:
    combined = hashlib.blake2b(digest_size=16)
    for results in over_files(digest_chunk, source, options, lambda item: digest(read(item)), 0, 1):
        for one in results:
            combined.update(one)
    return combined.digest()


def _survey(source: Source, options: ReadOptions) -> tuple[Recipe, list[str]]:
    """The recipe, with what was not asked for chosen from the headers of all files."""
    if options.size is not None and options.channels is not None:
        return options.recipe(options.size, options.channels), []
    shorter_sides: list[int] = []
    every_grey = True
    failures: list[Skipped] = []
    entries = iter(source.entries)
    for results in over_files(inspect_chunk, source, options, lambda _: _CRASHED, 0, 2):
        for header, entry in zip(results, entries, strict=False):
            if isinstance(header, Failure):
                failures.append(Skipped(printable(entry.name), header.reason))
                options.refuse(failures)
                continue
            shorter_sides.append(min(header.width, header.height))
            every_grey = every_grey and header.grey
    if not shorter_sides:
        raise _nothing_usable(options, source.skipped + failures)
    size, note = (options.size, None) if options.size is not None else choose_size(shorter_sides)
    return options.recipe(size, options.channels or (1 if every_grey else 3)), [note] if note else []


def _decode_all(source: Source, options: ReadOptions, prefix: str, content: bytes | None) -> Stored:
    recipe, notes = _survey(source, options)
    surveyed = 1 if notes or options.channels is None else 0
    failed: dict[int, str] = {}
    tally, combined, index = Tally(), hashlib.blake2b(digest_size=16), 0
    aspects: list[float] = []
    sides = {"pixels": recipe.size} | ({"frames": recipe.frame} if recipe.frame else {})
    shapes = {name: (side, side, recipe.channels) for name, side in sides.items()}
    work = partial(decode_chunk, recipe=recipe)
    with options.cache.writer(shapes, len(source.entries)) as writer:
        lost = lambda item: (_CRASHED, digest(read(item)))  # noqa: E731
        for results in over_files(work, source, options, lost, surveyed, surveyed + 1):
            chunk: list[Picture] = []
            for picture, one in results:
                combined.update(one)
                if isinstance(picture, Picture):
                    tally.add(picture.header)
                    chunk.append(picture)
                else:
                    failed[index] = picture.reason
                    options.refuse(_skipped(source, {index: picture.reason}))
                index += 1
            if chunk:
                writer.append(**{name: np.stack([getattr(picture, name) for picture in chunk]) for name in shapes})
                aspects += [round(picture.aspect, 5) for picture in chunk]
        skipped = source.skipped + _skipped(source, failed)
        if len(failed) == len(source.entries):
            raise _nothing_usable(options, skipped)
        options.check(len(source.entries) - len(failed), skipped)
        facts = {"failed": list(failed.items()), "notes": notes + tally.notes(recipe)}
        if recipe.frame is not None:
            facts["aspects"] = aspects
        return writer.commit(prefix + (content or combined.digest()).hex(), facts)


_CRASHED = Failure("the image decoder crashed on it")


def _skipped(source: Source, failed: dict[int, str]) -> list[Skipped]:
    return [Skipped(printable(source.entries[i].name), reason) for i, reason in failed.items()]


def _nothing_usable(options: ReadOptions, skipped: list[Skipped]) -> InputError:
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
        if len(chunk) == CHUNK_ITEMS or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _workers(source: Source) -> int:
    small = len(source.entries) < ALONE_ITEMS and sum(entry.size for entry in source.entries) < ALONE_BYTES
    return 1 if small else usable_cores()


# --- what is said of them ------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What the notes will say about the decoded images."""

    sizes: Counter = field(default_factory=Counter)
    transparent: int = 0
    deep: int = 0

    def add(self, header: Header) -> None:
        self.sizes[header.width, header.height] += 1
        self.transparent += header.transparent
        self.deep += header.deep

    def notes(self, recipe: Recipe) -> list[str]:
        total = sum(self.sizes.values())
        smaller = sum(count for (width, height), count in self.sizes.items() if min(width, height) < recipe.size)
        kept = f"kept at {recipe.frame}x{recipe.frame} for it"
        notes = [
            fit_note(self.sizes, recipe),
            smaller and f"{smaller} of {total} images are smaller than {recipe.size} pixels and were enlarged",
            self.transparent and f"{self.transparent} of {total} images have transparency and were composited on white",
            self.deep and f"{self.deep} of {total} images have more than 8 bits a pixel and were reduced to 8",
            f"images are read as {'grey (1 channel)' if recipe.channels == 1 else 'colour (3 channels)'}",
            recipe.frame and f"training sees random crops of the whole images, which are {kept}",
        ]
        return [note for note in notes if note]


def choose_size(shorter_sides: list[int]) -> tuple[int, str]:
    """The median shorter side rounded down to a power of two in 8..128, and the sentence that says so."""
    middle = int(median(shorter_sides))
    size = min(max(1 << max(middle.bit_length() - 1, 0), SMALLEST), LARGEST_CHOSEN)
    return size, (
        f"size {size} was chosen: the median shorter side is {middle} pixels, and sizes are powers of two from"
        f" {SMALLEST} to {LARGEST_CHOSEN} unless set (up to {LARGEST})"
    )


def fit_note(sizes: Counter, recipe: Recipe) -> str | None:
    """How images of these (width, height) became the recipe's squares; None if they already were."""
    square = all(width == height for width, height in sizes)
    if set(sizes) == {(recipe.size, recipe.size)} and recipe.fit != "centre":
        return None
    if len(sizes) == 1:
        ((width, height),) = sizes
        start = f"images of {width}x{height} pixels were"
    else:
        start = f"images of {len(sizes)} different sizes were"
    if recipe.fit == "centre":
        return (
            f"{start} resized to a short side of {recipe.short_side}, of which the centre {recipe.size}x{recipe.size} is kept"
        )
    way = "centre-cropped to squares and " if recipe.fit == "crop" else "padded to squares with mid-grey and "
    return f"{start} {'' if square else way}resized to {recipe.size}x{recipe.size}"
