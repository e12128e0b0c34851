"""sao cluster: assignments with their cosine, and a picture of each cluster's most central images."""

import csv
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sao.commands.output import warn, writable
from sao.errors import InputError
from sao.files import written

if TYPE_CHECKING:
    from sao.data.rows import Rows
    from sao.evaluation.manifold import Manifold

CENTRAL = 12  # images shown of each cluster


def run(arguments: Namespace) -> None:
    folder = Path(arguments.output)
    table = folder / "assignments.csv"
    k = _count(arguments.k)
    writable(table)
    import sao
    from sao.commands.inputs import open_for
    from sao.data.samples import Images
    from sao.evaluation.manifold import check_algorithm, proposed_clusters
    from sao.evaluation.outliers import outliers

    if arguments.manifold is not None:
        check_algorithm(arguments.manifold)
    model = sao.load(arguments.run, report=warn)
    samples = open_for(model, arguments.data)
    features = model.embed(samples)
    if k is None:
        proposal = proposed_clusters(features, arguments.seed)
        k = proposal.k
        print(f"{k} clusters: {proposal.reason}")
    assigned, cosines = _clustered(features, k, arguments.manifold, arguments.seed)
    strange = outliers(features, samples.pixels if isinstance(samples, Images) else None, arguments.seed)
    names = list(samples.names) if samples.names is not None else [str(i) for i in range(len(samples))]
    with written(table) as temporary, temporary.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        writer = csv.writer(file)
        writer.writerow(["name", "cluster", "cosine", "outlier"])
        rows = zip(names, assigned, cosines, strange, strict=True)
        writer.writerows((name, int(c), f"{cosine:.6f}", int(odd)) for name, c, cosine, odd in rows)
    counts = np.bincount(assigned, minlength=k)
    print(f"{len(features)} samples in {k} clusters of {counts.min()} to {counts.max()}; {table}")
    if strange.any():
        print(f"{strange.sum()} samples look like outliers, far from all others; the column outlier in {table} marks them")
    if isinstance(samples, Images):
        picture = folder / "clusters.png"
        _draw(picture, samples.pixels, assigned, np.where(strange, -np.inf, cosines), counts)
        print(
            f"each row of {picture} shows the most central images of a cluster{', without outliers' if strange.any() else ''}"
        )


def _count(given: str) -> int | None:
    """A number, or None where one is to be proposed."""
    if given == "auto":
        return None
    if not given.isdecimal() or int(given) < 1:
        raise InputError(f"-k is {given!r}: give a number of clusters, at least 1, or auto")
    return int(given)


def _clustered(features: np.ndarray, k: int, manifold: "Manifold | None", seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The cluster (n,) of each sample and the cosine (n,) with that cluster's mean direction."""
    import torch

    from sao.evaluation.inputs import unit_rows
    from sao.evaluation.kmeans import best_kmeans
    from sao.evaluation.manifold import manifold_clusters

    if manifold is None:
        assigned, cosines = best_kmeans(features, k, seed=seed).nearest(features)
        return assigned.numpy(), cosines.numpy()
    units, assigned = unit_rows(torch.from_numpy(features)), manifold_clusters(features, k, manifold, seed)
    means = unit_rows(torch.zeros(k, units.shape[1]).index_add_(0, assigned, units))
    return assigned.numpy(), (units * means[assigned]).sum(dim=1).numpy()


def _draw(path: Path, pixels: "Rows", assigned: np.ndarray, cosines: np.ndarray, counts: np.ndarray) -> None:
    """A row for each cluster, with its number and its size; what has no cosine is left out."""
    from sao.engine.pictures import save_grid

    shown = np.full((len(counts) * CENTRAL, *pixels.shape[1:]), 255, np.uint8)
    for cluster in range(len(counts)):
        chosen = _central(assigned, cosines, cluster)
        shown[cluster * CENTRAL : cluster * CENTRAL + len(chosen)] = pixels[chosen]
    titles = [f"{cluster}: {count} image{'' if count == 1 else 's'}" for cluster, count in enumerate(counts)]
    save_grid(path, shown, columns=CENTRAL, titles=titles)


def _central(assigned: np.ndarray, cosines: np.ndarray, cluster: int) -> np.ndarray:
    members = np.flatnonzero((assigned == cluster) & np.isfinite(cosines))
    return members[np.argsort(-cosines[members], kind="stable")[:CENTRAL]]
