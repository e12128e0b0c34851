"""The samples most like a query: unit features with the names of their samples, searched exactly by cosine.

An exact search of 60,000 rows takes two milliseconds a query. Approximate indexes take longer to build than that saves
(results/search.md).

Features are kept in the cache under a key of all that they depend on: the prepared samples and the weights. So what is found
there is never stale; what is damaged or of another key is computed again.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sao.data.dataset import Images, Samples
from sao.data.files.cache import Cache
from sao.data.files.npz import read_npz
from sao.errors import InputError, counted
from sao.evaluation.inputs import feature_matrix, same_width, unit_rows
from sao.evaluation.neighbours import nearest
from sao.runtime.files import written

FORMAT = 1  # to be raised whenever the same samples and weights would give other features
CHUNK = 1024
SHOWN_QUERIES, SHOWN_NEIGHBOURS = 5, 3


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Of each of q queries its k nearest samples, nearest first; distances are 1 less the cosine, from 0 to 2."""

    queries: Sequence[str]  # q
    names: list[list[str]]  # q lists of k
    distances: np.ndarray  # (q, k)
    rows: np.ndarray  # (q, k) of the gallery

    def __len__(self) -> int:
        return len(self.queries)

    def __repr__(self) -> str:
        lines = [f"{self.rows.shape[1]} neighbours of {counted(len(self), 'query', 'queries')}"]
        for query, names, distances in zip(self.queries[:SHOWN_QUERIES], self.names, self.distances, strict=False):
            near = [f"{name} {distance:.3f}" for name, distance in zip(names, distances, strict=True)]
            more = ", …" if len(near) > SHOWN_NEIGHBOURS else ""
            lines.append(f"  {query}: {', '.join(near[:SHOWN_NEIGHBOURS])}{more}")
        return "\n".join([*lines, *(["  …"] if len(self) > SHOWN_QUERIES else [])])


@dataclass(frozen=True, eq=False)
class Index:
    """Features (n, d) of a gallery and its names; `stored` where they were found in the cache."""

    features: Tensor  # of unit length
    names: Sequence[str]
    stored: bool = False

    @classmethod
    def of(cls, features: np.ndarray, names: Sequence[str], stored: bool = False) -> "Index":
        return cls(unit_rows(feature_matrix("features", features)), names, stored)

    def search(self, queries: np.ndarray, k: int = 20, names: Sequence[str] | None = None) -> Neighbours:
        """The k nearest of features (q, d); all of them where there are fewer."""
        if k < 1:
            raise InputError(f"k must be at least 1, got {k}")
        asked = feature_matrix("queries", queries).to(self.features.dtype)
        same_width("queries", asked, "the gallery", self.features)
        asked, k = unit_rows(asked), min(k, len(self.features))
        rows = nearest(asked, self.features, k).numpy()
        cosines = torch.einsum("qd,qkd->qk", asked, self.features[torch.from_numpy(rows)])
        distances = (1 - cosines).clamp_min(0).numpy()
        named: list[list[str]] = np.array(self.names, dtype=object)[rows].tolist()
        return Neighbours(names or [str(i) for i in range(len(asked))], named, distances, rows)


def stored_features(samples: Samples, weights: str, compute: Callable[[], np.ndarray]) -> tuple[np.ndarray, bool]:
    """Features of samples by these weights, and whether they were in the cache; else they are computed and put there."""
    cache = Cache()
    key = _key(samples, weights)
    path = cache.folder / f"features-{key}.npz"
    found = _read(path, key, len(samples))
    if found is not None:
        return found, True
    features = compute()
    with suppress(OSError), written(path) as temporary, temporary.open("wb") as file:  # a full cache costs time alone
        np.savez(file, allow_pickle=False, features=features, key=np.array(key), digest=np.array(_digest(features)))
    return features, False


def tensors_digest(tensors: Mapping[str, Tensor], about: str) -> str:
    """Of weights by name, and of what else decides how they are used."""
    digest = hashlib.blake2b(about.encode(), digest_size=16)
    for name, tensor in sorted(tensors.items()):
        values = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
        digest.update(values.view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _read(path: Path, key: str, n: int) -> np.ndarray | None:
    if not os.path.lexists(path):
        return None
    try:
        arrays = read_npz(path)
        features = arrays["features"]
        right = str(arrays["key"]) == key and str(arrays["digest"]) == _digest(features)
        return features if right and features.ndim == 2 and len(features) == n else None
    except (InputError, KeyError, OSError):
        return None


def _key(samples: Samples, weights: str) -> str:
    levels = samples.levels if isinstance(samples, Images) else None
    about = f"{FORMAT} {weights} {len(samples)} {samples.shape}{'' if levels is None else f' {levels}'}"
    digest = hashlib.blake2b(about.encode(), digest_size=16)
    values = samples.pixels if isinstance(samples, Images) else samples.rows
    for start in range(0, len(samples), CHUNK):
        digest.update(np.ascontiguousarray(values[start : start + CHUNK]).data)
    return digest.hexdigest()


def _digest(features: np.ndarray) -> str:
    about = f"{features.dtype.str} {features.shape}".encode()
    return hashlib.blake2b(about + np.ascontiguousarray(features).tobytes(), digest_size=16).hexdigest()
