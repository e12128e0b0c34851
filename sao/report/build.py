"""From runs, or from a folder alone, to one file: what is collected, in which order, and how much of it."""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from sao import __version__
from sao.data.dataset import Dataset, Images
from sao.data.files.objects import IN_MEMORY
from sao.evaluation.suite import CLUSTERS_WITHOUT_LABELS
from sao.report import history
from sao.report.copies import duplicates, memorisation
from sao.report.gallery import Files, Gallery, Originals
from sao.report.layout import clearances, layout, placed
from sao.report.page import page
from sao.report.points import Generated, Points, described_groups, generated_points, jacobian_norms, points_of
from sao.report.side_by_side import Scored, paired_test, rows_to_score, scored
from sao.report.thumbnails import Sheets, budget, shrunk, side_for, tiles_of
from sao.runtime.files import write_text
from sao.training.model import Model
from sao.training.pictures import as_shown
from sao.training.run_folder import Run

REPORT = "report.html"
MOST_POINTS = 20_000
STAGES = 7  # of a run with data
MOST_ODD = 300  # samples in the list of odd ones
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Limits:
    """How much is looked at: samples on the page, of these so many placed by t-SNE or UMAP, generated ones.

    `seconds` are for drawing those and for Jacobian norms, each. By default as much as a person waits for.
    """

    points: int = MOST_POINTS
    placed: int = 5000
    generated: int = 512
    seconds: float = 15.0
    clusters: int | None = None  # None: as many as classes
    umap: bool = False
    channels: tuple[int, ...] | None = None  # that are shown, from 0; None: the first three


AT_END = Limits(placed=2000, generated=256, seconds=5.0)  # a short training must not wait for its report


@dataclass(frozen=True)
class Shown:
    """A run, its model and its data; None where the data is not at hand."""

    run: Run
    model: Model
    dataset: Dataset | None
    name: str


@dataclass(frozen=True)
class Explored:
    """A folder's samples and their features, of which nothing was learnt here."""

    name: str
    said: Sequence[str]  # sentences at the top
    gallery: Gallery
    features: np.ndarray
    originals: Originals | None
    train: str  # the command that would train on it
    cost: str


@dataclass(frozen=True)
class _Making:
    """A page while it is made: where it will lie, how many runs share its size, and who is told what is done."""

    target: Path
    runs: int
    limits: Limits
    say: Progress
    sheets: Sheets = field(default_factory=Sheets)

    def room(self, samples: int) -> int:
        """Bytes for the thumbnails of so many samples."""
        return budget(samples * self.runs) // self.runs

    def write(self, runs: list[dict[str, Any]], tested: list[dict[str, Any]], title: str) -> None:
        self.say("writing the page")
        data = {"sao": __version__, "runs": runs, "sheets": self.sheets.found, "tested": tested}
        write_text(self.target, page(data, title), errors="backslashreplace")


def write_report(target: Path, runs: Sequence[Shown], limits: Limits, say: Progress) -> None:
    making = _Making(target, len(runs), limits, say)
    collected, points = [], []
    for shown in runs:
        say_of = say if len(runs) == 1 else lambda stage, name=shown.name: say(f"{stage} of {name}")
        found, known = _collected(shown, replace(making, say=say_of))
        collected.append(found)
        points.append(known)
    say("runs against each other")
    measured = [_scored(one) for one in points] if len(runs) > 1 else []
    tested = [paired_test(measured[0], other) for other in measured[1:]]
    making.write(collected, tested, " · ".join(shown.name for shown in runs) + " – sao report")


def _scored(points: Points | None) -> Scored | None:
    if points is None:
        return None
    gallery, places = rows_to_score(points.gallery)
    return scored(gallery, points.features[places])


def write_exploration(target: Path, explored: Explored, limits: Limits, say: Progress) -> dict[str, Any]:
    """The page of a folder; what is on it, for who wants to say it in words."""
    say("groups, neighbours and odd ones")
    gallery = explored.gallery
    points, _ = points_of(gallery, explored.features, limits.clusters or groups_for(len(gallery)), seed=0)
    making = _Making(target, 1, limits, say)
    found = {
        "name": explored.name,
        "said": list(explored.said),
        "train": {"command": explored.train, "cost": explored.cost},
        **_of_points(points, None, None, explored.originals, making),
    }
    making.write([found], [], f"{explored.name} – sao explore")
    return found


def groups_for(samples: int) -> int:
    """How many groups a folder is shown in: enough to find one's way, few enough to look at all."""
    return max(2, min(20, round(np.sqrt(samples) / 2.5)))


def _collected(shown: Shown, making: _Making) -> tuple[dict[str, Any], Points | None]:
    run, model = shown.run, shown.model
    rows = run.rows_after(-1)
    held_out = None if shown.dataset is None else len(shown.dataset.test)
    making.say("metrics and curves")
    measured = history.metrics(run, model.step, model.usual_feature)
    found = {
        "name": shown.name,
        "step": model.step,
        "said": history.described(model.config, model.facts, model.step, held_out, rows, model.method.needs_labels),
        "verdict": history.verdict(run, model.step),
        "compared": history.compared(measured),
        "metrics": measured,
        "curves": history.curves(rows),
        "pictures": history.pictures(run),
        "config": history.options(model.config),
        "map": None,
    }
    if shown.dataset is None:
        return found, None
    more, points = _of_data(shown, shown.dataset, making)
    return found | more, points


def _of_data(shown: Shown, dataset: Dataset, making: _Making) -> tuple[dict[str, Any], Points]:
    model, seed, limits = shown.model, shown.model.config.seed, making.limits
    making.say("features and groups")
    gallery = Gallery.of(dataset, limits.points, seed)
    k = limits.clusters or model.facts.classes or CLUSTERS_WITHOUT_LABELS
    features = gallery.features(model.method.representation(model.usual_feature), model.device)
    points, centres = points_of(gallery, features, k, seed)
    making.say("generated samples")
    drawn = generated_points(model, points, centres, min(limits.generated, len(gallery)), limits.seconds, seed)
    making.say("Jacobian norms")
    norms = jacobian_norms(model, gallery, limits.seconds, seed)
    originals = None
    if isinstance(gallery.parts[0], Images) and model.config.data.source != IN_MEMORY:  # which has no files
        config = shown.run.with_data_found(model.config)
        originals = Originals.of(config.data.source, config.data.fit)
    return _of_points(points, drawn, norms, originals, making), points


def _of_points(
    points: Points, drawn: Generated | None, norms: np.ndarray | None, originals: Originals | None, making: _Making
) -> dict[str, Any]:
    making.say("layout of the map")
    gallery, limits = points.gallery, making.limits
    features = points.directions if drawn is None else np.concatenate([points.directions, drawn.directions])
    positions, by = layout(features, umap=limits.umap, most=limits.placed)
    places = placed(positions)
    making.say("thumbnails")
    n = len(gallery)
    side = side_for(n, making.room(n))
    files = None
    if originals is not None and limits.channels is None and gallery.plain:
        files = originals.read(gallery.names, min(side, originals.largest_side(gallery.names)))
    sheet = _sheet(gallery, files, side, making)
    making.say("duplicates")
    copies = duplicates(gallery, points.features, files, limits.channels)
    return {
        "map": {
            "by": by,
            "count": n,
            "total": gallery.total,
            "places": packed(places[:n]),
            "clearances": packed(clearances(places[:n])),
            "names": gallery.names,
            "links": None if originals is None else _shortened(originals.links(gallery.names, making.target), gallery.names),
            "held_out": None if gallery.held_out is None else packed(np.packbits(gallery.held_out, bitorder="little")),
            "labels": None if gallery.labels is None else packed(gallery.labels.astype(np.uint16)),
            "classes": gallery.classes,
            "groups": packed(points.groups.astype(np.uint16)),
            "norms": None if norms is None else packed(norms.astype(np.float32)),
            "neighbours": packed(points.neighbours.astype(np.uint16)),
            "similarities": packed((points.similarities.clip(-1, 1) * 127).round().astype(np.int8)),
            "sheet": sheet,
            "generated": None if drawn is None else _generated(drawn, places, n, making),
        },
        "groups": described_groups(points, drawn),
        "odd": _odd_ones(points),
        "duplicates": copies,
        "memorised": memorisation(gallery, None if drawn is None else drawn.samples, seed=0),
    }


def _sheet(gallery: Gallery, files: Files | None, side: int, making: _Making) -> str | None:
    """Thumbnails of the files themselves, where they are plain pictures: a network's inputs are too small to look at."""
    pixels, channels = gallery.pixels, making.limits.channels
    if pixels is None:
        return None
    if files is not None:
        tiles = files.tiles
    else:
        tiles = shrunk(lambda some: as_shown(pixels[some], channels), len(pixels), pixels.shape[1:3], side)
    return making.sheets.add(tiles, making.room(len(gallery)))


def _generated(drawn: Generated, places: np.ndarray, n: int, making: _Making) -> dict[str, Any]:
    images = drawn.samples if isinstance(drawn.samples, Images) else None
    return {
        "count": len(drawn.samples),
        "places": packed(places[n:]),
        "clearances": packed(clearances(places[n:], places[:n])),
        "groups": packed(drawn.closeness.argmax(axis=1).astype(np.uint16)),
        "neighbours": packed(drawn.neighbours.astype(np.uint16)),
        "sheet": None if images is None else making.sheets.add(tiles_of(images, 64, making.limits.channels)),
    }


def _odd_ones(points: Points) -> dict[str, Any]:
    """All outliers, the furthest first; where there are fewer than a handful, the next ones are shown with them."""
    scores = np.where(np.isnan(points.scores), np.inf, points.scores)
    order = np.argsort(-scores, kind="stable")
    count = int(points.odd.sum())
    rows = order[: min(MOST_ODD, max(count, 24))] if scores.any() else order[:0]
    return {"count": count, "rows": rows.tolist(), "scores": [float(f"{min(scores[i], 1e6):.3g}") for i in rows]}


def _shortened(links: Sequence[str | None] | None, names: Sequence[str]) -> dict[str, Any] | None:
    """What all addresses begin with, once, and nothing more where the page can tell the rest from the names."""
    if links is None:
        return None
    ends = [quote(name, safe="/", errors="replace") for name in names]
    start = (links[0] or "").removesuffix(ends[0])
    if all(link == start + end for link, end in zip(links, ends, strict=True)):
        return {"start": start, "rest": None}
    return {"start": "", "rest": list(links)}


def packed(values: np.ndarray) -> str:
    """Little-endian bytes as text: a third of the length that JSON would need."""
    return base64.b64encode(values.astype(values.dtype.newbyteorder("<")).tobytes()).decode("ascii")
