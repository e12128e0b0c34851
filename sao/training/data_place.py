"""Where the data of a run is found again: from any folder, and after the run, the data or both were moved."""

import os
from pathlib import Path

from sao.config import Config
from sao.data.files.open import data_exists
from sao.errors import InputError

WITHOUT_FILES = ("digits", "spirals")


def place_of(config: Config, run: Path) -> tuple[str, str] | None:
    """Of data that lies somewhere: its absolute path, and the one that leads there from the run."""
    key = _key(config)
    path = None if key is None else Path(getattr(config.data, key)).expanduser()
    if path is None or not data_exists(path):
        return None
    return os.path.abspath(path), os.path.relpath(os.path.realpath(path), os.path.realpath(run))


def with_data_found(config: Config, run: Path, place: tuple[str, str] | None) -> Config:
    """The configuration with the path at which the data is now, wherever the command was typed."""
    key = _key(config)
    if key is None:
        return config
    typed = Path(getattr(config.data, key)).expanduser()
    if place is None:  # version 0.1 kept only what was typed, mostly beside the folder in which runs are
        places = [typed, *(parent / typed for parent in run.resolve().parents[:2])]
    else:
        places = [Path(place[0]), run.resolve() / place[1], typed]
    places = list(dict.fromkeys(os.path.abspath(path) for path in places))
    found = next((path for path in places if data_exists(path)), None)
    if found is None and key == "folder":
        return config  # a named data set can be downloaded again
    if found is None:
        raise InputError(f"the data of {run} is not there any more: looked at {', '.join(places)}; say where with --data PATH")
    return with_data(config, **{key: found})


def with_data(config: Config, **changes: str) -> Config:
    return config.model_copy(update={"data": config.data.model_copy(update=changes)})


def _key(config: Config) -> str | None:
    """The option that holds the path: the source itself, or the folder in which data sets of a name are kept."""
    from sao.data.named import NAMES  # torch comes with it

    if config.data.source not in NAMES:
        return "source"
    return None if config.data.source in WITHOUT_FILES else "folder"
