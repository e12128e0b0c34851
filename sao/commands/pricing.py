"""What a run would cost on this machine: two real steps, then arithmetic that is said aloud."""

import resource
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from sao.automatic import choose_options
from sao.config import Config, build
from sao.data.batches import Batches
from sao.data.samples import Dataset, Images
from sao.engine import checkpoint
from sao.engine.device import choose_bfloat16, choose_device, set_threads
from sao.engine.log import clock
from sao.engine.loop import check_batch, new_method
from sao.engine.step import make_step
from sao.errors import InputError
from sao.methods import Method

# (samples, size, channels) of the paper's data sets, to price a run where the data is not at hand.
KNOWN = {
    "cifar10": (50_000, 32, 3),
    "cifar100": (50_000, 32, 3),
    "imagenet10": (13_000, 128, 3),
    "imagenet100": (126_689, 128, 3),
    "mnist": (60_000, 28, 1),
    "fashion_mnist": (60_000, 28, 1),
}
PIXELS_AT_ONCE = 32 * 32 * 32  # a trial batch of 32 images of 32x32, or as many larger ones as have the same area


@dataclass(frozen=True)
class Price:
    """What two steps of a trial batch say about a whole run; the time of a step is taken to be linear in the batch."""

    note: str  # what stood for the data
    samples: int
    trial_batch: int
    trial_seconds: float  # of the second step
    peak: float  # GB
    scale: float  # how many trial batches a batch is
    steps: int
    checkpoint: int  # bytes

    @property
    def step(self) -> float:
        return self.trial_seconds * self.scale

    @property
    def whole(self) -> float:
        """Seconds of all the steps."""
        return self.steps * self.step


def price_run(config: Config, automatic: dict[str, str] | None = None) -> int:
    dataset, samples, note = _data(config)
    if automatic is not None and len(dataset.train) == samples:  # not for a few random pixels that stand for the data
        config, reasons = choose_options(config, dataset.train, automatic.keys())
        print("\n".join(reasons))
    price = _price(config, dataset, samples, note)
    disk = price.checkpoint * (config.log.keep + 1)
    print(price.note)
    print(
        f"measured    two steps of batch {price.trial_batch}: {price.trial_seconds:.2f} s for the second, "
        f"peak memory {price.peak:.2f} GB"
    )
    extrapolated = "" if price.scale == 1 else f" ({price.trial_seconds:.2f} s x {price.scale:.1f}, linear in the batch)"
    print(f"one step    batch {config.train.batch}: {price.step:.1f} s{extrapolated}")
    print(f"whole run   {price.steps} steps: {clock(price.whole)}")
    print(f"memory      {_memory(config, price)}")
    print(f"disk        {disk / 1e9:.2f} GB for {config.log.keep} checkpoints and the one being written")
    return 0


def price(config: Config) -> Price:
    return _price(config, *_data(config))


def _price(config: Config, dataset: Dataset, samples: int, note: str) -> Price:
    check_batch(config, samples)
    area = int(np.prod(dataset.train.shape[1:]))
    trial_batch = max(4, min(config.train.batch, len(dataset.train), PIXELS_AT_ONCE // max(area, 1)))
    trial = build(config.model_dump(mode="json"), {"train.batch": str(trial_batch)})
    set_threads(config.train.threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the bank is larger than the few samples that stand for the data set
        method = new_method(trial, dataset, choose_device(config.train.device))
    method.bfloat16_passes = choose_bfloat16(config.train.precision, next(method.parameters()).device)
    seconds = _two_steps(method, dataset, trial)
    scale, size = config.train.batch / trial_batch, checkpoint.size_on_disk(method)
    return Price(note, samples, trial_batch, seconds, _peak(), scale, config.steps_for(samples), size)


def _data(config: Config) -> tuple[Dataset, int, str]:
    from sao.commands.training import open_config_data

    try:
        dataset = open_config_data(config, download=False).dataset
    except InputError:
        if config.data.source not in KNOWN:
            raise
    else:
        return dataset, len(dataset.train), f"data        {dataset.name}, {len(dataset.train)} training samples"
    samples, size, channels = KNOWN[config.data.source]
    size = config.data.size or size
    pixels = np.random.default_rng(0).integers(0, 256, (64, size, size, channels), dtype=np.uint8)
    images = Images(pixels, np.zeros(len(pixels), np.int64))
    note = f"data        {config.data.source} is not at hand: priced with random pixels of its shape and its {samples} samples"
    return Dataset(config.data.source, images, images), samples, note


def _two_steps(method: Method, dataset: Dataset, config: Config) -> float:
    """Seconds of the second step; the first also pays for warming up."""
    device = next(method.parameters()).device
    wait: Callable[[], None] = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    batches = Batches(dataset.train, device)
    for step in range(2):
        wait()
        started = time.perf_counter()
        make_step(method, batches, config.seed, config.train.batch, step)
        wait()
    return time.perf_counter() - started


def _peak() -> float:
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def _memory(config: Config, price: Price) -> str:
    micro_batch = config.model_dump()["method"].get("micro_batch")
    if micro_batch is None:
        return f"about {price.peak * price.scale:.0f} GB at most, if all of it grew with the batch"
    return f"as measured, and what the generator keeps of a larger batch: D works on {micro_batch} samples at a time"
