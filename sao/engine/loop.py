"""The loop: batch, step, log, evaluate, checkpoint. Killed at any moment, it goes on from the last checkpoint as if nothing
had happened, because every random draw is a function of the step and the checkpoint holds everything else."""

import os
import signal
import traceback
from collections.abc import Callable
from contextlib import contextmanager
from types import FrameType

import torch

from sao import distributed, processes
from sao.config import Config
from sao.data.batches import Batches
from sao.data.samples import Dataset, Samples
from sao.engine import checkpoint
from sao.engine.collapse import Collapse
from sao.engine.device import arrange_passes, check_compiler, choose_bfloat16, numerics
from sao.engine.log import Log, Progress
from sao.engine.pictures import save_samples
from sao.engine.run import Run
from sao.engine.schedule import LearningRates
from sao.engine.steadiest import Steadiest
from sao.engine.step import make_step
from sao.engine.watch import watch
from sao.errors import InputError
from sao.methods import Method, NonFiniteError
from sao.methods.method import Scalars


class Interrupted(Exception):
    """The run was asked to stop; its state is saved."""


class Diverged(RuntimeError):
    """A loss or a gradient became NaN or inf, or the processes do not have the same weights any more, at a step."""

    def __init__(self, step: int, what: str, advice: str) -> None:
        super().__init__(step, what, advice)
        self.step, self.what, self.advice = step, what, advice

    def __str__(self) -> str:
        return f"step {self.step}: {self.what}; {self.advice}"


def new_method(config: Config, dataset: Dataset, device: torch.device) -> Method:
    """The learner of a configuration at step 0, on its device."""
    check_batch(config, len(dataset.train))
    return config.build_method(dataset.train.shape, len(dataset.train), dataset.classes).to(device)


def train(run: Run, config: Config, dataset: Dataset, method: Method, log: Log, first: int = 0) -> None:
    """Make the steps from `first` to the end of the run."""
    total = config.steps_for(len(dataset.train))
    device = next(method.parameters()).device
    batches = Batches(dataset.train, device)
    progress = Progress(first, total, config.train.batch, shown=distributed.is_main())
    rates = LearningRates(method.optimisers, config.train.schedule, total, config.warmup_steps_for(len(dataset.train)))
    saved, steadiest, collapse = first, Steadiest(run, first), Collapse(method.uniform_losses)
    _check_start(method, batches, first, total)
    processes.main_only(lambda: check_compiler(config.train, device))
    arrange_passes(method, config.train, processes.main_only(lambda: choose_bfloat16(config.train.precision, device)))
    if method.bfloat16_passes:
        log.say("passes that carry no Jacobian are made in bfloat16")
    if method.compiled_passes:
        log.say("passes that carry no Jacobian are compiled, which takes the first steps minutes")
    with _stop_requests() as stop_requested, numerics(config.train):
        for step in range(first, total):
            rates.set(step)
            done = step + 1
            last = done == total
            logging, saving = _due(config.log.every, done, last), _due(config.log.checkpoint_every, done, last)
            try:
                scalars = make_step(method, batches, config.seed, config.train.batch, step)
                kept = _due(config.log.sample_every, done, last) or _due(config.log.evaluate_every, done, False)
                if logging or saving or kept:  # before that nothing is read from the device
                    method.check_finite()
            except (FloatingPointError, torch.linalg.LinAlgError) as error:  # pyright: ignore[reportPrivateImportUsage]
                raise _divergence(done, error, saved, run) from None
            if logging:
                values = _values(scalars)
                log.row(done, values | progress.times(done))
                progress.update(done, _headline(method, values))
                if method.may_collapse and (news := collapse.seen(done, values)) is not None:
                    progress.end_line()
                    log.say(news)
            if _due(config.log.sample_every, done, last):
                _draw(run, method, dataset.train, config, done)
            if _due(config.log.evaluate_every, done, False):
                found = watch(method, dataset, config.seed, steadiest.clusters)
                log.row(done, found.scalars)
                if (news := steadiest.consider(method, done, found)) is not None:
                    progress.end_line()
                    log.say(news)
            stopping = _agreed(stop_requested(), done, last, config.log.every)
            saving = saving or stopping
            if saving or _due(config.train.check_every, done, False):
                _check_same(method, done, saved, run)
            if saving:
                _check_state(method, done, saved, run)
                _save(run, method, done, config.log.keep)
                saved = done
            if stopping and not last:
                progress.end_line()
                raise Interrupted(f"stopped after step {done} of {total}; go on with: sao resume {run.folder}")
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
    return "  ".join(f"{name} {values[name]:.3f}" for name in method.headline)


def _draw(run: Run, method: Method, samples: Samples, config: Config, done: int) -> None:
    picture = run.samples / f"step-{done:08d}.png"

    def draw() -> None:
        save_samples(picture, method, samples, config.seed)

    processes.main_only(draw)


def _save(run: Run, method: Method, done: int, keep: int) -> None:
    def save() -> None:
        checkpoint.save(run.checkpoints, method, done, keep)

    processes.main_only(save)


def _check_start(method: Method, batches: Batches, first: int, total: int) -> None:
    """Processes on different machines may see different folders; nothing later would tell them."""
    if distributed.world_size() == 1:
        return
    some = batches.inputs(torch.arange(min(64, len(batches))))
    if not distributed.same(len(batches), distributed.checksum([some])):
        raise InputError("the processes have read different data: give each of them the same")
    if not distributed.same(first, total, _weights_checksum(method)):
        raise InputError("the processes do not start from the same state: the run must lie in a folder that all of them see")


def _check_same(method: Method, done: int, saved: int, run: Run) -> None:
    """Processes whose weights differ by one bit train different networks from then on."""
    if distributed.world_size() == 1 or distributed.same(_weights_checksum(method)):
        return
    advice = (
        f"the last checkpoint, of step {saved}, is from before that: go on with sao resume {run.folder}, "
        "and suspect a machine if it happens again"
    )
    raise Diverged(done, "the processes have different weights", advice)


def _weights_checksum(method: Method) -> int:
    # Without the vectors of spectral normalisation: they are each process's own estimate, which machines of different kinds
    # round differently, and what comes of it is summed before it touches a weight.
    state = method.state_dict().items()
    return distributed.checksum(value for name, value in state if not name.endswith(("._u", "._v")))


def _divergence(done: int, error: Exception, saved: int, run: Run) -> Diverged:
    """With the step in which it happened, which may be some before the one that was looked at."""
    if isinstance(error, NonFiniteError) and error.step is not None:
        done = error.step + 1
    return _with_advice(done, _what_broke(error), saved, run)


def _with_advice(step: int, what: str, saved: int, run: Run) -> Diverged:
    anew = "start again with a lower learning rate and --overwrite"
    if not saved:
        return Diverged(step, what, f"no checkpoint was made yet: {anew}")
    kept = f"the last good checkpoint, of step {saved}, is kept in {run.checkpoints}"
    lower = f"lower the learning rates in {run.folder / 'config.yaml'} and go on with sao resume {run.folder}"
    return Diverged(step, what, f"{kept}: {lower}, or {anew}")


def _what_broke(error: Exception) -> str:
    """The term that is not finite; where the mathematics refused its arguments, the function that did."""
    if isinstance(error, NonFiniteError):
        return str(error)
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_globals["__name__"] in ("sao.objectives", "sao.smoothness", "sao.memory"):
            return f"{frame.f_code.co_name}: {str(error).splitlines()[0]}"
    return str(error).splitlines()[0]


def _check_state(method: Method, done: int, saved: int, run: Run) -> None:
    """A checkpoint must not hold a tensor that is not finite: an update can overflow although its gradients did not."""
    try:
        method.check_finite()
    except NonFiniteError as error:
        raise _divergence(done, error, saved, run) from None
    values = {name: value for name, value in method.state_dict().items() if value.is_floating_point()}
    finite = torch.stack([value.isfinite().all() for value in values.values()])
    if not bool(finite.all()):
        broken = list(values)[int(finite.logical_not().nonzero()[0])]
        raise _with_advice(done, f"{broken} became NaN or inf by the update", saved, run)


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
