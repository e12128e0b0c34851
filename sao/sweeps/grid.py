"""What a sweep consists of: values of options, their combinations, a folder for each run, and the record of all that."""

import json
import re
import zlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from sao import __version__
from sao.config import Config
from sao.config.overrides import current_name
from sao.errors import InputError
from sao.runtime.files import read_json, write_text

GRID = "grid.json"
LONGEST = 40  # letters of a value in the name of a folder


@dataclass(frozen=True)
class Grid:
    """Values as they were typed, by option; `options` are those that all runs share."""

    preset: str
    over: dict[str, list[str]]
    seeds: list[int]
    options: dict[str, str]
    auto: bool = False  # asked for, on top of where it is the default
    diverged: dict[str, str] = field(default_factory=dict, compare=False)  # runs by name, with what broke

    def combinations(self) -> list[dict[str, str]]:
        return [dict(zip(self.over, values, strict=True)) for values in product(*self.over.values())]

    def name(self, combination: Mapping[str, str]) -> str:
        """embedding_size=64,batch=32; with whole names where the last words are the same."""
        words = [key.rpartition(".")[2] for key in combination]
        keys = words if len(set(words)) == len(words) else list(combination)
        parts = [f"{key}={_clean(value)}" for key, value in zip(keys, combination.values(), strict=True)]
        return ",".join(parts) or Path(self.preset).stem

    def run_name(self, combination: Mapping[str, str], seed: int) -> str:
        return f"{self.name(combination)},seed={seed}"


@dataclass(frozen=True)
class SweepRun:
    """A configuration with a seed. `automatic` names the options that are given, where the rest is chosen for the data."""

    name: str
    combination: str
    seed: int
    folder: Path
    config: Config
    automatic: Set[str] | None


def axis(text: str) -> tuple[str, list[str]]:
    """An option and its values from what follows --over; commas inside of brackets belong to a value."""
    key, equals, values = text.partition("=")
    key = current_name(key.strip().removeprefix("--"))
    if not equals or not key:
        raise InputError(f"--over takes OPTION=VALUE,VALUE, for example method.embedding_size=64,128; got {text!r}")
    found = [value.strip() for value in re.split(r",(?![^\[({]*[\])}])", values)]
    if "" in found:
        raise InputError(f"--over {key} has an empty value: give values with commas between them, for example {key}=64,128")
    if len(set(found)) < len(found):
        twice = next(value for value in found if found.count(value) > 1)
        raise InputError(f"--over {key} has the value {twice} twice: leave one out")
    if len(found) < 2:
        raise InputError(f"--over {key} has one value: give several, or set it for all runs with --{key} {found[0]}")
    return key, found


def grid_of(preset: str, over: Sequence[str], seeds: Sequence[int], options: Mapping[str, str], auto: bool = False) -> Grid:
    axes: dict[str, list[str]] = {}
    for text in over:
        key, values = axis(text)
        if key == "seed":
            raise InputError(f"seeds are given with --seeds {','.join(values)}")
        if key in axes:
            raise InputError(f"--over {key} is there twice: give its values once, with commas between them")
        if key in map(current_name, options):
            raise InputError(f"--over {key} and --{key} contradict each other: give one of them")
        axes[key] = values
    if "seed" in options:
        raise InputError("--seed is for one run: give --seeds, for example 0,1,2")
    if not axes and len(seeds) < 2:
        raise InputError("one run is no sweep: give --over OPTION=VALUE,VALUE, or several --seeds")
    return Grid(preset, axes, list(seeds), dict(options), auto)


def recorded(out: Path, grid: Grid) -> Grid:
    """The grid with what is known of it from earlier; a folder of another sweep, or of anything else, is refused.

    More values and more seeds extend a sweep. How often runs are logged may change.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return grid
    try:
        before = TypeAdapter(Grid).validate_python(read_json(out / GRID))
    except (OSError, ValueError):
        raise InputError(f"{out} exists and is not a sweep: choose another --out") from None
    if (reason := _changed(before, grid)) is not None:
        raise InputError(f"{out} holds another sweep: {reason}; choose another --out")
    return replace(grid, diverged=before.diverged)


def write_grid(out: Path, grid: Grid) -> None:
    record: dict[str, Any] = {"sao": __version__, **vars(grid)}
    write_text(out / GRID, json.dumps(record, indent=2, ensure_ascii=False) + "\n")


def _changed(before: Grid, now: Grid) -> str | None:
    if before.preset != now.preset:
        return f"of {before.preset}, not of {now.preset}"
    if before.auto != now.auto:
        return f"{'with' if before.auto else 'without'} --auto"
    then, given = (_learning(grid.options) for grid in (before, now))
    for key in {**then, **given}:
        if then.get(key) != given.get(key):
            return f"{key} was {then.get(key, 'not given')}, and is {given.get(key, 'not given')} here"
    if before.over.keys() != now.over.keys():
        return f"over {' and '.join(before.over) or 'seeds alone'}, not over {' and '.join(now.over) or 'seeds alone'}"
    for key, values in {**before.over, "seed": before.seeds}.items():
        here = now.seeds if key == "seed" else now.over[key]
        if missing := [str(value) for value in values if value not in here]:
            return f"{key} {', '.join(missing)} is in it and left out here"
    return None


def _learning(options: Mapping[str, str]) -> dict[str, str]:
    return {current_name(key): value for key, value in options.items() if not key.startswith("log.")}


def _clean(value: str) -> str:
    """As a part of a folder's name; what had to be changed gets a checksum, so that two values never share a folder."""
    clean = re.sub(r"[^\w.+-]+", "_", value)[:LONGEST]
    return clean if clean == value else f"{clean}-{zlib.crc32(value.encode()):08x}"
