"""A page that shows each group of duplicates: the image to keep, then its copies. One file, without scripts."""

import base64
import io
import os
from collections.abc import Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

import numpy as np
from PIL import Image

from sao.errors import counted
from sao.search.duplicates import Group
from sao.search.files import LookedThrough

SIDE = 128  # pixels of a picture
MOST_PICTURES = 1000  # about 5 MB
STYLE = """
:root { color-scheme: light dark; font: 15px/1.4 system-ui, sans-serif; }
body { margin: 1.5rem auto; max-width: 75rem; padding: 0 1rem; }
section { border-top: 1px solid #8886; padding: .6rem 0; }
h2 { font-size: 1rem; margin: 0 0 .4rem; }
div { display: flex; flex-wrap: wrap; gap: .8rem; }
figure { margin: 0; width: 128px; }
img { display: block; width: 128px; height: 128px; border: 3px solid transparent; border-radius: 4px; }
.keep img { border-color: #2a9d5c; }
h1, figcaption { overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; }
figcaption { font-size: .8rem; }
"""


def duplicates_page(groups: Sequence[Group], looked: LookedThrough, title: str, beside: Path) -> str:
    """HTML to be written into the folder `beside`, from which the files are linked."""
    shown, count = [], 0
    for group in groups:
        if shown and count + len(group.rows) > MOST_PICTURES:
            break
        shown.append(group)
        count += len(group.rows)
    rows = {row for group in shown for row in group.rows[:MOST_PICTURES]}
    pictures = {row: _encoded(pixels) for row, pixels in looked.pictures(rows, SIDE).items()}

    def figure(row: int, said: str, keep: bool) -> str:
        width, height = looked.sizes[row]
        name = escape(looked.known.names[row])
        picture = f'<img src="{pictures[row]}" alt="{name}">' if row in pictures else ""
        path = looked.path(row)
        if path is not None:
            address = quote(os.fsencode(os.path.relpath(path, os.path.realpath(beside))))
            picture, name = f'<a href="{address}">{picture}</a>', f'<a href="{address}">{name}</a>'
        about = f"{name}<br>{escape(said)}, {width}x{height}, {_size(looked.source.entries[looked.places[row]].size)}"
        return f"<figure{' class=keep' if keep else ''}>{picture}<figcaption>{about}</figcaption></figure>"

    sections = []
    for number, group in enumerate(shown, 1):
        copies = group.copies[: MOST_PICTURES - 1]
        figures = [figure(group.keep, f"keep: {group.why}", True), *(figure(one.row, one.said, False) for one in copies)]
        heading = f"Group {number}: {len(group.rows)} images, {group.kind}"
        sections.append(f"<section><h2>{heading}</h2><div>{''.join(figures)}</div></section>")
    left = f"<p>The table has {counted(more, 'more group')}.</p>" if (more := len(groups) - len(shown)) else ""
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    body = f"<h1>{escape(title)}</h1>{''.join(sections)}{left}"
    return f"<!doctype html><html lang=en><head>{head}<style>{STYLE}</style></head><body>{body}</body></html>\n"


def _encoded(pixels: np.ndarray) -> str:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "WEBP", quality=75)
    return f"data:image/webp;base64,{base64.b64encode(stream.getvalue()).decode('ascii')}"


def _size(count: int) -> str:
    return f"{count / 1000:.0f} kB" if count >= 10_000 else f"{count / 1000:.1f} kB"
