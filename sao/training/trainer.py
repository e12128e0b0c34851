"""The one driver of training: build, begin, loop, evaluate, report.

`sao train`, `sao resume`, `sao.train`, the estimator and the tables all train here. `--dry-run` makes its steps by the loop's
own `Steps` too. So what one of them keeps to (numerics, schedule, finite checks, other runs) all of them keep to.
"""

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from sao import config as configuration
from sao.config import Config
from sao.config.auto import choose_options_and_time
from sao.core import distributed
from sao.data.dataset import Dataset, Images, described_images
from sao.data.files.open import Opened
from sao.data.files.reading import Readable, skipped_said
from sao.data.labels import read_labels
from sao.errors import InputError, printable, typed
from sao.methods import Method
from sao.runtime import launch as processes
from sao.runtime.csv_files import tsv_text
from sao.runtime.files import read_text
from sao.training import checkpoint
from sao.training.data_facts import with_data
from sao.training.device import choose_device, fixed_choices, set_threads
from sao.training.log import FolderGone, Log, OnLog
from sao.training.loop import Diverged, Interrupted, new_method, train
from sao.training.model import Model
from sao.training.run_data import LABELS, check_apart, facts_of, open_config_data, open_object, open_run_data, open_to_choose
from sao.training.run_folder import DataFacts, Run, check_free
from sao.training.schedule import described_changes
from sao.training.summary import print_summary
from sao.training.trackers import check_trackers, remember
from sao.training.warm_start import begin, with_other_runs, with_suited_start

SKIPPED, LAUNCH = "skipped.tsv", "launch.txt"


class RunGone(InputError):
    """The folder of a run was deleted or moved while the run was trained; the command line exits with code 4."""


def start(
    config: Config,
    out: Path,
    overwrite: bool = False,
    automatic: Set[str] | None = None,
    data: Readable | None = None,
    why: bool = False,
    on_log: OnLog | None = None,
    minutes: float | None = None,
) -> None:
    """A new run. `automatic` names the options that are given, where the rest is to be chosen for the data.

    `data` takes the place of what the configuration names, where it is an object in memory. `why` prints what was found in the
    data and the reasons of what was chosen; log.txt has them in any case. `on_log` gets each row of metrics. `minutes`, where
    the rest is chosen too, is how long the steps may take.
    """
    if processes.main_only(lambda: _made_by_this_launch(out)):
        resume(out, on_log=on_log)
        return
    config = with_other_runs(config)
    processes.main_only(lambda: _check_out(out, config, overwrite))  # before data is read, which may take long
    check_trackers(config.log.to)
    times: list[str] = []
    if automatic is None:
        asked = config
        opened = processes.node_first(lambda: open_config_data(asked) if data is None else open_object(asked, data))
        reasons = list(opened.notes)
    else:
        config, opened, reasons, times = _open_and_choose(config, data, automatic, minutes)
    chosen = processes.main_only(lambda: fixed_choices(config.train))
    config = config.model_copy(update={"train": config.train.model_copy(update=chosen)})
    method = _build_and_warn(config, opened.dataset)
    config, begun = begin(method, config, opened.dataset.train.shape)
    final = config
    with _held(Run(out)):
        processes.main_only(lambda: _create(out, final, opened, overwrite, method))
        said = [described_data(opened.dataset), *opened.reading]
        if opened.labelled is not None:
            said.append(opened.labelled)
        if opened.skipped:
            said.append(f"{skipped_said(opened.skipped)}; {out / SKIPPED} lists them")
        more = [*times, *(["--why prints the reasons"] if automatic is not None and not why else [])]
        said += [*begun, "; ".join([describe(config, opened.dataset, method), *more])]
        _finish(Run(out), config, opened, method, 0, [*reasons, *said] if why else said, [] if why else reasons, on_log)


def resume(out: Path, source: str | None = None, changed: Config | None = None, on_log: OnLog | None = None) -> None:
    """Go on with a run, with the data at `source` and the options of `changed` where they are given."""
    run = Run.open(out)
    with _held(run):
        before = run.config
        stored = before if changed is None else changed
        if source is None and stored == before and processes.main_only(lambda: is_complete(run)):
            _say_complete(run, before.steps_for(run.facts.samples))
            return
        check_trackers(stored.log.to)
        if source is not None:
            stored = with_data(stored, source=source)
        config, opened = open_run_data(run, stored, source is None)
        processes.main_only(lambda: run.prepare(facts_of(opened)))
        method = _build_and_warn(config, opened.dataset)
        notes: list[str] = []
        first = _restored(run, config, opened.dataset, method, notes.append)
        samples = len(opened.dataset.train)
        notes += described_changes(before, stored, samples, first)
        if stored != before:
            processes.main_only(lambda: run.change(stored))
        notes += processes.main_only(lambda: _cut_metrics(run, first))
        total = config.steps_for(samples)
        if first >= total and run.evaluated:
            _say_complete(run, total)
            return
        notes.append(described_data(opened.dataset))
        notes.append(f"going on after step {first} of {total}; {describe(config, opened.dataset, method)}")
        _finish(run, config, opened, method, first, notes, on_log=on_log)


def train_run(folder: Path, config: Config, dataset: Dataset) -> Method:
    """The method at the end of a study's run, begun or gone on with; nothing is left to do for a complete one."""
    method = build(config, dataset)
    with _held(Run(folder)):
        begun = bool(checkpoint.steps_in(Run(folder).checkpoints))
        if not begun:  # or killed before its first checkpoint: it starts anew
            config = begin(method, config, dataset.train.shape).config
        run = Run.open(folder) if begun else Run.create(folder, config, DataFacts.of(dataset), overwrite=True)
        first = _restored(run, config, dataset, method, print) if begun else 0
        _cut_metrics(run, first)
        with _writing(run, config, DataFacts.of(dataset), method, first) as log:
            train(run, config, dataset, method, log, first)
    return method


def fit(
    config: Config,
    dataset: Dataset,
    standardiser: dict[str, Any] | None = None,
    shown: bool = False,
    on_log: OnLog | None = None,
) -> Model:
    """A model that was trained in memory, without a folder; Ctrl-C, or KeyboardInterrupt in `on_log`, ends it early."""
    config = with_other_runs(config)
    method, step = build(config, dataset), config.steps_for(len(dataset.train))
    config = begin(method, config, dataset.train.shape).config
    log = Log(None, on_log=on_log)
    try:
        train(None, config, dataset, method, log, shown=shown)
    except Interrupted as stop:
        step = stop.step
    if log.failure is not None and not isinstance(log.failure, KeyboardInterrupt):
        raise log.failure
    return Model(config, DataFacts.of(dataset, standardiser), method, step)


def build(config: Config, dataset: Dataset) -> Method:
    """The method at step 0, with as many threads as the configuration says."""
    set_threads(config.train.threads)
    return new_method(config, dataset, choose_device(config.train.device))


def described_data(dataset: Dataset) -> str:
    """What was read, in one line."""
    train, test = dataset.train, dataset.test
    if len(train.shape) == 3:
        channels, height, width = train.shape
        levels = train.levels if isinstance(train, Images) else None
        what = f"{described_images(channels, levels)} images of {width}x{height}"
    else:
        what = f"rows of {train.shape[0]} numbers"
    labels = "no labels" if dataset.classes is None else f"{dataset.classes} classes"
    return f"{dataset.name}: {len(train) + len(test)} {what}, {len(train)} to train on, {len(test)} held out, {labels}"


def describe(config: Config, dataset: Dataset, method: Method) -> str:
    """What is trained and for how long, in one line."""
    parameters = sum(p.numel() for o in method.optimisers.values() for g in o.param_groups for p in g["params"])
    processes = f", {distributed.world_size()} processes" if distributed.world_size() > 1 else ""
    threads = torch.get_num_threads()
    return (
        f"{config.method.name}: {parameters / 1e6:.2f} M trained parameters, "
        f"{config.steps_for(len(dataset.train))} steps of {config.train.batch} "
        f"on {next(method.parameters()).device.type} ({threads} thread{'' if threads == 1 else 's'}{processes})"
    )


def _made_by_this_launch(out: Path) -> bool:
    """torchrun restarts its workers with the command they began with: then `train` goes on with the run that it made."""
    launch = processes.launch_id()
    try:
        return launch is not None and read_text(Run.open(out).folder / LAUNCH) == launch
    except (ValueError, OSError):
        return False


def _check_out(out: Path, config: Config, overwrite: bool) -> None:
    check_apart(out, config)
    check_free(out, overwrite)


def _open_and_choose(
    asked: Config, data: Readable | None, given: Set[str], minutes: float | None
) -> tuple[Config, Opened, list[str], list[str]]:
    """The configuration for the data, the data, the reasons of the choices, and how long it will take."""
    config, opened = processes.node_first(lambda: open_to_choose(asked, data))
    begun = with_suited_start(config, opened.dataset.train, given)

    def choose() -> tuple[dict[str, Any], list[str], list[str]]:
        chosen, reasons, times = choose_options_and_time(begun.config, opened.dataset, begun.given, minutes)
        return chosen.model_dump(mode="json"), reasons, times

    values, reasons, times = processes.main_only(choose)
    return configuration.build(values), opened, [*opened.notes, *begun.notes, *reasons], times


def _build_and_warn(config: Config, dataset: Dataset) -> Method:
    """What building warns of is one line for a person."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        method = build(config, dataset)
    for warning in caught if distributed.is_main() else []:
        print(f"sao: warning: {printable(str(warning.message))}", file=sys.stderr)
    return method


def _create(out: Path, config: Config, opened: Opened, overwrite: bool, method: Method) -> None:
    others = {}
    if (launch := processes.launch_id()) is not None:
        others[LAUNCH] = launch
    if config.data.label_file is not None:
        others[LABELS] = read_labels(config.data.label_file).text
    if opened.skipped:
        others[SKIPPED] = tsv_text((item.name, item.reason) for item in opened.skipped)
    run = Run.create(out, config, facts_of(opened), overwrite, others)
    if config.train.start_from:  # from here on the other run is not needed
        checkpoint.save(run.checkpoints, method, 0, config.log.keep)


@contextmanager
def _held(run: Run) -> Iterator[None]:
    """The main process holds the folder for all of them."""
    with ExitStack() as stack:
        processes.main_only(lambda: stack.enter_context(run.held()))
        yield


def _restored(run: Run, config: Config, dataset: Dataset, method: Method, report: Callable[[str], None]) -> int:
    """The step from which a run goes on; one that was stopped before its first checkpoint starts as it started then."""
    if checkpoint.steps_in(run.checkpoints):
        return checkpoint.load_latest(run.checkpoints, method, report)
    begin(method, config, dataset.train.shape)
    return 0


def _cut_metrics(run: Run, first: int) -> list[str]:
    """Forget the rows after a checkpoint; what there is to say of those that are elsewhere too."""
    sent = remember(run.folder, run.rows_after(first))
    run.cut_metrics(first)
    if sent is None or sent <= first:
        return []
    return [f"wandb and mlflow have rows up to step {sent}: those of the steps that are made again are not sent again"]


def is_complete(run: Run) -> bool:
    """Whether there is nothing left to do: found without the data, from the last checkpoint if it is whole."""
    steps = checkpoint.steps_in(run.checkpoints)
    if not steps or not run.evaluated:
        return False
    try:
        step = checkpoint.checked_step(steps[-1], (checkpoint.METHOD, checkpoint.OPTIMISERS))
        return step >= run.config.steps_for(run.facts.samples)
    except InputError:
        return False


def _say_complete(run: Run, total: int) -> None:
    if distributed.is_main():
        longer = typed("resume", run.folder, "--train.steps", 2 * total)
        print(f"{run.folder} is complete: all {total} steps are done; to go on for longer: {longer}")


def _finish(
    run: Run,
    config: Config,
    opened: Opened,
    method: Method,
    first: int,
    notes: list[str],
    unsaid: Sequence[str] = (),
    on_log: OnLog | None = None,
) -> None:
    """The loop, then the evaluation and the report. `unsaid` lines are for log.txt alone."""
    started = time.monotonic()
    with _writing(run, config, facts_of(opened), method, first, on_log) as log:
        try:
            for note in unsaid:
                log.note(note)
            for note in notes:
                log.say(note)
            train(run, config, opened.dataset, method, log, first)
            processes.main_only(lambda: print_summary(run, config, opened.dataset, method, log, time.monotonic() - started))
        except Interrupted as stop:
            if log.failure is not None:
                log.say(f"on_log raised {type(log.failure).__name__}: {log.failure}")
            log.say(f"{stop}; go on with: {typed('resume', run.folder)}")
            if log.failure is None:
                raise
        except KeyboardInterrupt:  # the second Ctrl-C, or one while the table is made
            log.say(f"interrupted; go on with: {typed('resume', run.folder)}")
            raise
        except Diverged as error:
            log.note(str(error))
            raise
        except distributed.Lost as error:
            log.note(str(error))
            raise distributed.Lost(f"{error}; go on with: {typed('resume', run.folder)}") from None
    if log.failure is not None:  # here all is written
        raise log.failure


@contextmanager
def _writing(
    run: Run, config: Config, facts: DataFacts, method: Method, first: int, on_log: OnLog | None = None
) -> Iterator[Log]:
    """The log of a run, around all that writes to its folder: a full disk or a folder that goes away is one line."""
    log = Log(None)
    try:
        if distributed.is_main():
            log = Log(run.folder, first, on_log, config.log.to, config.by_name())
        yield log
    except FolderGone as gone:
        raise RunGone(_rescued(run.folder, config, facts, method, gone.step)) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{run.folder} cannot be written ({reason}); go on with: {typed('resume', run.folder)}") from None
    finally:
        log.close()


def _rescued(folder: Path, config: Config, facts: DataFacts, method: Method, step: int) -> str:
    """Save the state in a new run beside a folder that has gone; what there is to say."""
    gone = f"{folder} was deleted or moved while it was trained"
    names = (f"{folder}-rescued{'' if number == 1 else f'-{number}'}" for number in range(1, 1000))
    beside = next(path for path in map(Path, names) if not path.exists())
    try:
        checkpoint.save(Run.create(beside, config, facts).checkpoints, method, step, keep=1)
    except InputError as error:
        return f"{gone}, and its state after step {step} could not be saved beside it: {error}"
    return f"{gone}; its state after step {step} is saved: go on with {typed('resume', beside)}"
