"""The loop: batch, step, log, evaluate, checkpoint.

Killed at any moment, it goes on from the last checkpoint with bit-equal results. On another number of processes they are equal
up to rounding, so that in float32 they part after some steps. Every random draw is a function of the step, and the checkpoint
holds everything else.
"""

import os
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self

import torch

from sao.config import Config
from sao.core import distributed
from sao.data.dataset import Dataset
from sao.data.loader import Batches
from sao.errors import InputError, typed
from sao.methods import Method, NonFiniteError
from sao.methods.base import Scalars
from sao.runtime import launch as processes
from sao.runtime.machine import usable_memory
from sao.training import checkpoint
from sao.training.device import check_compiler, choose_bfloat16, numerics, set_precision
from sao.training.log import EVALUATION, Log, Progress
from sao.training.pictures import save_samples
from sao.training.run_folder import Run
from sao.training.schedule import LearningRates
from sao.training.step import make_step
from sao.training.validation import Collapse, validate

DIFFERENT = "the processes have different weights"

LARGE_SIZE = 1024  # of a layer; up to it no network fills a memory, and half a second of looking is saved


class Interrupted(Exception):
    """The training was asked to stop after a step; the state of a run is saved."""

    def __init__(self, step: int, total: int) -> None:
        super().__init__(step, total)
        self.step, self.total = step, total

    def __str__(self) -> str:
        return f"stopped after step {self.step} of {self.total}"


class Diverged(RuntimeError):
    """A loss or a gradient became NaN or inf, or the processes do not have the same weights any more, at a step."""

    def __init__(self, step: int, what: str, advice: str = "") -> None:
        super().__init__(step, what, advice)
        self.step, self.what, self.advice = step, what, advice

    def __str__(self) -> str:
        return f"step {self.step}: {self.what}" + (f"; {self.advice}" if self.advice else "")


def new_method(config: Config, dataset: Dataset, device: torch.device) -> Method:
    """The method of a configuration at step 0, on its device."""
    check_batch(config, len(dataset.train))

    def build() -> Method:
        method = config.build_method(dataset.train.shape, len(dataset.train), dataset.classes)
        labels = dataset.train.labels
        missing = 0 if labels is None else int((labels < 0).sum())
        if method.needs_labels and missing:
            raise InputError(
                f"this method learns from labels, and {missing} of {len(dataset.train)} training samples have none"
            )
        return method

    if _largest_size(config) <= LARGE_SIZE:
        return build().to(device)
    try:
        _check_memory(build, device)
        return build().to(device)
    except (RuntimeError, MemoryError, OverflowError) as error:  # more bytes than there are, or than a number can say
        raise InputError(f"these networks cannot be built: {str(error).splitlines()[0]}; make them smaller") from None


def _largest_size(config: Config) -> int:
    """The largest whole number among the options of the networks."""
    values = [value for key, value in config.by_name().items() if key.startswith(("method.", "encoder."))]
    numbers = [number for value in values for number in (value if isinstance(value, list) else [value])]
    return max((number for number in numbers if isinstance(number, int)), default=0)


def _check_memory(build: Callable[[], Method], device: torch.device) -> None:
    """Refuse what this machine cannot hold: it is built on torch's meta device first, where tensors have no values."""
    try:
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said when it is built
            needed = checkpoint.size_on_disk(build())
    except (RuntimeError, NotImplementedError):  # it cannot be built without values
        return
    memory = torch.cuda.mem_get_info(device)[1] if device.type == "cuda" else usable_memory()
    if needed > memory:
        raise InputError(
            f"these networks need {needed / 1e9:.1f} GB to train, and there are {memory / 1e9:.1f} GB: "
            "make them smaller (encoder.widths, encoder.width, method.generator.width)"
        )


class Steps:
    """The steps of a run. Whoever trains makes them here: with the run's numerics, precision and learning rates."""

    def __init__(self, config: Config, dataset: Dataset, method: Method) -> None:
        self.config, self.method = config, method
        samples, device = len(dataset.train), next(method.parameters()).device
        self.total = config.steps_for(samples)
        self.batches = Batches(dataset.train, device)
        self._rates = LearningRates(method.optimisers, config.train.schedule, self.total, config.warmup_steps_for(samples))
        processes.main_only(lambda: check_compiler(config.train, device))
        set_precision(method, config.train, processes.main_only(lambda: choose_bfloat16(config.train.precision, device)))
        self._numerics = numerics(config.train)

    def __enter__(self) -> Self:
        self._numerics.__enter__()
        return self

    def __exit__(self, *error) -> bool | None:
        return self._numerics.__exit__(*error)

    def make(self, step: int, check: bool) -> Scalars:
        """One step; with `check`, an error if it or one before it was not finite. Without, nothing is read from the device."""
        self._rates.set(step)
        try:
            scalars = make_step(self.method, self.batches, self.config.seed, self.config.train.batch, step)
            if check:
                self.method.check_finite()
        except (FloatingPointError, torch.linalg.LinAlgError) as error:  # pyright: ignore[reportPrivateImportUsage]
            raise _divergence(step + 1, error) from None
        return scalars


def train(
    run: Run | None, config: Config, dataset: Dataset, method: Method, log: Log, first: int = 0, shown: bool = True
) -> None:
    """Make the steps from `first` to the end. Without a run nothing is drawn, evaluated or saved on the way."""
    steps = Steps(config, dataset, method)
    total = steps.total
    evaluate_every = None if run is None else config.log.evaluate_every
    shown = shown and distributed.is_main()
    progress = Progress(first, total, config.train.batch, shown, method.cycle, evaluate_every)
    saved, collapse = first, Collapse(method.uniform_losses)
    _check_start(method, steps.batches, first, total)
    if method.autocast_bfloat16:
        log.say("passes without Jacobian norms run in bfloat16 (autocast)")
    if method.compiled:
        log.say("passes without Jacobian norms are compiled: the first steps take minutes")
    with _stop_requests() as stop_requested, _advised(run, lambda: saved), steps:
        for step in range(first, total):
            done = step + 1
            last = done == total
            logging = _due(config.log.every, done, last)
            saving = run is not None and _due(config.log.checkpoint_every, done, last)
            drawing = run is not None and _due(config.log.sample_every, done, last)
            evaluating = run is not None and _due(config.log.evaluate_every, done, False)
            # Before one of these nothing is read from the device, and nothing is kept.
            scalars = steps.make(step, check=logging or saving or drawing or evaluating)
            values = _values(scalars) if logging else {}
            progress.left.step(done)
            if logging:
                log.row(done, values | progress.times(done))
                progress.update(done, _headline(method, values))
                if method.may_collapse and (news := collapse.seen(done, values)) is not None:
                    progress.end_line()
                    log.say(news)
            if drawing or evaluating:  # what is drawn or measured with broken weights means nothing
                _check_state(method, done)
            if drawing:
                assert run is not None
                log.check(done)
                picture = run.samples / f"step-{done:08d}.png"
                processes.main_only(lambda to=picture: save_samples(to, method, dataset.train, config.seed, run.folder))
            if evaluating:
                with progress.left.between(EVALUATION):
                    log.row(done, validate(method, dataset, config.seed))
            stopping = _agreed(stop_requested() or log.failure is not None, done, last, config.log.every)
            saving = saving or (stopping and run is not None)
            if saving or _due(config.train.check_every, done, False):
                _check_same(method, done)
            if saving or stopping or last:  # the model is kept, in a run or by the caller
                _check_state(method, done)
            if saving:
                assert run is not None
                log.check(done)
                processes.main_only(lambda done=done: checkpoint.save(run.checkpoints, method, done, config.log.keep))
                saved = done
            if stopping and not last:
                progress.end_line()
                raise Interrupted(done, total)
    progress.end_line()


def check_batch(config: Config, samples: int) -> None:
    if config.train.batch > samples:
        raise InputError(
            f"train.batch is {config.train.batch} but there are only {samples} training samples: "
            f"set --train.batch to {samples} or less"
        )
    if config.train.batch < distributed.world_size():
        raise InputError(
            f"train.batch is {config.train.batch} for {distributed.world_size()} processes: give each at least one sample"
        )


def _due(every: int | None, done: int, last: bool) -> bool:
    return last or (every is not None and done % every == 0)


def _values(scalars: Scalars) -> dict[str, float]:
    """Of all of them at once: each read waits for the device."""
    return dict(zip(scalars, torch.stack([value.double() for value in scalars.values()]).tolist(), strict=True))


def _headline(method: Method, values: dict[str, float]) -> str:
    """One loss, without the network's name."""
    return "".join(f"{name.rpartition('/')[2]} {values[name]:.3f}" for name in method.headline[:1])


def _check_start(method: Method, batches: Batches, first: int, total: int) -> None:
    """Processes on different machines may see different folders; nothing later would tell them."""
    if distributed.world_size() == 1:
        return
    some = batches.inputs(torch.arange(min(64, len(batches))))
    if not distributed.same(len(batches), distributed.checksum([some])):
        raise InputError("the processes have read different data: give each of them the same")
    if not distributed.same(first, total, _weights_checksum(method)):
        raise InputError("the processes do not start from the same state: the run must lie in a folder that all of them see")


def _check_same(method: Method, done: int) -> None:
    """Processes whose weights differ by one bit train different networks from then on."""
    if distributed.world_size() > 1 and not distributed.same(_weights_checksum(method)):
        raise Diverged(done, DIFFERENT)


def _weights_checksum(method: Method) -> int:
    # Without the vectors of spectral normalisation: they are each process's own estimate, which machines of different kinds
    # round differently, and what comes of it is summed before it touches a weight.
    state = method.state_dict().items()
    return distributed.checksum(value for name, value in state if not name.endswith(("._u", "._v")))


def _divergence(done: int, error: Exception) -> Diverged:
    """With the step in which it happened, which may be some before the one that was looked at."""
    if isinstance(error, NonFiniteError) and error.step is not None:
        done = error.step + 1
    return Diverged(done, _what_broke(error))


@contextmanager
def _advised(run: Run | None, saved: Callable[[], int]) -> Iterator[None]:
    """Around the steps of a run: who meets a divergence learns from where the run can go on."""
    try:
        yield
    except Diverged as error:
        advice = error.advice if run is None else _advice(error, saved(), run)
        raise Diverged(error.step, error.what, advice) from None


def _advice(error: Diverged, saved: int, run: Run) -> str:
    if error.what == DIFFERENT:
        return (
            f"the last checkpoint, of step {saved}, is from before that: go on with {typed('resume', run.folder)}, "
            "and suspect a machine if it happens again"
        )
    anew = "start again with a lower learning rate and --overwrite"
    if not saved:
        return f"no checkpoint was made yet: {anew}"
    kept = f"the last good checkpoint, of step {saved}, is kept in {run.checkpoints}"
    lower = f"lower the learning rates in {run.folder / 'config.yaml'} and go on with {typed('resume', run.folder)}"
    return f"{kept}: {lower}, or {anew}"


def _what_broke(error: Exception) -> str:
    """The term that is not finite; where the mathematics refused its arguments, the function that did."""
    if isinstance(error, NonFiniteError):
        return str(error)
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_globals["__name__"] in ("sao.core.objectives", "sao.core.jacobian", "sao.core.memory_bank"):
            return f"{frame.f_code.co_name}: {str(error).splitlines()[0]}"
    return str(error).splitlines()[0]


def _check_state(method: Method, done: int) -> None:
    """A checkpoint must not hold a tensor that is not finite: an update can overflow although its gradients did not."""
    try:
        method.check_finite()
    except NonFiniteError as error:
        raise _divergence(done, error) from None
    values = {name: value for name, value in method.state_dict().items() if value.is_floating_point()}
    finite = torch.stack([value.isfinite().all() for value in values.values()])
    if not bool(finite.all()):
        broken = list(values)[int(finite.logical_not().nonzero()[0])]
        raise Diverged(done, f"{broken} became NaN or inf by the update")


def _agreed(requested: bool, done: int, last: bool, every: int) -> bool:
    """Whether to stop, on all processes at the same step: those that share a run ask each other when they log."""
    if distributed.world_size() == 1:
        return requested
    return _due(every, done, last) and distributed.any_of(requested)


@contextmanager
def _stop_requests():
    """Turn the first Ctrl-C or SIGTERM into a request; the second one ends the process as usual."""
    requested = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal requested
        requested = True
        if distributed.is_main():
            os.write(2, b"\nstopping after this step; once more to stop at once\n")  # print might be in the middle of a line
        for one, handler in previous.items():
            signal.signal(one, handler)

    previous: dict[int, Callable | int | None] = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            previous[number] = signal.signal(number, ask)
        except ValueError:  # not in the main thread: whoever owns the signals decides
            break
    try:
        yield lambda: requested
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
