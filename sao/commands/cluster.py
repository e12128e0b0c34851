"""sao cluster: assignments with their cosine, and a picture of each cluster's most central images."""

import csv
from argparse import Namespace
from pathlib import Path

import numpy as np

from sao.commands.output import writable
from sao.errors import InputError
from sao.files import written

CENTRAL = 12  # images shown of each cluster


def run(arguments: Namespace) -> None:
    folder = Path(arguments.output)
    table = folder / "assignments.csv"
    if arguments.k < 1:
        raise InputError(f"-k must be at least 1, got {arguments.k}")
    writable(table)
    import sao
    from sao.commands.inputs import open_for
    from sao.data.samples import Images
    from sao.engine.pictures import save_grid
    from sao.evaluation.kmeans import best_kmeans

    model = sao.load(arguments.run)
    samples = open_for(model, arguments.data)
    features = model.embed(samples)
    clusters = best_kmeans(features, arguments.k, seed=arguments.seed)
    assigned, cosines = (tensor.numpy() for tensor in clusters.nearest(features))
    names = list(samples.names) if samples.names is not None else [str(i) for i in range(len(samples))]
    with written(table) as temporary, temporary.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        writer = csv.writer(file)
        writer.writerow(["name", "cluster", "cosine"])
        writer.writerows((name, int(c), f"{cosine:.6f}") for name, c, cosine in zip(names, assigned, cosines, strict=True))
    counts = np.bincount(assigned, minlength=arguments.k)
    print(f"{len(features)} samples in {arguments.k} clusters of {counts.min()} to {counts.max()}; {table}")
    if isinstance(samples, Images):
        picture = folder / "clusters.png"
        rows = [_central(assigned, cosines, cluster) for cluster in range(arguments.k)]
        pixels = np.full((len(rows) * CENTRAL, *samples.pixels.shape[1:]), 255, np.uint8)
        for line, chosen in enumerate(rows):
            pixels[line * CENTRAL : line * CENTRAL + len(chosen)] = samples.pixels[chosen]
        save_grid(picture, pixels, columns=CENTRAL)
        print(f"each row of {picture} shows the most central images of a cluster")


def _central(assigned: np.ndarray, cosines: np.ndarray, cluster: int) -> np.ndarray:
    members = np.flatnonzero(assigned == cluster)
    return members[np.argsort(-cosines[members], kind="stable")[:CENTRAL]]
