"""Zip and tar archives of image files, read without extracting anything to disk; what cannot be used is named with a reason."""

import bz2
import gzip
import hashlib
import io
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from sao.data.file_source import Entry, Skipped, Source, is_litter_path
from sao.data.files.decode import MAX_FILE_BYTES, Failure, Loaded, is_picture
from sao.data.folder import Folder, SingleFile
from sao.errors import InputError, printable
from sao.npz import ALWAYS_ALLOWED_BYTES, MAX_EXPANSION

MAX_TEXT_BYTES = 256


def open_source(path: Path, exclude: Path | None = None) -> Source:
    """The folder, archive or single image at this path; `exclude` (the cache) is passed over if it lies inside."""
    if path.is_dir():
        return Folder(path, exclude)
    if is_picture(path):
        return SingleFile(path)
    with open(path, "rb") as stream:
        zipped = stream.read(2) == b"PK"
    return ZipArchive(path) if zipped or zipfile.is_zipfile(path) else TarArchive(path)


class ZipArchive:
    """The members of a zip file, read one at a time into memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: list[Entry] = []
        self.skipped: list[Skipped] = []
        self._members: list[zipfile.ZipInfo] = []
        try:
            with zipfile.ZipFile(path) as archive:
                members = archive.infolist()
        except Exception as error:  # zipfile lets struct, zlib and codec errors through on damaged directories
            raise _unreadable(path, error) from None
        expanded = sum(member.file_size for member in members)
        if expanded > max(ALWAYS_ALLOWED_BYTES, MAX_EXPANSION * path.stat().st_size):
            raise _bomb(path)
        for member in members:
            name = member.filename.replace("\\", "/")
            if member.is_dir() or is_litter_path(name):
                continue
            mode = member.external_attr >> 16
            if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG):
                reason = "a link or special file"
            else:
                reason = _refusal(name, member.file_size)
            if member.flag_bits & 1:
                reason = "encrypted"
            if reason:
                self.skipped.append(Skipped(printable(name), reason))
            else:
                self.entries.append(Entry(name, member.file_size))
                self._members.append(member)

    def load(self) -> Iterator[Loaded]:
        with zipfile.ZipFile(self.path) as archive:
            for member in self._members:
                try:
                    with archive.open(member) as stream:
                        data = stream.read(MAX_FILE_BYTES + 1)
                    yield data if len(data) <= MAX_FILE_BYTES else Failure("larger than the archive says")
                except Exception as error:
                    yield Failure(f"damaged in the archive: {_short(error)}")

    def digest(self) -> bytes | None:
        return file_digest(self.path)


@dataclass
class TarArchive:
    """The members of a tar file, plain or compressed, read as one stream from front to back."""

    path: Path
    entries: list[Entry] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    passed_over: tuple[str, ...] = ()  # endings of members that are no images
    kept: str | None = None  # ending of those among them whose text is kept, by name
    texts: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            with _tar_stream(self.path) as archive:
                for member in archive:
                    if member.isdir() or is_litter_path(member.name):
                        continue
                    if member.name.lower().endswith(self.passed_over):
                        self._keep_text(archive, member)
                    elif reason := self._refusal(member):
                        self.skipped.append(Skipped(printable(member.name), reason))
                    else:
                        self.entries.append(Entry(member.name, member.size))
        except InputError:
            raise
        except Exception as error:  # tarfile, zlib, bz2 and lzma each have their own
            if not self.entries:
                raise _unreadable(self.path, error) from None
            reason = f"the archive is damaged, nothing after member {len(self.entries)} was read: {_short(error)}"
            self.skipped.append(Skipped(printable(self.path.name), reason))

    def load(self) -> Iterator[Loaded]:
        given = 0
        try:
            with _tar_stream(self.path) as archive:
                for member in archive:
                    if member.isdir() or is_litter_path(member.name) or self._refusal(member):
                        continue
                    if member.name.lower().endswith(self.passed_over):
                        continue
                    stream = archive.extractfile(member)
                    data = b"" if stream is None else stream.read(MAX_FILE_BYTES + 1)
                    yield data if len(data) == member.size else Failure("cut off in the archive")
                    given += 1
                    if given == len(self.entries):
                        return
        except (OSError, EOFError, ValueError, tarfile.TarError, lzma.LZMAError, zlib.error) as error:
            failure = Failure(f"damaged in the archive: {_short(error)}")
            yield from [failure] * (len(self.entries) - given)

    def digest(self) -> bytes | None:
        return file_digest(self.path)

    def _keep_text(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        if self.kept is None or not member.name.lower().endswith(self.kept):
            return
        if member.isreg() and (stream := archive.extractfile(member)) is not None:
            self.texts[member.name] = stream.read(MAX_TEXT_BYTES).decode("utf-8", "replace")

    @staticmethod
    def _refusal(member: tarfile.TarInfo) -> str | None:
        if not member.isreg() or member.issparse():
            return "a link or special file"
        return _refusal(member.name, member.size)


def file_digest(path: Path) -> bytes:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).digest()


@contextmanager
def _tar_stream(path: Path) -> Iterator[tarfile.TarFile]:
    """The archive as a forward-only stream that stops a bomb by counting what was decompressed."""
    with open(path, "rb") as file:
        magic = file.read(6)
        file.seek(0)
        stream = _decompressed(file, magic)
        limit = max(ALWAYS_ALLOWED_BYTES, MAX_EXPANSION * path.stat().st_size)
        with tarfile.open(fileobj=_Counted(stream, limit, path), mode="r|") as archive:  # type: ignore[call-overload]
            yield archive


def _decompressed(file: BinaryIO, magic: bytes) -> BinaryIO:
    if magic.startswith(b"\x1f\x8b"):
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    if magic.startswith(b"BZh"):
        return cast(BinaryIO, bz2.BZ2File(file))
    if magic.startswith((b"\xfd7zXZ\x00", b"\x5d\x00\x00")):
        return cast(BinaryIO, lzma.open(file))
    return file


class _Counted(io.RawIOBase):
    def __init__(self, stream: BinaryIO, limit: int, path: Path) -> None:
        self._stream, self._left, self._path = stream, limit, path

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise _bomb(self._path)
        return data


def _refusal(name: str, size: int) -> str | None:
    parts = name.split("/")
    if name.startswith("/") or ".." in parts or (len(parts[0]) == 2 and parts[0][1] == ":"):
        return "its path leaves the archive"
    return f"larger than {MAX_FILE_BYTES // 2**20} MB" if size > MAX_FILE_BYTES else None


def _short(error: Exception) -> str:
    return printable(str(error))[:100] or type(error).__name__


def _unreadable(path: Path, error: Exception) -> InputError:
    return InputError(f"{printable(str(path))} cannot be read as an archive ({_short(error)}): make it again, or unpack it")


def _bomb(path: Path) -> InputError:
    return InputError(
        f"{printable(str(path))} unpacks to more than {MAX_EXPANSION} times its size, as archives made to exhaust"
        " memory do: if you trust it, unpack it and give the folder"
    )
