"""From runs to one file: what is collected, in which order, and how much of it."""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sao import __version__
from sao.data.dataset import Dataset, Images, Samples
from sao.evaluation.evaluate import chosen_rows
from sao.report import history
from sao.report.copies import Compared, memorisation, near_duplicates
from sao.report.layout import layout, placed
from sao.report.page import page
from sao.report.points import (
    Generated,
    Points,
    described_clusters,
    generated_points,
    held_out_points,
    jacobian_norms,
)
from sao.report.thumbnails import Sheets
from sao.runtime.files import write_text
from sao.training.model import Model
from sao.training.run_folder import Run

REPORT = "report.html"
MOST_POINTS = 20_000
STAGES = 7  # of a run with data
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Limits:
    """How much is looked at: samples of the map, generated ones, seconds for drawing them and for Jacobian norms each."""

    points: int
    generated: int
    seconds: float
    training: int  # samples of the training set in which copies are looked for
    clusters: int | None = None  # None: as many as classes
    umap: bool = False


AT_END = Limits(points=2000, generated=256, seconds=5.0, training=10_000)  # a short training must not wait for its report


def asked_limits(points: int, clusters: int | None = None, umap: bool = False) -> Limits:
    """Of `sao report`, which a person waits for."""
    return Limits(points, generated=512, seconds=15.0, training=60_000, clusters=clusters, umap=umap)


@dataclass(frozen=True)
class Shown:
    """A run, its model and its data; None where the data is not at hand."""

    run: Run
    model: Model
    dataset: Dataset | None
    name: str


def write_report(target: Path, runs: Sequence[Shown], limits: Limits, say: Progress) -> None:
    sheets = Sheets()
    collected = [_collected(shown, sheets, limits, _prefixed(say, shown, runs)) for shown in runs]
    say("writing the page")
    data = {"sao": __version__, "runs": collected, "sheets": sheets.found}
    title = " · ".join(shown.name for shown in runs) + " – sao report"
    write_text(target, page(data, title), errors="backslashreplace")


def _prefixed(say: Progress, shown: Shown, runs: Sequence[Shown]) -> Progress:
    return say if len(runs) == 1 else lambda stage: say(f"{stage} of {shown.name}")


def _collected(shown: Shown, sheets: Sheets, limits: Limits, say: Progress) -> dict[str, Any]:
    run, model = shown.run, shown.model
    rows = history.rows_of(run)
    held_out = None if shown.dataset is None else len(shown.dataset.test)
    say("metrics and curves")
    measured = history.metrics(run, model.step)
    found = {
        "name": shown.name,
        "step": model.step,
        "said": history.described(model.config, model.facts, model.step, held_out, rows, model.method.needs_labels),
        "verdict": history.verdict(run, model.step),
        "compared": history.compared(measured),
        "metrics": measured,
        "curves": history.curves(rows),
        "pictures": history.pictures(run),
        "config": history.flat(model.config.model_dump(mode="json")),
        "map": None,
    }
    return found if shown.dataset is None else found | _of_data(model, shown.dataset, sheets, limits, say)


def _of_data(model: Model, dataset: Dataset, sheets: Sheets, limits: Limits, say: Progress) -> dict[str, Any]:
    seed = model.config.seed
    say("features and clusters")
    rows = chosen_rows(len(dataset.test), dataset.test.labels, limits.points, seed)
    points, centres = held_out_points(model, dataset.test.select(rows), rows, limits.clusters, seed)
    say("generated samples")
    drawn = generated_points(model, points, centres, min(limits.generated, len(rows)), limits.seconds, seed)
    say("Jacobian norms")
    norms = jacobian_norms(model, points.samples, limits.seconds, seed)
    say("layout of the map")
    features = points.directions if drawn is None else np.concatenate([points.directions, drawn.directions])
    positions, by = layout(features, seed, limits.umap)
    say("copies")
    looked_at = chosen_rows(len(dataset.train), dataset.train.labels, limits.training, seed)
    compared = Compared.of(points.samples, dataset.train, looked_at, None if drawn is None else drawn.samples)
    duplicates, copied = near_duplicates(compared), memorisation(compared, seed)
    say("thumbnails")
    return {
        "map": _map(points, drawn, norms, placed(positions), by, sheets) | {"held_out": len(dataset.test)},
        "clusters": described_clusters(points, drawn),
        "duplicates": duplicates,
        "memorised": copied,
        "train": _train_samples(dataset.train, duplicates, copied, sheets),
    }


def _map(
    points: Points, drawn: Generated | None, norms: np.ndarray | None, places: np.ndarray, by: str, sheets: Sheets
) -> dict[str, Any]:
    n, samples = len(points.samples), points.samples
    names = [str(name) for name in samples.names] if samples.names is not None else [f"held-out {row}" for row in points.rows]
    found: dict[str, Any] = {
        "by": by,
        "count": n,
        "places": packed(places[:n]),
        "names": names,
        "labels": None if samples.labels is None else packed(samples.labels.astype(np.uint16)),
        "classes": _classes(samples),
        "clusters": packed(points.clusters.astype(np.uint16)),
        "norms": None if norms is None else packed(norms.astype(np.float32)),
        "neighbours": packed(points.neighbours.astype(np.uint16)),
        "strange": np.flatnonzero(points.strange).tolist(),
        "sheet": sheets.add(samples) if isinstance(samples, Images) else None,
        "generated": None,
    }
    if drawn is not None:
        found["generated"] = {
            "count": len(drawn.samples),
            "places": packed(places[n:]),
            "clusters": packed(drawn.closeness.argmax(axis=1).astype(np.uint16)),
            "neighbours": packed(drawn.neighbours.astype(np.uint16)),
            "sheet": sheets.add(drawn.samples) if isinstance(drawn.samples, Images) else None,
        }
    return found


def _classes(samples: Samples) -> list[str] | None:
    if samples.labels is None:
        return None
    count = int(samples.labels.max()) + 1
    names = samples.class_names
    return [str(names[code]) if names is not None and code < len(names) else str(code) for code in range(count)]


def _train_samples(train: Samples, duplicates: Any, copied: Any, sheets: Sheets) -> dict[str, Any]:
    """The training samples that the page names, with their place on a sheet of their own."""
    rows = [pair["row"] for pair in (duplicates or {}).get("across", [])]
    rows += [pair["row"] for pair in (copied or {}).get("nearest", [])]
    rows = sorted(set(rows))
    if not rows:
        return {"rows": {}, "sheet": None}
    some = train.select(np.asarray(rows))
    names = [str(name) for name in some.names] if some.names is not None else [f"training {row}" for row in rows]
    places = {str(row): {"place": place, "name": names[place]} for place, row in enumerate(rows)}
    return {"rows": places, "sheet": sheets.add(some) if isinstance(some, Images) else None}


def packed(values: np.ndarray) -> str:
    """Little-endian bytes as text: a third of the length that JSON would need."""
    return base64.b64encode(values.astype(values.dtype.newbyteorder("<")).tobytes()).decode("ascii")
