"""What a path holds: files of images, a list or a table of them, arrays, or a table of numbers."""

import stat
import tarfile
import zipfile
from pathlib import Path
from typing import Literal

from sao.data.files.decode import is_picture
from sao.data.image_tables import ARROW_STARTS, image_column, image_tables
from sao.data.path_list import paths_in
from sao.data.shard_names import shard_paths
from sao.errors import InputError, printable


def kind_of(path: Path) -> Literal["files", "paths", "image table", "arrays", "table"]:
    """What a path holds, by its content; only tables of text have none to go by."""
    where = printable(str(path))
    if shard_paths(path) is not None:
        return "files"
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return "image table" if image_tables(path) else "files"
        if not stat.S_ISREG(mode):
            raise InputError(f"{where} is neither a folder nor a regular file: give one of these")
        with open(path, "rb") as stream:
            start = stream.read(8)
        if start.startswith(b"\x93NUMPY"):
            return "arrays"
        if start.startswith((b"PAR1", *ARROW_STARTS)):
            return "table" if image_column(path) is None else "image table"
        if start.startswith(b"PK") or zipfile.is_zipfile(path):
            return "arrays" if _is_npz(path) else "files"
        if path.suffix.lower() in (".txt", ".lst") and paths_in(path) is not None:
            return "paths"
        if path.suffix.lower() in (".csv", ".tsv", ".txt"):
            return "table"
        if start.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x5d\x00\x00")) or tarfile.is_tarfile(path):
            return "files"
        if is_picture(path):
            return "files"
    except FileNotFoundError:
        raise InputError(f"there is no file or folder {where}: check the path") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{where} cannot be read ({getattr(error, 'strerror', None) or error}): check it") from None
    raise InputError(f"{where} is not data of a known kind: give a folder, .zip, .tar, .npy, .npz, .csv, .parquet or an image")


def _is_npz(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except Exception:  # damaged: the reader of archives says how
        return path.suffix.lower() == ".npz"
    return bool(names) and all(name.endswith(".npy") for name in names)
