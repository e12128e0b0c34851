"""sao cache: which decoded images are kept, how large they are, and how they go away."""

import time
from argparse import ArgumentParser, Namespace

from sao.data.files.cache import Cache, Kept
from sao.errors import InputError, counted

SHOWN = 20  # entries


def add_options(parser: ArgumentParser) -> None:
    parser.set_defaults(computes=False)
    parser.add_argument("--clear", action="store_true", help="remove them, and nothing that sao did not write")
    parser.add_argument("--older-than", type=float, metavar="DAYS", help="with --clear: only those that were made before")


def run(arguments: Namespace) -> None:
    days = arguments.older_than
    if days is not None and not (arguments.clear and days >= 0):
        raise InputError("--older-than is for --clear, with a number of days from 0 on")
    cache = Cache()
    kept = sorted(cache.kept(), key=lambda entry: -entry.size)
    if arguments.clear:
        old = [entry for entry in kept if days is None or time.time() - entry.made > 86400 * days]
        removed = [entry for entry in old if cache.remove(entry)]
        print(f"{cache.folder}: removed {_said(removed)}")
        if len(removed) < len(old):
            print(f"{_entries(len(old) - len(removed))} stayed: another process is writing there")
        return
    print(f"{cache.folder} (SAO_CACHE): {_said(kept)}")
    for entry in kept[:SHOWN]:
        print(f"  {entry.size / 1e6:10.1f} MB  {time.strftime('%Y-%m-%d', time.localtime(entry.made))}  {entry.what}")
    if len(kept) > SHOWN:
        print(f"  and {_entries(len(kept) - SHOWN)} more")
    if kept:
        print("decoded images are made again when they are needed: `sao cache --clear` removes them")


def _entries(count: int) -> str:
    return counted(count, "entry", "entries")


def _said(entries: list[Kept]) -> str:
    size = sum(entry.size for entry in entries)
    return f"{_entries(len(entries))}, " + (f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB")
