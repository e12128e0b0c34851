"""A text file with the path of an image in each line."""

import os
from pathlib import Path

from sao.data.files.decode import ENDINGS


def paths_in(file: Path) -> list[str] | None:
    """The paths, as they were written, relative to the file's folder; None where the first line is no path of an image."""
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8-sig", errors="surrogateescape").splitlines()]
    except (OSError, UnicodeError):
        return None
    paths = [line for line in lines if line and not line.startswith("#")]
    if not paths or not paths[0].lower().endswith(ENDINGS):
        return None
    beside = os.path.join(file.parent, os.path.expanduser(paths[0]))
    several_cells = any(mark in paths[0] for mark in ",;\t") and not os.path.exists(beside)
    return None if several_cells else paths
