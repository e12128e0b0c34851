"""The picture of the README: held-out images on a map with the colours of their clusters, neighbours, and generated images.

python benchmarks/front_picture.py RUN -o docs/figures/front.png [--images 1500] [--clusters 10] [--queries 3,14,15]

RUN is the run of which the model photos32 is a copy (its card has the command).
"""

import argparse
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

import sao
from sao.data.dataset import Images
from sao.evaluation.kmeans import best_kmeans
from sao.report.layout import layout
from sao.training.run_data import open_config_data

INK = "#22252a"
SHOWN = 420  # thumbnails on the map: more would cover one another


def on_paper(pixels: np.ndarray) -> np.ndarray:
    """Grey images as ink on white; colours as they are."""
    return 255.0 - pixels if pixels.shape[-1] == 1 else pixels.astype(float)


def on_the_map(axes, pixels: np.ndarray, positions: np.ndarray, clusters: np.ndarray, colours: np.ndarray) -> None:
    """Dots for all; thumbnails, with a frame in the colour of the cluster, where there is room for one."""
    axes.scatter(*positions.T, c=colours[clusters], s=4, linewidths=0, alpha=0.5)
    span = np.ptp(positions, axis=0).max()
    width, kept = span / (24 if len(positions) < 500 else 42), []
    for row in range(len(positions)):
        if all(np.abs(positions[row] - positions[other]).max() > width for other in kept[:SHOWN]):
            kept.append(row)
    for row in kept[:SHOWN]:
        (x, y), half = positions[row], width / 2
        frame = np.pad(on_paper(pixels[row]), ((1, 1), (1, 1), (0, 0))).repeat(3 // pixels.shape[-1], axis=-1) / 255
        rim = np.ones(frame.shape[:2], bool)
        rim[1:-1, 1:-1] = False
        frame[rim] = colours[clusters[row], :3]
        axes.imshow(frame, extent=(x - half, x + half, y - half, y + half), zorder=2, interpolation="nearest")
    axes.set(xlim=(positions[:, 0].min() - width, positions[:, 0].max() + width))
    axes.set(ylim=(positions[:, 1].min() - width, positions[:, 1].max() + width), aspect="equal")


def sheet(images: np.ndarray, columns: int) -> np.ndarray:
    rows = len(images) // columns
    n, h, w, c = images[: rows * columns].shape
    tiles = np.pad(on_paper(images[:n]), ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=255) / 255
    joined = tiles.reshape(rows, columns, h + 2, w + 2, c).swapaxes(1, 2).reshape(rows * (h + 2), columns * (w + 2), c)
    return joined.repeat(3 // c, axis=-1)


def neighbours(pixels: np.ndarray, features: np.ndarray, queries: list[int], count: int = 7) -> np.ndarray:
    """A row for each query: the image itself, then the most similar ones."""
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    order = np.argsort(-(unit[queries] @ unit.T), axis=1, kind="stable")[:, : count + 1]
    return pixels[order.flatten()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--images", type=int, default=1500)
    parser.add_argument("--clusters", type=int, default=10)
    parser.add_argument("--queries", default="0,1,2,3,4,5", help="rows of the test set whose neighbours are shown")
    arguments = parser.parse_args()
    model = sao.load(arguments.run)
    test = open_config_data(model.config).dataset.test
    if not isinstance(test, Images):
        raise SystemExit("the run is not one of images")
    everything = np.asarray(test.pixels)
    all_features = model.embed(everything)
    pixels, features = everything[: arguments.images], all_features[: arguments.images]
    clusters = best_kmeans(features, arguments.clusters).assign(features).numpy()
    positions, _ = layout(features)
    colours = mpl.colormaps["tab10"](np.arange(arguments.clusters) % 10)
    figure, panels = plt.subplot_mosaic("AB;AC", figsize=(13, 7.4), width_ratios=(1.7, 1), layout="constrained")
    left, middle, right = (panels[name] for name in "ABC")
    on_the_map(left, pixels, positions, clusters, colours)
    left.set_title(f"{len(pixels):,} photographs that training did not see; colours are clusters", color=INK, fontsize=13)
    queries = [int(row) for row in arguments.queries.split(",")]
    middle.imshow(sheet(neighbours(everything, all_features, queries), 8), interpolation="nearest")
    middle.set_title(f"an image, then those most like it of {len(everything):,}", color=INK, fontsize=13)
    right.imshow(sheet(model.sample(48), 8), interpolation="nearest")
    right.set_title("images that it makes", color=INK, fontsize=13)
    for axes in panels.values():
        axes.set_axis_off()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(arguments.out, dpi=100, metadata={"Software": None})


if __name__ == "__main__":
    main()
