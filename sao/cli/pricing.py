"""sao train --dry-run: what the run would do and what it would cost, from a few real steps that are thrown away."""

from collections.abc import Set
from dataclasses import dataclass

import numpy as np

from sao.config import Config
from sao.config.auto import choose_options, choose_options_and_time
from sao.data.dataset import Dataset, Frames, Images, SelectedRows
from sao.data.files.open import Opened
from sao.data.files.reading import FRAME, skipped_said
from sao.data.named import resized
from sao.errors import InputError
from sao.report.price import report_seconds
from sao.training import checkpoint
from sao.training.cost import StepCost, memory_of, step_cost
from sao.training.device import choose_device
from sao.training.log import clock
from sao.training.loop import check_batch
from sao.training.run_data import open_config_data, open_to_choose
from sao.training.trainer import describe, described_data
from sao.training.warm_start import take_weights, with_other_runs, with_suited_start

# (samples, size, channels, held out, classes) of the paper's data sets, to price a run where the data is not at hand.
KNOWN = {
    "cifar10": (50_000, 32, 3, 10_000, 10),
    "cifar100": (50_000, 32, 3, 10_000, 100),
    "imagenet10": (13_000, 128, 3, 500, 10),
    "imagenet100": (126_689, 128, 3, 5000, 100),
    "mnist": (60_000, 28, 1, 10_000, 10),
    "fashion_mnist": (60_000, 28, 1, 10_000, 10),
}
SIZES = (32, 64)  # of images that are priced where nobody gave one
RESIZED = 256  # images that are resized for it


@dataclass(frozen=True)
class Priced:
    """Data to make steps with, and how many samples it has or stands for."""

    opened: Opened
    train: int
    test: int
    note: str
    at_hand: bool = True


@dataclass(frozen=True)
class Price:
    """The steps of a run, its report and its checkpoints; evaluations have a budget instead of a price."""

    note: str  # what stood for the data
    samples: int
    step: StepCost
    steps: int
    report: float  # seconds
    checkpoint: int  # bytes

    @property
    def training(self) -> float:
        """Seconds of all the steps."""
        return self.steps * self.step.seconds


def price_run(config: Config, automatic: Set[str] | None = None, minutes: float | None = None) -> None:
    """Print what `sao train` would print before it begins, then the price."""
    asked = with_other_runs(config)
    config, data, reasons = _chosen(asked, automatic, minutes)
    for sentence in (*data.opened.notes, *reasons):
        print(sentence)
    if data.opened.skipped:
        print(skipped_said(data.opened.skipped))
    price = _price(config, data)
    for sentence in take_weights(price.step.trial.method, config, data.opened.dataset.train.shape).notes:
        print(sentence)
    if data.at_hand:
        print(described_data(data.opened.dataset))
        print(describe(config, data.opened.dataset, price.step.trial.method))
    else:
        print(price.note)
    passes = price.steps * config.train.batch / price.samples
    print(f"length      {price.steps} steps of {config.train.batch}: {passes:.3g} passes over the data")
    tried, how = price.step.trial, ", measured"
    if tried.batch != config.train.batch:
        how = f", a straight line through batches of {tried.batch // 2} and {tried.batch} ({tried.seconds:.3g} s)"
    print(f"one step    {price.step.seconds:.3g} s{how}")
    limit = config.log.evaluate_minutes
    print(f"evaluation  {'no limit' if limit is None else f'at most {clock(60 * limit)}'} after the last step")
    if config.log.report:
        print(f"report      {clock(price.report)} after that")
    print(f"whole run   {price.steps} steps: {clock(price.training + price.report)} without evaluations")
    here = memory_of(choose_device(config.train.device))
    more = "" if price.step.memory < 0.9 * here else ": too much; lower train.batch, or set method.micro_batch"
    print(f"memory      {price.step.memory / 1e9:.2g} GB of the {here / 1e9:.3g} GB here{more}")
    disk = price.checkpoint * (config.log.keep + 1)
    print(f"disk        {disk / 1e9:.2f} GB for {config.log.keep} checkpoints and the one being written")
    if automatic is not None and data.at_hand:  # last: larger images would count as the memory of this run
        for sentence in _sizes(asked, data.opened.dataset, automatic, minutes):
            print(sentence)


def _sizes(config: Config, dataset: Dataset, given: Set[str], minutes: float | None) -> list[str]:
    """What other sizes of the images would cost, where the size was not given."""
    train, told = dataset.train, []
    if "data.size" in given or not isinstance(train, Images) or train.levels is not None:
        return []
    some = Images(train.pixels[: min(RESIZED, len(train))])
    for size in [size for size in SIZES if size != train.shape[1]]:
        few = resized(Dataset(dataset.name, some, some), size).train
        assert isinstance(few, Images)
        other = Images(SelectedRows(np.asarray(few.pixels), np.arange(len(train)) % len(few)))  # as many as there are
        chosen, _, times = choose_options_and_time(config, Dataset(dataset.name, other, few), given, minutes)
        told.append(f"--data.size {size}: {chosen.steps_for(len(other))} steps of {chosen.train.batch}, {times[0]}")
    return told


def price(config: Config, automatic: Set[str] | None = None) -> Price:
    config, data, _ = _chosen(config, automatic)
    return _price(config, data)


def _chosen(config: Config, automatic: Set[str] | None, minutes: float | None = None) -> tuple[Config, Priced, list[str]]:
    """The options that a run would have, its data, and the reasons."""
    config, data = _data(config, automatic is not None)
    if automatic is None or not data.at_hand:
        return config, data, []
    dataset = data.opened.dataset
    begun = with_suited_start(config, dataset.train, automatic)
    if minutes is None:
        config, reasons = choose_options(begun.config, dataset.train, begun.given)
    else:
        config, reasons, _ = choose_options_and_time(begun.config, dataset, begun.given, minutes)
    return config, data, [*begun.notes, *reasons]


def _price(config: Config, data: Priced) -> Price:
    check_batch(config, data.train)
    dataset, steps = data.opened.dataset, config.steps_for(data.train)
    cost = step_cost(config, dataset)
    method = cost.trial.method
    report = report_seconds(method, dataset.test, data.train + data.test) if config.log.report else 0.0
    return Price(data.note, data.train, cost, steps, report, checkpoint.size_on_disk(method))


def _data(config: Config, automatic: bool) -> tuple[Config, Priced]:
    try:
        if automatic:
            config, opened = open_to_choose(config, download=False)
        else:
            opened = open_config_data(config, download=False)
    except InputError:
        if config.data.source not in KNOWN:
            raise
        return config, _stand_in(config)
    dataset = opened.dataset
    note = f"data        {dataset.name}, {len(dataset.train)} training samples"
    return config, Priced(opened, len(dataset.train), len(dataset.test), note)


def _stand_in(config: Config) -> Priced:
    """Random pixels of the shape of a known data set, as many as a step needs."""
    source = config.data.source
    train, size, channels, test, classes = KNOWN[source]
    shape = (max(64, config.train.batch), config.data.size or size, config.data.size or size, channels)
    draws = np.random.default_rng(0)
    frames = None
    if config.data.crop is not None:
        whole = draws.integers(0, 256, (shape[0], FRAME * shape[1], FRAME * shape[2], channels), dtype=np.uint8)
        frames = Frames(whole, np.full(shape[0], 4 / 3, np.float32), config.data.crop)
    images = Images(draws.integers(0, 256, shape, dtype=np.uint8), np.arange(shape[0]) % classes, frames=frames)
    note = f"data        {source} is not at hand: priced with random pixels of its shape and its {train} samples"
    return Priced(Opened(Dataset(source, images, images), [], []), train, test, note, at_hand=False)
