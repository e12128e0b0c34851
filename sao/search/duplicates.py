"""Groups of equal and near-equal images, with the one of each group to keep.

Equal files and equal pixels are found by their digests. Candidates for near-equal pairs lie near each other by features or by
thumbnails. The thumbnails of a pair then decide, because features of alike images are as near as those of copies.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from torch.nn import functional as F

from sao.evaluation.inputs import feature_matrix, unit_rows
from sao.evaluation.neighbours import nearest
from sao.search.fingerprints import SIDE

Kind = Literal["same bytes", "same pixels", "near"]

CANDIDATES = 8  # neighbours of an image that are looked at, of each kind of neighbour
BLUR = 5  # pixels: what is larger is no detail
# Shares of a side that a crop may have kept, and at how many places along it: less than a pixel of the thumbnail apart.
CROPS = {1.0: 1, 0.95: 3, 0.9: 5}
# Correlations of two thumbnails. Of 1,000 photographs no two different ones had more than .76; copies have .9 and more.
LEAST_CORRELATION, LEAST_OF_FEW, CERTAIN_CORRELATION = 0.8, 0.9, 0.985
LEAST_EVENED_CORRELATION, LEAST_DETAIL = 0.75, 1.0  # where weak details count as strong ones do; of 255, less is noise
COLOUR_AREAS, LEAST_COLOUR, LEAST_COLOUR_COSINE = 4, 4.0, 0.5  # areas a side; of 255, less is grey
FEWEST = 30  # images: of fewer nobody can say how far apart they usually are
RANK = 8  # of the neighbour at the usual distance
EXPECTED_BY_CHANCE = 0.05  # pairs of different images in the whole folder that may pass for near-equal
EQUAL = 1e-6  # distance of equal features of unit length
CHUNK = 256
GREY = torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)  # as images in files become grey


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of n images; None where it is not."""

    names: Sequence[str]
    features: np.ndarray | None = None  # (n, d)
    thumbnails: np.ndarray | None = None  # uint8 (n, s, s, c) of the whole images
    file_digests: Sequence[bytes] | None = None
    pixel_digests: Sequence[bytes] | None = None
    areas: np.ndarray | None = None  # (n,) width times height
    file_sizes: np.ndarray | None = None  # (n,) bytes

    def with_features(self, features: np.ndarray) -> "Known":
        return replace(self, features=features)

    def select(self, rows: np.ndarray) -> "Known":
        chosen = {name: _at(value, rows) for name, value in vars(self).items()}
        return replace(self, **chosen)


@dataclass(frozen=True)
class Copy:
    row: int
    kind: Kind
    distance: float  # from the image to keep: 0 for the same pixels, at most 2

    @property
    def said(self) -> str:
        return self.kind if self.kind != "near" else f"near, distance {self.distance:.2f}"


@dataclass(frozen=True)
class Group:
    """Images that show the same: the one to keep, why, and the others, nearest first."""

    keep: int
    why: str
    copies: tuple[Copy, ...]

    @property
    def rows(self) -> list[int]:
        return [self.keep, *(copy.row for copy in self.copies)]

    @property
    def kind(self) -> Kind:
        """Of the copy that differs most."""
        return KINDS[max(KINDS.index(copy.kind) for copy in self.copies)]


KINDS: tuple[Kind, ...] = ("same bytes", "same pixels", "near")


def find_duplicates(known: Known) -> list[Group]:
    """The groups, the largest first. Images that nothing is near to are in none."""
    n = len(known.names)
    exact = _same(known.file_digests, n), _same(known.pixel_digests, n)
    whole = _components([(first, row) for same in exact for row, first in enumerate(same)], n)
    single = np.unique(whole, return_index=True)[1]  # of equal images one is compared with the rest
    near = near_pairs(known.select(single)) if len(single) > 1 else {}
    pairs = [(int(single[a]), int(single[b])) for a, b in near]
    groups = _components([*enumerate(single[whole]), *pairs], n)
    members = np.split(np.argsort(groups, kind="stable"), np.cumsum(np.bincount(groups))[:-1])
    found = [_group(rows, known, exact) for rows in members if len(rows) > 1]
    return sorted(found, key=lambda group: (-len(group.rows), group.keep))


def with_equal_pixels(groups: Sequence[Group], digests: Mapping[int, bytes | None]) -> list[Group]:
    """The groups, where near copies with the digest of the image to keep have the same pixels."""

    def told(copy: Copy, keep: int) -> Copy:
        digest = digests.get(copy.row)
        equal = copy.kind == "near" and digest is not None and digest == digests.get(keep)
        return Copy(copy.row, "same pixels", 0.0) if equal else copy

    return [replace(group, copies=_sorted([told(copy, group.keep) for copy in group.copies])) for group in groups]


def near_pairs(known: Known) -> dict[tuple[int, int], float]:
    """Pairs (a < b) of near-equal images, with the distance of their thumbnails; without thumbnails, of their features."""
    if known.thumbnails is None:
        return {} if known.features is None else _near_features(known.features)
    images = thumbnails(known.thumbnails)
    pairs = _candidates(images, known.features)
    distances = _distance(_correlations(images, _descriptors(images), pairs))
    least, few, certain = map(_distance, (LEAST_CORRELATION, LEAST_OF_FEW, CERTAIN_CORRELATION))
    near = _below(pairs, distances, _limits(pairs, distances, len(images), certain, few).clip(max=least))
    near = {
        (a, b): distance
        for (a, b), distance in near.items()
        if _agree_everywhere(images[a, 0], images[b, 0]) and _same_colours(known.thumbnails[a], known.thumbnails[b])
    }
    # Blank images have no details that could agree.
    equal = _same([image.tobytes() for image in known.thumbnails], len(images))
    return near | {(int(first), row): 0.0 for row, first in enumerate(equal) if first != row}


def thumbnails(pixels: np.ndarray) -> Tensor:
    """float32 (n, 1, SIDE, SIDE): grey thumbnails of images (n, h, w, c) of bytes."""
    parts = []
    for start in range(0, len(pixels), CHUNK):
        images = torch.from_numpy(np.array(pixels[start : start + CHUNK])).permute(0, 3, 1, 2).float()
        images = (images * GREY).sum(dim=1, keepdim=True) if images.shape[1] == 3 else images[:, :1]
        if images.shape[2:] != (SIDE, SIDE):
            images = F.interpolate(images, (SIDE, SIDE), mode="bilinear", antialias=True)
        parts.append(images)
    return torch.cat(parts)


# --- candidates ----------------------------------------------------------------------------------------------------------


def _candidates(images: Tensor, features: np.ndarray | None) -> np.ndarray:
    """Pairs (m, 2), a < b, that are neighbours by features, by blurred thumbnails, or by mirrored ones."""
    small = F.adaptive_avg_pool2d(images, SIDE // 4)
    plain = _unit(small.flatten(1))
    kinds = [(plain, plain), (_unit(small.flip(-1).flatten(1)), plain)]
    if features is not None:
        rows = unit_rows(feature_matrix("features", features))
        kinds.append((rows, rows))
    return np.unique(np.concatenate([_neighbour_pairs(*kind, CANDIDATES) for kind in kinds]), axis=0)


def _neighbour_pairs(queries: Tensor, keys: Tensor, count: int) -> np.ndarray:
    k = min(count + 1, len(keys))  # one may be the image itself
    found = nearest(queries, keys, k).numpy()
    pairs = np.stack([np.repeat(np.arange(len(found)), k), found.ravel()], axis=1)
    return np.unique(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1), axis=0)


# --- thumbnails ----------------------------------------------------------------------------------------------------------


def _descriptors(images: Tensor) -> Tensor:
    """Unit rows (n, SIDE²) of the details: without the light and the large areas, in which different photographs agree."""
    blurred = _blur(_blur(images[:, 0]).mT).mT
    return _unit((images[:, 0] - blurred).flatten(1))


def _correlations(images: Tensor, looks: Tensor, pairs: np.ndarray) -> np.ndarray:
    """Of each pair the greatest correlation of one image with a crop of the other, mirrored or not."""
    best = np.full(len(pairs), -1.0, np.float32)
    both = np.concatenate([pairs, pairs[:, ::-1]])
    order = np.argsort(both[:, 0], kind="stable")
    rows, starts = np.unique(both[order, 0], return_index=True)
    matrices = _crop_matrices()
    for row, chosen in zip(rows, np.split(order, starts[1:]), strict=True):
        others = looks[torch.from_numpy(both[chosen, 1])]
        mirrored = others.unflatten(1, (SIDE, SIDE)).flip(-1).flatten(1)
        crops = _unit(_crop_details(images[row, 0], *matrices).flatten(1))
        found = crops @ torch.cat([others, mirrored]).mT
        which = chosen % len(pairs)
        best[which] = np.maximum(best[which], found.amax(dim=0).view(2, -1).amax(dim=0).numpy())
    return best


def _agree_everywhere(first: Tensor, second: Tensor) -> bool:
    """Whether two thumbnails (SIDE, SIDE) agree where contrasts are weak too: the same frame alone makes no copy."""
    matrices = _crop_matrices()
    crops = [_evened(_crop_details(image, *matrices)) for image in (first, second, second.flip(-1))]
    found = [crops[0] @ crops[1][0], crops[0] @ crops[2][0], crops[1] @ crops[0][0], crops[2] @ crops[0][0]]
    return float(torch.cat(found).max()) >= LEAST_EVENED_CORRELATION


def _evened(details: Tensor) -> Tensor:
    """Unit rows (n, SIDE²) of details (n, SIDE, SIDE), of the same strength in every part of an image."""
    strength = _blur(_blur(details.square()).mT).mT
    return _unit((details * (strength + LEAST_DETAIL**2).rsqrt()).flatten(1))


def _same_colours(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether large areas of two thumbnails agree in colour, mirrored or not; what has no colour agrees with all."""
    colours = []
    for thumbnail in (first, second, second[:, ::-1]):
        areas = F.adaptive_avg_pool2d(torch.from_numpy(thumbnail.copy()).permute(2, 0, 1).float(), COLOUR_AREAS)
        colours.append((areas - areas.mean(dim=0)).flatten())
    if min(colour.square().mean() for colour in colours) < LEAST_COLOUR**2:
        return True
    return max(float(F.cosine_similarity(colours[0], other, dim=0)) for other in colours[1:]) >= LEAST_COLOUR_COSINE


def _crop_details(image: Tensor, sharp: Tensor, blurred: Tensor) -> Tensor:
    """(r², SIDE, SIDE): the details of every crop of an image (SIDE, SIDE), each enlarged to the size of the whole."""
    details = [lines[:, None] @ image @ lines.mT for lines in (sharp, blurred)]
    return (details[0] - details[1]).flatten(0, 1)


@cache
def _crop_matrices() -> tuple[Tensor, Tensor]:
    """(r, SIDE, SIDE) that enlarge a part of a line to the whole, one for each crop of a side; and the same with a blur."""
    centres = torch.arange(SIDE) + 0.5
    matrices = []
    for share, positions in CROPS.items():
        for start in torch.linspace(0, (1 - share) * SIDE, positions):
            places = start + centres * share - 0.5
            matrices.append((1 - (places[:, None] - torch.arange(SIDE)).abs()).clamp_min(0))
    sharp = torch.stack(matrices)
    sharp = sharp / sharp.sum(dim=2, keepdim=True)
    return sharp, _blur(sharp.mT).mT


def _blur(lines: Tensor) -> Tensor:
    """The mean of BLUR neighbours along the last axis."""
    return F.avg_pool1d(F.pad(lines, (BLUR // 2, BLUR // 2), mode="replicate"), BLUR, stride=1)


# --- how near is near ----------------------------------------------------------------------------------------------------


def _limits(pairs: np.ndarray, distances: np.ndarray, n: int, certain: float, few: float) -> np.ndarray:
    """Of each pair the distance below which different images of this folder would hardly ever lie.

    Around an image the number of others within a distance r grows like r^m. The distances of its neighbours of ranks 4 and 8
    give m, and with it the r within which an image lies by chance. Copies do not count as neighbours. Where there are too few
    images to tell, the limit is `few`.
    """
    table = _neighbour_distances(pairs, distances, _components(pairs[distances <= certain], n))
    usual = table[:, RANK - 1]
    known = np.isfinite(usual) & (table[:, RANK // 2 - 1] > 0)
    if known.sum() < FEWEST:
        return np.full(len(pairs), few)
    growth = np.median(np.log(usual[known] / table[known, RANK // 2 - 1]))
    by_chance = EXPECTED_BY_CHANCE / n / RANK
    # An image with many copies that are not certain has no usual distance of its own.
    usual = np.clip(usual, np.median(usual[known]) / 2, np.median(usual[known]))
    return np.maximum(certain, usual[pairs].min(axis=1) * by_chance ** (growth / np.log(2)))


def _neighbour_distances(pairs: np.ndarray, distances: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """(n, RANK) from each image to its nearest others, one of each other group; infinite where there are no more."""
    rows, others = np.concatenate([pairs, pairs[:, ::-1]]).T
    apart = np.tile(distances, 2)
    foreign = groups[rows] != groups[others]
    rows, others, apart = rows[foreign], groups[others[foreign]], apart[foreign]
    order = np.lexsort((apart, others, rows))
    first = order[np.unique(np.stack([rows, others])[:, order], axis=1, return_index=True)[1]]
    first = first[np.lexsort((apart[first], rows[first]))]
    starts = np.searchsorted(rows[first], np.arange(len(groups)))
    rank = np.arange(len(first)) - starts[rows[first]]
    table = np.full((len(groups), RANK), np.inf)
    table[rows[first][rank < RANK], rank[rank < RANK]] = apart[first][rank < RANK]
    return table


def _near_features(features: np.ndarray) -> dict[tuple[int, int], float]:
    rows = unit_rows(feature_matrix("features", features))
    pairs = _neighbour_pairs(rows, rows, 2 * CANDIDATES)
    distances = (rows[pairs[:, 0]] - rows[pairs[:, 1]]).norm(dim=1).numpy()
    return _below(pairs, distances, _limits(pairs, distances, len(rows), EQUAL, EQUAL))


def _below(pairs: np.ndarray, distances: np.ndarray, limits: np.ndarray) -> dict[tuple[int, int], float]:
    near = np.flatnonzero(distances <= limits)
    return {(int(a), int(b)): float(distance) for (a, b), distance in zip(pairs[near], distances[near], strict=True)}


def _distance(correlation: Any) -> Any:
    """Of two rows of unit length."""
    return np.sqrt(np.maximum(2 - 2 * correlation, 0))


# --- groups --------------------------------------------------------------------------------------------------------------


def _group(rows: np.ndarray, known: Known, exact: tuple[np.ndarray, np.ndarray]) -> Group:
    keep, why = _to_keep(rows, known)
    others = rows[rows != keep]
    copies = []
    for row, distance in zip(others.tolist(), _distances_from(keep, others, known).tolist(), strict=True):
        same: list[Kind] = [kind for kind, codes in zip(KINDS, exact, strict=False) if codes[row] == codes[keep]]
        copies.append(Copy(row, same[0], 0.0) if same else Copy(row, "near", distance))
    return Group(keep, why, _sorted(copies))


def _distances_from(row: int, others: np.ndarray, known: Known) -> np.ndarray:
    """In the unit in which near is decided."""
    if known.thumbnails is not None:
        images = thumbnails(known.thumbnails[[row, *others]])
        pairs = np.stack([np.zeros(len(others), np.int64), np.arange(1, len(images))], axis=1)
        distances = _distance(_correlations(images, _descriptors(images), pairs))
        equal = (known.thumbnails[others] == known.thumbnails[row]).all(axis=(1, 2, 3))
        return np.where(equal, 0.0, distances)
    if known.features is not None:
        directions = unit_rows(feature_matrix("features", known.features[[row, *others]]))
        return (directions[1:] - directions[0]).norm(dim=1).numpy()
    return np.zeros(len(others))


def _sorted(copies: Sequence[Copy]) -> tuple[Copy, ...]:
    return tuple(sorted(copies, key=lambda copy: (KINDS.index(copy.kind), copy.distance, copy.row)))


def _to_keep(rows: np.ndarray, known: Known) -> tuple[int, str]:
    """The largest image, of these the largest file, of these the first name."""
    for values, why in ((known.areas, "largest image"), (known.file_sizes, "largest file")):
        if values is not None:
            best = rows[values[rows] == values[rows].max()]
            if len(best) == 1:
                return int(best[0]), why
            rows = best
    return min(rows.tolist(), key=lambda row: known.names[row]), "first name"


def _same(digests: Sequence[bytes] | None, n: int) -> np.ndarray:
    """(n,) the first row with the same digest."""
    if digests is None:
        return np.arange(n)
    first: dict[bytes, int] = {}
    return np.array([first.setdefault(digest, row) for row, digest in enumerate(digests)], np.int64)


def _components(pairs: Sequence[tuple[int, int]] | np.ndarray, n: int) -> np.ndarray:
    """(n,) the number of each row's group, if rows of a pair belong together."""
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    return connected_components(coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(n, n)), directed=False)[1]


def _at(values: Any, rows: np.ndarray) -> Any:
    if values is None or isinstance(values, np.ndarray):
        return None if values is None else values[rows]
    return [values[row] for row in rows]


def _unit(rows: Tensor) -> Tensor:
    """Rows without their mean, of unit length; a flat one is zero, which correlates with nothing."""
    centred = rows - rows.mean(dim=1, keepdim=True)
    return centred / centred.norm(dim=1, keepdim=True).clamp_min(1.0)
