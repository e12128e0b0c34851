"""The data that commands work on after training: a path, or a named data set, in the form that the model expects."""

import os
import re
import sys
from dataclasses import replace

import numpy as np

from sao.config.outside import named as named_source
from sao.data import named
from sao.data.dataset import Dataset, Images, Samples, joined
from sao.data.files.open import Opened, data_exists, open_data, open_for_embedding, open_path
from sao.data.files.reading import Skipped, skipped_said
from sao.data.split import held_out_samples
from sao.errors import InputError, printable
from sao.training.bar import Bar
from sao.training.model import Model
from sao.training.run_data import reading_of

GREY = np.array([0.299, 0.587, 0.114])  # the weights of red, green and blue that images in files become grey by


def open_for(model: Model, data: str) -> Samples:
    """Every sample of a path; of a named data set the training set, then the test set."""
    return open_with_splits(model, data)[0]


def open_with_splits(model: Model, data: str) -> tuple[Samples, list[str] | None]:
    """The same, and for each sample its split, train or test, where there are two."""
    if data in named.NAMES:
        opened = _named(model, data)
        say(opened.notes, [])
        train, test = opened.dataset.train, opened.dataset.test
        names = [f"train {i}" for i in range(len(train))] + [f"test {i}" for i in range(len(test))]
        return replace(joined(train, test), names=names), ["train"] * len(train) + ["test"] * len(test)
    data = _found(data)
    reading = reading_of(model.config, model.facts)
    samples, skipped, notes = open_for_embedding(data, progress=Bar("reading", "items"), **reading)
    say(notes, skipped)
    return samples, _splits_of(model, data, samples)


def _splits_of(model: Model, data: str, samples: Samples) -> list[str] | None:
    """As the names of the samples say, or as the run cut its own data."""
    names, test = list(samples.names or []), ("test", "val", "valid", "validation")
    first = [re.split(r"[ /]", name, maxsplit=1)[0].lower() for name in names]
    if "train" in first and all(word == "train" or word in test for word in first):
        return ["train" if word == "train" else "test" for word in first]
    about, place = model.config, model.facts.place
    if place is None or os.path.realpath(data) != os.path.realpath(place[0]):
        return None
    labels = samples.labels if about.data.labels and about.data.label_file is None else None
    train, held_out = held_out_samples(names, labels, about.data.held_out, about.seed)
    if len(train) != model.facts.samples:
        return None  # the data has changed since the run began
    splits = np.full(len(samples), "train", dtype=object)
    splits[held_out] = "test"
    return splits.tolist()


def open_split_for(model: Model, data: str) -> Opened:
    """Other data than the run's, with a training and a test set of its own, as the run's own was prepared.

    The splits are those of the data (folders train/ and test/, arrays x_train and x_test), or else made as the run's were.
    """
    if data in named.NAMES:
        return _named(model, data)
    config, about, bar = model.config, model.config.data, Bar("reading", "items")
    reading = reading_of(config, model.facts)
    return open_path(_found(data), strict=about.strict, held_out=about.held_out, seed=config.seed, progress=bar, **reading)


def _named(model: Model, name: str) -> Opened:
    config = model.config
    opened = open_data(name, folder=config.data.folder, held_out=config.data.held_out, seed=config.seed)
    if model.facts.pixel_range is not None:
        raise InputError(f"the run was trained on values of 16 bits, and {name} has 8: give data like that of the run")
    dataset, notes = as_trained(opened.dataset, model.facts.shape)
    return Opened(dataset, opened.skipped, opened.notes + notes)


def as_trained(dataset: Dataset, shape: tuple[int, ...]) -> tuple[Dataset, list[str]]:
    """Images in the size and the colours of a network's input, and what was done to them."""
    there = dataset.train.shape
    if there == tuple(shape):
        return dataset, []
    if len(there) != 3 or len(shape) != 3 or shape[1] != shape[2] or shape[0] not in (1, 3):
        raise InputError(f"{dataset.name} has samples of shape {there}, the run was trained on {tuple(shape)}")
    channels, size, _ = shape
    notes = []
    if there[1:] != (size, size):
        dataset = named.resized(dataset, size)
        notes.append(f"images of {there[2]}x{there[1]} pixels were resized to {size}x{size}, as the network was trained")
    if there[0] != channels:
        parts = [_recoloured(part, channels) for part in (dataset.train, dataset.test) if isinstance(part, Images)]
        dataset = Dataset(dataset.name, *parts)
        kind = "grey" if channels == 1 else "colour (three equal channels)"
        notes.append(f"images were made {kind}, as the network was trained")
    return dataset, notes


def _recoloured(images: Images, channels: int) -> Images:
    pixels = images.pixels
    if channels == 1:
        parts = np.array_split(pixels, -(-len(pixels) // 4096))
        pixels = np.concatenate([(part @ GREY + 0.5).astype(np.uint8) for part in parts])[..., None]
    else:
        pixels = np.repeat(pixels, channels, axis=3)
    return Images(pixels, images.labels, images.names, images.class_names)


def _found(data: str) -> str:
    """A path that is there; FILE.py:NAME by the name that it then has."""
    data = named_source("data.source", data)
    check_there(data)
    return data


def check_there(data: str) -> None:
    if not data_exists(data):
        raise InputError(f"there is no file or folder {data}")


def say(notes: list[str], skipped: list[Skipped]) -> None:
    """To people: what a command writes may go to another program."""
    for note in [*notes, *([skipped_said(skipped)] if skipped else [])]:
        print(printable(note), file=sys.stderr)
