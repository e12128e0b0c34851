"""Arrays in .npz files: listed, then read by name; never unpickled, and never more than the file could honestly hold."""

import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from sao.errors import InputError, explained, printable

# Data hardly compresses, so a file that unpacks to far more than its own size was made to exhaust the reader.
MAX_EXPANSION = 200
ALWAYS_ALLOWED_BYTES = 2**30

_PLAIN = " as an .npz of plain arrays", "save it again with numpy.savez, without pickled objects"


def npz_names(path: Path) -> list[str]:
    with explained(path, *_PLAIN), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    if sum(member.file_size for member in members) > max(ALWAYS_ALLOWED_BYTES, MAX_EXPANSION * path.stat().st_size):
        raise InputError(f"{printable(str(path))} unpacks to more than {MAX_EXPANSION} times its size: save it uncompressed")
    return [member.filename.removesuffix(".npy") for member in members]


def read_npz(path: Path, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    """These arrays of a file, or all of them; those that it does not have are left out."""
    found = npz_names(path)
    with explained(path, *_PLAIN), open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
        return {name: np.asarray(arrays[name]) for name in found if names is None or name in names}
