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
from pathlib import Path
from typing import BinaryIO, cast

from sao.data.files.decode import MAX_FILE_BYTES, Failure, Loaded
from sao.data.files.images import LITTER
from sao.data.files.npz import ALWAYS_ALLOWED_BYTES, MAX_EXPANSION
from sao.data.files.reading import Entry, Source, leaves
from sao.errors import InputError, printable

MAX_TEXT_BYTES = 256
COMPANIONS = (".cls", ".json", ".txt")  # in a shard, what lies beside an image of the same key and is none itself
LABEL = ".cls"


def file_digest(path: Path) -> bytes:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).digest()


class ZipArchive(Source):
    """The members of a zip file, read one at a time into memory."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._members: list[zipfile.ZipInfo] = []
        try:
            with zipfile.ZipFile(path) as archive:
                members = archive.infolist()
        except Exception as error:  # zipfile lets struct, zlib and codec errors through on damaged directories
            raise _unreadable(path, error) from None
        if sum(member.file_size for member in members) > _most_bytes(path):
            raise _bomb(path)
        for member in members:
            name = member.filename.replace("\\", "/")
            if member.is_dir() or _is_litter(name):
                continue
            mode = member.external_attr >> 16
            special = mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG)
            if reason := "encrypted" if member.flag_bits & 1 else _refusal(name, member.file_size, bool(special)):
                self.skip(name, reason)
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


class TarArchive(Source):
    """The members of a tar file, plain or compressed, read as one stream from front to back.

    Of a shard, companions of images are no images, and the texts of those that are labels are kept by name.
    """

    def __init__(self, path: Path, shard: bool = False) -> None:
        super().__init__()
        self.path = path
        self.texts: dict[str, str] = {}
        self._companions = COMPANIONS if shard else ()
        try:
            with _tar_stream(self.path) as archive:
                for member in archive:
                    if member.name.lower().endswith(self._companions):
                        self._keep_text(archive, member)
                    elif self._is_file(member):
                        if reason := _tar_refusal(member):
                            self.skip(member.name, reason)
                        else:
                            self.entries.append(Entry(member.name, member.size))
        except InputError:
            raise
        except Exception as error:  # tarfile, zlib, bz2 and lzma each have their own
            if not self.entries:
                raise _unreadable(self.path, error) from None
            reason = f"the archive is damaged, nothing after member {len(self.entries)} was read: {_short(error)}"
            self.skip(self.path.name, reason)

    def load(self) -> Iterator[Loaded]:
        given = 0
        try:
            with _tar_stream(self.path) as archive:
                for member in archive:
                    if not self._is_file(member) or _tar_refusal(member):
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

    def _is_file(self, member: tarfile.TarInfo) -> bool:
        return not (member.isdir() or _is_litter(member.name) or member.name.lower().endswith(self._companions))

    def _keep_text(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        if member.name.lower().endswith(LABEL) and member.isreg() and not _is_litter(member.name):
            stream = archive.extractfile(member)
            self.texts[member.name] = "" if stream is None else stream.read(MAX_TEXT_BYTES).decode("utf-8", "replace")


def _is_litter(name: str) -> bool:
    parts = name.split("/")
    hidden = any(part.startswith(".") and part not in (".", "..") for part in parts)
    return hidden or "__MACOSX" in parts or parts[-1].lower() in LITTER


def _tar_refusal(member: tarfile.TarInfo) -> str | None:
    return _refusal(member.name, member.size, not member.isreg() or member.issparse())


def _refusal(name: str, size: int, special: bool) -> str | None:
    if special:
        return "a link or special file"
    if leaves(name):
        return "its path leaves the archive"
    return f"larger than {MAX_FILE_BYTES // 2**20} MB" if size > MAX_FILE_BYTES else None


@contextmanager
def _tar_stream(path: Path) -> Iterator[tarfile.TarFile]:
    """The archive as a forward-only stream that stops a bomb by counting what was decompressed."""
    with open(path, "rb") as file:
        magic = file.read(6)
        file.seek(0)
        counted = _Counted(_decompressed(file, magic), path)
        with tarfile.open(fileobj=counted, mode="r|") as archive:  # type: ignore[call-overload]
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
    def __init__(self, stream: BinaryIO, path: Path) -> None:
        self._stream, self._left, self._path = stream, _most_bytes(path), path

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise _bomb(self._path)
        return data


def _most_bytes(path: Path) -> int:
    return max(ALWAYS_ALLOWED_BYTES, MAX_EXPANSION * path.stat().st_size)


def _short(error: Exception) -> str:
    return printable(str(error))[:100] or type(error).__name__


def _unreadable(path: Path, error: Exception) -> InputError:
    return InputError(f"{printable(str(path))} cannot be read as an archive ({_short(error)}): make it again, or unpack it")


def _bomb(path: Path) -> InputError:
    return InputError(
        f"{printable(str(path))} unpacks to more than {MAX_EXPANSION} times its size, as archives made to exhaust"
        " memory do: if you trust it, unpack it and give the folder"
    )


# --- shards --------------------------------------------------------------------------------------------------------------


class Shards(Source):
    """Several tar files as one source, as WebDataset writes them: a sample is 0012.jpg and, where there are labels, 0012.cls.

    Nothing is unpacked. An image with a label gets a name in a folder of its class. There is no digest: it is made of the
    members as they are decoded, because shards are too large to be read twice.
    """

    def __init__(self, paths: list[Path]) -> None:
        super().__init__()
        if missing := [path for path in paths if not path.is_file()]:
            raise InputError(
                f"there is no file {printable(str(missing[0]))}: {len(missing)} of {len(paths)} shards are missing"
            )
        self._archives = [TarArchive(path, shard=True) for path in paths]
        for archive in self._archives:
            labels = {_key(name): text.strip() for name, text in archive.texts.items()}
            for entry in archive.entries:
                label = labels.get(_key(entry.name), "").replace("/", "_")
                self.entries.append(Entry(f"{label}/{entry.name}" if label else entry.name, entry.size))
            self.skipped += archive.skipped

    def load(self) -> Iterator[Loaded]:
        for archive in self._archives:
            yield from archive.load()


def _key(name: str) -> str:
    """What the members of one sample share: the path up to the first dot of the last part."""
    folder, slash, last = name.rpartition("/")
    return folder + slash + last.partition(".")[0]
