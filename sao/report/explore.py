"""A folder of images without training: features that are there already, the page about them, and what training would cost."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sao.config import load_preset
from sao.config.auto import choose_options
from sao.data.dataset import Dataset, Images, SelectedRows
from sao.data.files.cache import Cache
from sao.data.files.images import choose_size, read_images
from sao.data.files.open import open_for_embedding, source_or_kind
from sao.data.files.reading import Progress, ReadOptions, Skipped, Source
from sao.data.named import resized
from sao.errors import InputError, printable, typed
from sao.report.build import Explored
from sao.report.gallery import Gallery, Originals
from sao.search.suited import patches_of, suited_model
from sao.training.cost import step_cost
from sao.training.device import choose_device
from sao.training.model import load
from sao.training.run_data import LARGEST_ON_CPU, reading_of
from sao.training.warm_start import with_suited_start

FEWEST = 10  # images
SIZE = 32  # pixels a side of images whose patches are compared
PRICED = 256  # images that stand for all in a training step
HELD_OUT = 0.1


@dataclass(frozen=True)
class Opened:
    """The images of a folder as the network wants them, their features, and how they were made."""

    images: Images
    skipped: list[Skipped]
    features: np.ndarray
    embedded_by: str
    originals: Originals


def open_folder(path: str, model: str | None, progress: Progress, report: Callable[[str], None]) -> Opened:
    """With a model's features: the one that is named, or else one that comes with sao and suits; patches where none does."""
    where = printable(path)
    source = source_or_kind(Path(path), Cache().folder)
    if not isinstance(source, Source):
        raise InputError(f"{where} holds no image files: give a folder or an archive of images")
    found = read_images(source, ReadOptions(where, minimum=FEWEST, size=SIZE, progress=progress))
    images = found.samples
    assert isinstance(images, Images)
    originals = Originals(source, "crop")
    name = model or suited_model(images, originals.largest_side(images.names or []))
    if name is None:
        how = f"k-means patches, fitted to these images at {SIZE}×{SIZE} pixels"
        return Opened(images, found.skipped, patches_of(images), how, originals)
    chosen = load(name, report=report)
    shape, fit = chosen.facts.shape, chosen.config.data.fit
    if len(shape) != 3:
        raise InputError(f"{name} was trained on vectors: give a model of images")
    if shape != images.shape or fit != "crop" or images.levels is not None or chosen.pixel_range is not None:
        images = open_for_embedding(path, **reading_of(chosen.config, chosen.facts))[0]
    assert isinstance(images, Images)
    return Opened(images, found.skipped, chosen.embed(images), f"the model {name}", Originals(source, fit))


def explored(path: str, opened: Opened, limit: int) -> Explored:
    """All that the page needs to know of the folder."""
    gallery = Gallery.of(opened.images, limit)
    name = printable(Path(path).resolve().name) or "images"
    command, cost = training_price(path, name, opened.images, opened.originals)
    classes = gallery.classes
    folders = "" if classes is None else f" in {len(classes)} subfolders"
    bad = len(opened.skipped)
    unread = f" {bad:,} other file{'' if bad == 1 else 's'} could not be used." if bad else ""
    said = [
        f"{len(opened.images):,} images{folders}, compared by {opened.embedded_by}. Nothing was trained.{unread}",
        "Click any image to see the most similar ones. Name groups, or draw around images on the map, and save the labels.",
    ]
    return Explored(name, said, gallery, opened.features[gallery.rows[0]], opened.originals, command, cost)


def training_price(path: str, name: str, images: Images, originals: Originals) -> tuple[str, str]:
    """The command that would train on this folder, and in words what it would cost on this machine."""
    names, options = list(images.names or []), {"data.source": path}
    size, _ = choose_size([originals.largest_side(names)])
    if choose_device("auto").type == "cpu":
        size = min(size, LARGEST_ON_CPU)
    command = typed("train", "--data", path, "--out", Path("runs") / name)
    some = np.linspace(0, len(images) - 1, min(PRICED, len(images))).astype(np.int64)
    if Gallery.of(images, len(images)).plain:
        pixels = originals.read([names[i] for i in some], size).tiles[..., : images.shape[0]]
    else:
        few = Images(images.bytes[some])
        found = resized(Dataset(name, few, few), size).train
        assert isinstance(found, Images)
        pixels = np.asarray(found.pixels)
    n = round((1 - HELD_OUT) * len(images))
    try:
        train = Images(SelectedRows(pixels, np.arange(n) % len(pixels)))
        begun = with_suited_start(load_preset("own", options), train, set(options))
        config, _ = choose_options(begun.config, train, begun.given)
        cost = step_cost(config, Dataset(name, Images(pixels), Images(pixels)), affordable=1.0)
    except InputError as error:
        return command, f"It cannot be priced: {error}."
    steps = config.steps_for(n)
    minutes = max(1, round(steps * cost.seconds / 60))
    took = f"{minutes} minute{'' if minutes == 1 else 's'}" if minutes < 120 else f"{round(minutes / 60)} hours"
    return command, f"About {took} on this machine: {steps:,} steps of {cost.seconds:.2g} s."
