"""Flags that several commands have, in the same words."""

from argparse import ArgumentParser
from typing import TYPE_CHECKING, Any

from sao.errors import InputError

if TYPE_CHECKING:  # torch comes with it
    from sao.data.labels import LabelFile

RUN = "folder of a trained run, or the name of a model that comes with sao"
DATA = "a path or a data set's name, as for sao train --data"
LABELS = "a table of name,label: labels by the path inside the folder, or by a file name that is there once"
PRESET = "a name from `sao presets`, or a .yaml file (default: digits)"
MANIFOLDS = ("spectral", "umap")


def count_or(word: str, flag: str, given: str, of: str) -> int | None:
    """A number from 1 on, or None for the word."""
    if given == word:
        return None
    if not given.isdecimal() or int(given) < 1:
        raise InputError(f"{flag} is {given!r}: give a number of {of}, at least 1, or {word}")
    return int(given)


def add_run(parser: ArgumentParser, **more: Any) -> None:
    parser.add_argument("run", metavar="RUN", help=RUN, **more)


def add_labels(parser: ArgumentParser) -> None:
    parser.add_argument("--labels", metavar="L.csv", help=LABELS)


def labels_in(path: str | None) -> "LabelFile | None":
    """What --labels or --names was given, read before anything is computed."""
    if path is None:
        return None
    from sao.data.labels import read_labels

    return read_labels(path)


def add_feature(parser: ArgumentParser, default: str | None = None) -> None:
    usual = "layers for photographs from 32 pixels a side on, else backbone" if default is None else default
    parser.add_argument(
        "--feature",
        choices=("backbone", "embedding", "layers"),
        default=default,
        help="backbone: what the network learnt; embedding: what the objective sees; layers: the maps on the way too "
        f"(default: {usual})",
    )


def add_channels(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--channels",
        metavar="R,G,B",
        help="which are shown as red, green and blue, from 1, such as 3,2,1 (default: the first three; one or two: grey)",
    )


def add_seed(parser: ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn at random (default: 0)")


def add_overwrite(parser: ArgumentParser) -> None:
    parser.add_argument("--overwrite", action="store_true", help="replace what an earlier command wrote to this place")
