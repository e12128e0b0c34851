"""Image files copied, or linked, into a folder for each group. The originals stay where they are."""

import json
import os
import re
import shutil
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from sao.errors import InputError
from sao.runtime.files import parsed_json, read_text, walk, written_folder

MARK = ".sao-groups.json"  # which files were written here: nothing else is ever replaced
LONGEST = 100  # letters of a name
UNSAFE = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]')
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # by Windows


def check_target(target: Path, source: Path, overwrite: bool) -> None:
    """Refuse, before any work, a folder that holds what is not to be lost, or that is the data's own."""
    there, data = target.resolve(), source.resolve()
    if there == data or data in there.parents or there in data.parents:
        raise InputError(f"--copy-to {target} lies in the data, or around it: choose a folder apart from {source}")
    if target.exists() and not target.is_dir():
        raise InputError(f"{target} exists and is not a folder: choose another --copy-to")
    if not target.is_dir() or not os.listdir(target):
        return
    if not overwrite:
        raise InputError(f"{target} exists and is not an empty folder: choose another --copy-to, or add --overwrite")
    own = _written_before(target)
    foreign = next((path for path in walk(target) if path.relative_to(target).as_posix() not in own), None)
    if foreign is not None:
        raise InputError(f"{foreign} is not what this command wrote, and is kept: choose another --copy-to")


def write_groups(
    target: Path, files: Sequence[str], groups: Sequence[str], names: Sequence[str], link: bool, overwrite: bool
) -> list[str]:
    """For each file a copy, or a link, in the folder of its group, all of them or none; the folders by their names."""
    folders = dict(zip(dict.fromkeys(groups), _distinct([safe_name(group) for group in dict.fromkeys(groups)]), strict=True))
    if not link:
        _check_room(target, files)
    places = _places([folders[group] for group in groups], names)
    try:
        with written_folder(target, replace=overwrite) as temporary:
            for folder in folders.values():
                (temporary / folder).mkdir()
            for file, place in zip(files, places, strict=True):
                if link:
                    (temporary / place).symlink_to(file)
                else:
                    shutil.copyfile(file, temporary / place)
            mark = {"written by": "sao cluster", "files": [MARK, *folders.values(), *places]}
            (temporary / MARK).write_text(json.dumps(mark), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{target} cannot be written ({error.strerror}): nothing was changed") from None
    return list(folders.values())


def safe_name(text: str) -> str:
    """A text as the name of a file or folder on any system."""
    name = UNSAFE.sub("_", unicodedata.normalize("NFC", text))[:LONGEST].strip(" .")
    return f"_{name}" if not name or RESERVED.fullmatch(name) else name


def _places(folders: Sequence[str], names: Sequence[str]) -> list[str]:
    """The file's own name, unless another in the same group has it too: then the folders that it was in stand before it."""
    short = [f"{folder}/{safe_name(name.rpartition('/')[2])}" for folder, name in zip(folders, names, strict=True)]
    count = Counter(place.casefold() for place in short)
    long = [f"{folder}/{safe_name(name.replace('/', '__'))}" for folder, name in zip(folders, names, strict=True)]
    return _distinct([one if count[one.casefold()] == 1 else other for one, other in zip(short, long, strict=True)])


def _distinct(names: Sequence[str]) -> list[str]:
    """With a number behind those that came before; file systems may not tell capital letters apart."""
    seen: set[str] = set()
    found = []
    for name in names:
        stem, ending = os.path.splitext(name)
        number, one = 1, name
        while one.casefold() in seen:
            number += 1
            one = f"{stem}-{number}{ending}"
        seen.add(one.casefold())
        found.append(one)
    return found


def _written_before(target: Path) -> set[str]:
    try:
        return set(parsed_json(read_text(target / MARK))["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def _check_room(target: Path, files: Sequence[str]) -> None:
    there = next(folder for folder in target.absolute().parents if folder.is_dir())
    needed, free = sum(os.path.getsize(file) for file in files), shutil.disk_usage(there).free
    if needed > free:
        raise InputError(f"copies take {needed / 1e9:.1f} GB and {there} has {free / 1e9:.1f} GB left: add --link")
