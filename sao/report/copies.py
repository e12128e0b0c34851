"""Samples that are nearly the same: among those held out, between them and the training set, and what a generator copied."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sao.data.dataset import Images, Samples
from sao.evaluation.extract import raw_inputs
from sao.evaluation.memorisation import memorised

COLUMNS = 768  # numbers of an image that are compared: at 16x16 in colour another encoding or size makes no difference
# Of what samples usually lie apart: copies of an image are nearer than that. Of vectors only equal ones count.
SHARE_OF_IMAGES, SHARE_OF_VECTORS = 0.2, 1e-6
SHOWN_PAIRS, SHOWN_GENERATED = 40, 24
FEWEST = 20  # samples: of fewer nobody can say how far apart they usually are


@dataclass(frozen=True)
class Compared:
    """Held-out samples, some of the training set (with their row numbers), and generated ones, each as a row of numbers."""

    held_out: np.ndarray
    train: np.ndarray
    train_rows: np.ndarray
    generated: np.ndarray | None
    share: float

    @classmethod
    def of(cls, held_out: Samples, train: Samples, rows: np.ndarray, generated: Samples | None) -> "Compared":
        drawn = None if generated is None else raw_inputs(generated, columns=COLUMNS)
        share = SHARE_OF_IMAGES if isinstance(train, Images) else SHARE_OF_VECTORS
        return cls(raw_inputs(held_out, columns=COLUMNS), raw_inputs(train, rows, COLUMNS), rows, drawn, share)


def near_duplicates(compared: Compared) -> dict[str, Any] | None:
    """Pairs of held-out samples, and of a held-out one and a training one, that differ by next to nothing."""
    if len(compared.held_out) < FEWEST:
        return None
    nearest, distances = _nearest(compared.held_out, compared.held_out, own=True)
    usual = float(np.median(distances))
    limit = compared.share * usual
    near = np.flatnonzero(distances <= limit)
    pairs = {(min(i, j), max(i, j)): d for i, j, d in zip(near, nearest[near], distances[near], strict=True)}
    within = [{"a": int(a), "b": int(b), "distance": float(d)} for (a, b), d in sorted(pairs.items(), key=lambda pair: pair[1])]
    in_train, far = _nearest(compared.held_out, compared.train, own=False)
    leaked = np.flatnonzero(far <= limit)
    leaked = leaked[np.argsort(far[leaked], kind="stable")]
    return {
        "limit": limit,
        "usual": usual,
        "within": within[:SHOWN_PAIRS],
        "within_count": len(within),
        "across": [
            {"a": int(i), "row": int(compared.train_rows[in_train[i]]), "distance": float(far[i])} for i in leaked[:SHOWN_PAIRS]
        ],
        "across_count": len(leaked),
        "compared_with": len(compared.train),
    }


def memorisation(compared: Compared, seed: int) -> dict[str, Any] | None:
    """How many generated samples lie suspiciously near a training one, and the nearest of them."""
    if compared.generated is None or len(compared.train) < 3:
        return None
    found = memorised(compared.generated, compared.train, limit=500, seed=seed)
    order = found.distances.argsort()[:SHOWN_GENERATED].tolist()
    suspicious = set(found.rows.tolist())
    return {
        "count": found.count,
        "of": len(compared.generated),
        "compared_with": len(compared.train),
        "expected": found.share.protocol["expected_of_fresh_data"],
        "protocol": found.share.protocol,
        "nearest": [
            {
                "generated": index,
                "row": int(compared.train_rows[int(found.nearest[index])]),
                "distance": float(found.distances[index]),
                "suspicious": index in suspicious,
            }
            for index in order
        ],
    }


def _nearest(queries: np.ndarray, others: np.ndarray, own: bool, chunk: int = 1024) -> tuple[np.ndarray, np.ndarray]:
    """Index (n,) and distance (n,) of the nearest other row; with `own` the two are the same rows, and none is its own."""
    centre = others.mean(axis=0, dtype=np.float64).astype(np.float32)
    table = torch.from_numpy(others - centre)
    lengths = table.square().sum(dim=1)
    found = []
    for start in range(0, len(queries), chunk):
        part = torch.from_numpy(queries[start : start + chunk] - centre)
        squared = torch.addmm(lengths[None], part, table.mT, alpha=-2)  # less |part|², the same for every other
        if own:
            rows = torch.arange(len(part))
            squared[rows, rows + start] = torch.inf
        found.append(squared.argmin(dim=1))
    nearest = torch.cat(found).numpy()
    differences = [
        np.linalg.norm(queries[rows].astype(np.float64) - others[nearest[rows]], axis=1)
        for rows in np.array_split(np.arange(len(queries)), max(1, len(queries) // chunk))
    ]
    return nearest, np.concatenate(differences)
