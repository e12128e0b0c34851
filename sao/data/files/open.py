"""From a name, a path or an object to data: the one door through which commands, estimator and studies come.

It opens folders and archives of images, lists and tables of them, arrays, and tables of numbers. Bad items are skipped and
named. A path that a person wrote, in a list or in Python, may lead anywhere. A path inside a folder, archive or table may not
leave it, because those may come from a stranger.
"""

import os
import stat
import tarfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from sao.data.dataset import Dataset, Images, PixelRange, Samples, Standardiser
from sao.data.files.archives import Shards, TarArchive, ZipArchive
from sao.data.files.arrays import read_arrays
from sao.data.files.arrow import TABLE_STARTS, ImageTable, image_column
from sao.data.files.decode import ENDINGS, is_picture
from sao.data.files.images import Folder, PathList, read_images
from sao.data.files.objects import readable
from sao.data.files.reading import Found, Readable, ReadOptions, Skipped, Source
from sao.data.files.tables import listed, read_numbers
from sao.data.named import NAMES, open_named
from sao.data.split import HELD_OUT, held_out_samples
from sao.errors import InputError, printable
from sao.runtime.code_files import IMPORTED, split

FEWEST_SAMPLES = 10
MOST_SHARDS = 100_000


@dataclass(frozen=True)
class Opened:
    """The data, the items left out of it, sentences to print, and for vectors the transform that new rows need."""

    dataset: Dataset
    skipped: list[Skipped]
    notes: list[str]
    standardiser: Standardiser | None = None
    labelled: str | None = None  # of a table of labels: how many of the samples it names
    pixel_range: PixelRange | None = None  # of images of 16 bits, in the units of the data
    reading: Sequence[str] = ()  # sentences to print in any case, about what could be read in another way


def open_data(
    source: str,
    *,
    folder: str,
    size: int | None = None,
    crop: float | None = None,
    labels: bool = True,
    held_out: float = 0.1,
    seed: int = 0,
    download: bool = True,
    **options: Any,
) -> Opened:
    """A named data set, or whatever is at a path, with the options of `open_path`. A name comes before a path."""
    if source not in NAMES:
        if not data_exists(source):
            if (code := split(source)) is not None:
                raise InputError(f"the data comes from {source}: add --code PATH/{code[0]} if you trust that file")
            raise InputError(f"there is no file or folder {source}, and no data set of that name ({', '.join(NAMES)})")
        return open_path(source, size=size, crop=crop, use_labels=labels, held_out=held_out, seed=seed, **options)
    if crop is not None:
        raise InputError(f"data.crop takes crops of whole image files, and {source} holds none: set method.augmentation.crop")
    if ignored := [name for name in ("channels", "axes", "range") if options.get(name) is not None]:
        raise InputError(f"data.{ignored[0]} is for files and arrays, and {source} is what it is: leave it out")
    dataset = open_named(source, Path(folder).expanduser(), size, labels, held_out, seed, download)
    here = [f"{source} is the data set of that name; what lies here is ./{source}"] if Path(source).exists() else []
    return Opened(dataset, [], here)


def open_path(
    path: str | os.PathLike[str] | Readable,
    *,
    held_out: float = 0.1,
    seed: int = 0,
    length_scale: float = 16.0,
    shape: Sequence[int] | None = None,
    standardiser: Standardiser | None = None,
    **options: Any,
) -> Opened:
    """A training and a test set from any path; labels, if there are any, are for evaluation only.

    `options` are those of `ReadOptions`. With the `shape` and the `standardiser` of a trained network, the data is brought
    into the form that it expects.
    """
    path = _place(path)
    asked = _options(path, shape, standardiser, minimum=FEWEST_SAMPLES, split=True, **options)
    found = _read(path, asked, shape)
    samples, splits, notes = found.samples, found.splits, found.notes
    if splits is None:
        count = len(samples.names or ())
        splits = held_out_samples(samples.names or (), samples.labels, held_out, seed)
        kind = ", of every class its share" if samples.labels is not None else ""
        notes.append(f"{len(splits[1])} of {count} samples are held out{kind} (seed {seed})")
    else:
        notes.append(f"{len(splits[0])} samples to train on, {len(splits[1])} held out")
    name = (printable(path.resolve().stem) if isinstance(path, Path) else path.name) or "data"
    if isinstance(samples, Images):
        train, test = samples.select(splits[0]), replace(samples, frames=None).select(splits[1])
        return Opened(Dataset(name, train, test), found.skipped, notes, pixel_range=found.pixel_range, reading=found.reading)
    if shape is None:
        standardiser = Standardiser.fit(samples.values[splits[0]], samples.columns, length_scale, seed)
        notes += _standardiser_notes(standardiser, samples.columns, length_scale)
    scaled = samples.scaled(standardiser)
    if shape is not None:
        _check_columns(scaled, shape, asked)
    return Opened(Dataset(name, scaled.select(splits[0]), scaled.select(splits[1])), found.skipped, notes, standardiser)


def open_for_embedding(
    path: str | os.PathLike[str] | Readable,
    *,
    shape: Sequence[int],
    standardiser: Standardiser | None = None,
    **options: Any,
) -> tuple[Samples, list[Skipped], list[str]]:
    """Every usable sample of a path, in order and unsplit, in the shape (c, h, w) or (d,) that a trained network expects."""
    path = _place(path)
    asked = _options(path, shape, standardiser, **options)
    found = _read(path, asked, shape)
    if isinstance(found.samples, Images):
        return found.samples, found.skipped, [*found.reading, *found.notes]
    samples = found.samples.scaled(standardiser)
    _check_columns(samples, shape, asked)
    return samples, found.skipped, found.notes


def _options(
    path: Path | Readable, shape: Sequence[int] | None, standardiser: Standardiser | None, **options: Any
) -> ReadOptions:
    """All that a reader needs to know; images as a network of this input shape expects them."""
    if shape is not None and len(shape) == 3:
        if shape[1] != shape[2]:
            raise InputError(f"the network expects images of shape {tuple(shape)}, and only square ones can be read")
        options |= {"size": shape[1], "channels": shape[0], "bits": 8 if options.get("pixel_range") is None else 16}
    where = printable(str(path)) if isinstance(path, Path) else path.name
    return ReadOptions(where, columns=None if standardiser is None else standardiser.columns, **options)


def _check_columns(samples: Samples, shape: Sequence[int], options: ReadOptions) -> None:
    if samples.shape != tuple(shape):
        raise InputError(f"{options.where} has {samples.shape[0]} columns and the network expects {shape[0]}")


def _standardiser_notes(standardiser: Standardiser, columns: Sequence[str], length_scale: float) -> list[str]:
    constant = [name for name in columns if name not in standardiser.columns]
    notes = [f"columns dropped because they have one value in all training rows: {listed(constant)}"] if constant else []
    notes.append(
        f"{len(standardiser.columns)} columns were standardised by the training set and multiplied by"
        f" {standardiser.factor:.3g}, so that the median distance between rows is {length_scale:g}"
    )
    return notes


# --- what a path holds ---------------------------------------------------------------------------------------------------


def _read(path: Path | Readable, options: ReadOptions, shape: Sequence[int] | None) -> Found:
    if not isinstance(path, Path):
        found = path.read(options)
    elif isinstance(held := source_or_kind(path, options.cache.folder), Source):
        found = read_images(held, options)
    elif options.crop is not None:
        raise InputError(f"data.crop takes crops of whole image files, and {options.where} holds none: leave it out")
    else:
        found = read_arrays(path, options) if held == "arrays" else read_numbers(path, options)
    images = isinstance(found.samples, Images)
    if shape is not None and images != (len(shape) == 3):
        trained, given = ("vectors", "images") if images else ("images", "vectors")
        raise InputError(f"the network was trained on {trained} and {options.where} holds {given}: give {trained}")
    return found


def source_or_kind(path: Path, exclude: Path | None = None) -> Source | Literal["arrays", "numbers"]:
    """The image files at a path, or which other data it holds, by its content; only tables of text have none to go by."""
    where = printable(str(path))
    if (shards := shard_paths(path)) is not None:
        return Shards(shards)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            tables = _tables_in(path)
            table = ImageTable(tables, path) if tables else None
            return table if table and table.tables else Folder(path, exclude)
        if not stat.S_ISREG(mode):
            raise InputError(f"{where} is neither a folder nor a regular file: give one of these")
        with open(path, "rb") as stream:
            start = stream.read(8)
        if start.startswith(b"\x93NUMPY"):
            return "arrays"
        if start.startswith(TABLE_STARTS):
            return "numbers" if image_column(path) is None else ImageTable([path])
        zipped = start.startswith(b"PK") or zipfile.is_zipfile(path)
        if zipped and _is_npz(path):
            return "arrays"
        if not zipped and path.suffix.lower() in (".txt", ".lst") and (paths := _paths_in(path)) is not None:
            return PathList(paths, path.parent)
        if not zipped and path.suffix.lower() in (".csv", ".tsv", ".txt"):
            return "numbers"
        if is_picture(path):
            return PathList([path.name], path.parent)
        if zipped:
            return ZipArchive(path)
        if start.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x5d\x00\x00")) or tarfile.is_tarfile(path):
            return TarArchive(path)
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"there is no file or folder {where}: check the path") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{where} cannot be read ({getattr(error, 'strerror', None) or error}): check it") from None
    raise InputError(f"{where} is not data of a known kind: give a folder, .zip, .tar, .npy, .npz, .csv, .parquet or an image")


def image_files(path: Path, exclude: Path | None = None) -> dict[str, str]:
    """The image files of a folder or a list, by the names of their samples."""
    held = source_or_kind(path, exclude)
    if not isinstance(held, Folder | PathList):
        raise InputError(f"{printable(str(path))} is no folder of image files, so there are none to copy: give one")
    return held.files


def shard_paths(path: str | os.PathLike[str]) -> list[Path] | None:
    """The files that a pattern such as shards/{000..127}.tar names, as WebDataset and the shell write it, in order.

    None where it is no pattern, or the name of a file that is there.
    """
    before, _, rest = os.fspath(path).rpartition("{")
    numbers, closed, after = rest.partition("}")
    first, dots, last = numbers.partition("..")
    if not (closed and dots and first.isdecimal() and last.isdecimal()) or os.path.exists(path):
        return None
    if not 0 <= int(last) - int(first) < MOST_SHARDS:
        raise InputError(
            f"{printable(os.fspath(path))} names no shards, or more than {MOST_SHARDS}: write the lower number first"
        )
    return [Path(f"{before}{number:0{len(first)}d}{after}") for number in range(int(first), int(last) + 1)]


def _place(path: str | os.PathLike[str] | Readable) -> Path | Readable:
    """A path; or what FILE.py:FUNCTION returns, once a person has named the file: data, or a pair of data and labels."""
    if not isinstance(path, str | os.PathLike):
        return path
    code = split(os.fspath(path))
    if code is None or code[0] not in IMPORTED:
        return Path(path)
    found = IMPORTED[code[0]].function(code[1])()
    return readable(*found) if isinstance(found, tuple) and len(found) == 2 else readable(found)


def data_exists(path: str | os.PathLike[str]) -> bool:
    """Whether something is at this path, or at the first that a pattern names; or a file of code that has it was named."""
    code = split(os.fspath(path))
    if code is not None and code[0] in IMPORTED:
        return True
    paths = shard_paths(path)
    return os.path.exists(path if paths is None else paths[0])


def _tables_in(folder: Path) -> list[Path]:
    """The Parquet or Arrow files of a folder, as Hugging Face saves a data set in several."""
    places = [folder, *(place for name in ("data", "train", *HELD_OUT) if (place := folder / name).is_dir())]
    names = (os.path.join(place, name) for place in places for name in os.listdir(place))
    # By name first: a million pictures, not a stat each.
    return sorted(Path(name) for name in names if name.lower().endswith((".parquet", ".arrow")) and os.path.isfile(name))


def _is_npz(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except Exception:  # damaged: the reader of archives says how
        return path.suffix.lower() == ".npz"
    return bool(names) and all(name.endswith(".npy") for name in names)


def _paths_in(file: Path) -> list[str] | None:
    """The path of an image in each line, as written; None where the first line is no such path."""
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8-sig", errors="surrogateescape").splitlines()]
    except (OSError, UnicodeError):
        return None
    paths = [line for line in lines if line and not line.startswith("#")]
    if not paths or not paths[0].lower().endswith(ENDINGS):
        return None
    beside = os.path.join(file.parent, os.path.expanduser(paths[0]))
    several_cells = any(mark in paths[0] for mark in ",;\t") and not os.path.exists(beside)
    return None if several_cells else paths
