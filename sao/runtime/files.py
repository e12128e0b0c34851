"""Files that a run owns: read, appended to, replaced and deleted without following a link, which may lead to anyone's files.

`inside` names the folder below which no part of a path may be a link; without it only the last part may not. What is written
appears whole or not at all: beside its place, synced to disk, then renamed into it.
"""

import errno
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from sao.errors import InputError

# The name of what a killed process left behind: .STEM.writing-PID.ENDING, and of a folder .NAME.writing-PID
UNFINISHED = r"\.[^/]*\.writing-\d+(\.[^/]*)?"
LARGEST_TEXT = 2**26  # bytes; a run's own texts are far smaller, but for the rows of its metrics


# --- what is there -------------------------------------------------------------------------------------------------------


def walk(folder: Path) -> Iterator[Path]:
    """Everything below a folder; links are not followed."""
    folders = [folder]
    while folders:
        with os.scandir(folders.pop()) as listing:
            children = sorted(Path(child.path) for child in listing)
        for path in children:
            yield path
            if path.is_dir() and not path.is_symlink():
                folders.append(path)


def check_no_links(folder: Path) -> None:
    """Refuse a folder with a link in it, or with anything else that is neither a file nor a folder."""
    for path in walk(folder):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            raise _linked(path)
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise _special(path)


def opened(path: Path, mode: str = "rb", inside: Path | None = None, **how: Any) -> Any:
    """A file to read ("r", "rb") or to append to ("a"); `how` as for `open`."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT if mode.startswith("a") else os.O_RDONLY
    with _folder_of(path, inside) as folder:
        descriptor = _open_at(folder, path, flags)
    return os.fdopen(descriptor, mode, **how)


@contextmanager
def own_path(path: Path, inside: Path | None = None) -> Iterator[str]:
    """A path for a library that opens files itself: it leads to what was opened here, whatever lies at `path` by then."""
    with opened(path, "rb", inside) as file:
        yield f"/dev/fd/{file.fileno()}"


def read_text(path: Path, inside: Path | None = None, errors: str = "strict", most: int | None = LARGEST_TEXT) -> str:
    """A ValueError where it is larger than a text of a run can be."""
    with opened(path, "r", inside, encoding="utf-8", errors=errors) as file:
        if most is not None and os.fstat(file.fileno()).st_size > most:
            raise ValueError(f"it is larger than {most >> 20} MB")
        return file.read()


def read_json(path: Path, inside: Path | None = None) -> Any:
    """An OSError or a ValueError, of one line, where it cannot be read."""
    return parsed_json(read_text(path, inside))


def parsed_json(text: str) -> Any:
    """JSON as the standard has it: without NaN and infinity, which nothing here writes."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


# --- what is written -----------------------------------------------------------------------------------------------------


@contextmanager
def written(target: Path, inside: Path | None = None) -> Iterator[Path]:
    """A temporary path beside the target, which takes its place when the block ends well. Folders on the way are made."""
    temporary = target.with_name(f".{target.stem}.writing-{os.getpid()}{target.suffix}")
    with _folder_of(target, inside, make=True) as folder:
        with suppress(FileNotFoundError):
            os.unlink(temporary.name, dir_fd=folder)  # of a killed process, or a link that someone put there
        descriptor = _open_at(folder, temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        mode = os.fstat(descriptor).st_mode
        os.close(descriptor)
        try:
            yield temporary
            _settle_at(folder, temporary, mode)
            os.replace(temporary.name, target.name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary.name, dir_fd=folder)
        os.fsync(folder)


@contextmanager
def written_folder(target: Path, inside: Path | None = None, replace: bool = False) -> Iterator[Path]:
    """An empty folder beside the target, which takes its place when the block ends well: of an empty one, or with `replace`."""
    temporary = target.with_name(f".{target.name}.writing-{os.getpid()}")
    with _folder_of(target, inside, make=True) as folder:
        shutil.rmtree(temporary.name, ignore_errors=True, dir_fd=folder)
        os.mkdir(temporary.name, dir_fd=folder)
        try:
            yield temporary
            sync_all(temporary)
            if replace and target.is_dir():
                os.rename(target.name, f"{temporary.name}.old", src_dir_fd=folder, dst_dir_fd=folder)
            os.rename(temporary.name, target.name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            for name in (temporary.name, f"{temporary.name}.old"):
                shutil.rmtree(name, ignore_errors=True, dir_fd=folder)
        os.fsync(folder)


def write_text(target: Path, text: str, errors: str = "strict", inside: Path | None = None) -> None:
    """A reader sees the old text or the new one."""
    with written(target, inside) as temporary:
        temporary.write_text(text, encoding="utf-8", errors=errors)


def make_folder(path: Path, inside: Path | None = None) -> None:
    """A folder, unless it is there already."""
    with _folder_of(path / "any", inside if inside is not None else path.parent, make=True):
        pass


def delete(path: Path, inside: Path | None = None) -> None:
    """Remove a file, or a folder with all that is in it; of a link the link alone."""
    with _folder_of(path, inside) as folder:
        if stat.S_ISDIR(os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode):
            shutil.rmtree(path.name, dir_fd=folder)
        else:
            os.unlink(path.name, dir_fd=folder)


def sync_all(folder: Path) -> None:
    """Make a folder and all in it last through a power cut, with the modes of the user's umask, which libraries forget."""
    mode = folder.stat().st_mode
    for path in walk(folder):
        if path.is_symlink():
            continue  # its folder holds it
        if path.is_dir():
            sync(path)
        else:
            with _folder_of(path, folder) as parent:
                _settle_at(parent, path, mode)
    sync(folder)


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, last through a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# --- parts ---------------------------------------------------------------------------------------------------------------


@contextmanager
def _folder_of(path: Path, inside: Path | None, make: bool = False) -> Iterator[int]:
    """A descriptor of a path's folder, reached without a link below `inside`; folders made for a block that fails go."""
    root, missing = path.parent if inside is None else inside, []
    if make and inside is None:
        missing = [one for one in (root, *root.parents) if not one.exists()]
        root.mkdir(parents=True, exist_ok=True)
    try:
        with ExitStack() as stack:
            yield _descend(root, path.relative_to(root).parts[:-1], make, stack)
    except BaseException:
        for one in missing:
            with suppress(OSError):  # something else came into it
                one.rmdir()
        raise


def _descend(root: Path, parts: tuple[str, ...], make: bool, stack: ExitStack) -> int:
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    stack.callback(os.close, folder)
    path = root
    for part in parts:
        path = path / part
        if make:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=folder)
        folder = _open_at(folder, path, os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, folder)
    return folder


def _open_at(folder: int, path: Path, flags: int) -> int:
    """A descriptor of a regular file, or of a folder where that is asked for; a queue must not keep anyone waiting."""
    try:
        descriptor = os.open(path.name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666, dir_fd=folder)
    except OSError:
        if stat.S_ISLNK(_mode_at(folder, path.name)):
            raise _linked(path) from None
        raise
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) or flags & os.O_DIRECTORY:
        return descriptor
    os.close(descriptor)
    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path)) if stat.S_ISDIR(mode) else _special(path)


def _settle_at(folder: int, path: Path, mode: int) -> None:
    """Sync a file, and give it the part of a mode that files have."""
    descriptor = _open_at(folder, path, os.O_RDONLY)
    try:
        os.fchmod(descriptor, mode & 0o666)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _mode_at(folder: int, name: str) -> int:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except OSError:
        return 0


def _linked(path: Path) -> InputError:
    return InputError(f"{path} is a symbolic link, which sao does not follow inside a run: put what it leads to in its place")


def _special(path: Path) -> InputError:
    return InputError(f"{path} is neither a file nor a folder, and nothing else belongs into a run: remove it")
