"""The data that commands work on after training: a path, or a named data set, in the form that the model expects."""

import sys
from pathlib import Path

import numpy as np

from sao.commands.training import reading_progress
from sao.data import sources
from sao.data.open import open_data
from sao.data.samples import Images, Samples, Vectors
from sao.data.tables import Standardiser
from sao.data.user_files import open_for_embedding
from sao.errors import InputError
from sao.model import Model


def open_for(model: Model, data: str) -> Samples:
    """Every sample of a path; of a named data set the training part followed by the held-out one."""
    if data in sources.NAMES:
        opened = open_data(data, folder=model.config.data.folder, size=model.config.data.size, seed=model.config.seed)
        for note in opened.notes:
            print(note, file=sys.stderr)
        samples = _joined(opened.dataset.train, opened.dataset.test)
        if samples.shape != model.facts.shape:
            raise InputError(f"{data} has samples of shape {samples.shape}, the run was trained on {model.facts.shape}")
        return samples
    if not Path(data).exists():
        raise InputError(f"there is no file or folder {data}")
    stored = model.facts.standardiser
    samples, skipped, notes = open_for_embedding(
        data,
        shape=model.facts.shape,
        standardiser=None if stored is None else Standardiser.from_dict(stored),
        fit=model.config.data.fit,
        progress=reading_progress,
    )
    for note in notes:
        print(note, file=sys.stderr)
    for item in skipped[:5]:
        print(f"skipped {item.name}: {item.reason}", file=sys.stderr)
    if len(skipped) > 5:
        print(f"… and {len(skipped) - 5} more items were skipped", file=sys.stderr)
    return samples


def _joined(train: Samples, test: Samples) -> Samples:
    names = [f"train {i}" for i in range(len(train))] + [f"test {i}" for i in range(len(test))]
    labels = None
    if train.labels is not None and test.labels is not None:
        labels = np.concatenate([train.labels, test.labels])
    if isinstance(train, Images) and isinstance(test, Images):
        return Images(np.concatenate([train.pixels, test.pixels]), labels, names, train.class_names)
    assert isinstance(train, Vectors)
    assert isinstance(test, Vectors)
    return Vectors(np.concatenate([train.rows, test.rows]), labels, names, train.class_names)
