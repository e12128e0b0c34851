"""Samples that are there more than once: in a folder, and what a generator copied of it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sao.data.dataset import Samples, Vectors
from sao.evaluation.extract import raw_inputs
from sao.evaluation.memorisation import memorised
from sao.report.gallery import Files, Gallery
from sao.search.duplicates import Known, find_duplicates
from sao.training.pictures import as_shown

COLUMNS = 768  # numbers of an image that are compared: at 16x16 in colour another encoding or size makes no difference
SHOWN_GENERATED = 24


def duplicates(
    gallery: Gallery, features: np.ndarray, files: Files | None, channels: Sequence[int] | None = None
) -> list[dict[str, Any]]:
    """Groups of equal and near-equal samples, the largest first: which to keep and why, and [row, kind] of copies."""
    if gallery.pixels is None:  # of rows of numbers only equal ones count
        rows = gallery.each(lambda part, some: part.rows[some] if isinstance(part, Vectors) else np.empty(0))
        known = Known(gallery.names, pixel_digests=[row.tobytes() for row in rows])
    elif files is None:
        known = Known(gallery.names, features, as_shown(gallery.pixels[:], channels))
    else:
        known = Known(gallery.names, features, files.whole, files.digests, None, files.areas, files.sizes)
    equal = "equal" if gallery.pixels is None else None  # rows have no pixels
    return [
        {"keep": group.keep, "why": group.why, "copies": [[copy.row, equal or copy.said] for copy in group.copies]}
        for group in find_duplicates(known)
    ]


def memorisation(gallery: Gallery, generated: Samples | None, seed: int) -> dict[str, Any] | None:
    """How many generated samples lie suspiciously near a training one, and the nearest of them by their place."""
    trained = np.flatnonzero(~gallery.held_out) if gallery.held_out is not None else np.arange(len(gallery))
    if generated is None or len(trained) < 3:
        return None
    drawn = raw_inputs(generated, columns=COLUMNS)
    numbers = gallery.each(lambda part, rows: raw_inputs(part, rows, COLUMNS))
    found = memorised(drawn, numbers[trained], limit=500, seed=seed)
    order: Sequence[int] = found.distances.argsort()[:SHOWN_GENERATED].tolist()
    suspicious = set(found.rows.tolist())
    return {
        "count": found.count,
        "of": len(drawn),
        "compared_with": len(trained),
        "expected": found.share.protocol["expected_of_fresh_data"],
        "protocol": found.share.protocol,
        "nearest": [
            {
                "generated": index,
                "of": int(trained[int(found.nearest[index])]),
                "distance": float(found.distances[index]),
                "suspicious": index in suspicious,
            }
            for index in order
        ],
    }
