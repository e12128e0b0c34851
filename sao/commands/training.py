"""What train and resume share: open the data, run the loop, evaluate, say what to look at."""

import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from sao import config as configuration
from sao import distributed, processes
from sao.commands.changes import described_changes
from sao.commands.output import warn
from sao.commands.summary import print_summary
from sao.config import Config
from sao.csv_files import tsv_text
from sao.data.open import open_data
from sao.data.sources import NAMES
from sao.data.user_files import Opened, Readable, open_path
from sao.engine import checkpoint
from sao.engine.bar import Bar
from sao.engine.data_place import with_data
from sao.engine.device import choose_device, fixed_choices, set_threads
from sao.engine.log import Log, check_tensorboard
from sao.engine.loop import Diverged, Interrupted, new_method, train
from sao.engine.run import DataFacts, Run, check_free
from sao.errors import InputError, typed
from sao.files import read_text
from sao.methods import Method
from sao.other_runs import begin

SKIPPED, LAUNCH = "skipped.tsv", "launch.txt"


def start(config: Config, out: Path, overwrite: bool, automatic: dict[str, str] | None, data: Readable | None = None) -> int:
    """A new run. `automatic` holds the options that a person gave by hand, where the rest is to be chosen for the data.

    `data` takes the place of what the configuration names, where it is an object in memory.
    """
    if processes.main_only(lambda: _made_by_this_launch(out)):
        return resume(out)
    processes.main_only(lambda: _check_out(out, config, overwrite))  # before data is read, which may take long
    if config.log.tensorboard:
        check_tensorboard()
    opened = processes.node_first(lambda: open_config_data(config) if data is None else _open_object(config, data))
    notes = list(opened.notes)
    if automatic is not None:
        given = set(automatic)
        values, reasons = processes.main_only(lambda: _chosen(config, opened, given))
        config = configuration.build(values)
        notes += reasons
    chosen = processes.main_only(lambda: fixed_choices(config.train))
    config = config.model_copy(update={"train": config.train.model_copy(update=chosen)})
    method = prepared(config, opened)
    begin(method)
    final = config
    with _held(Run(out)):
        processes.main_only(lambda: _create(out, final, opened, overwrite))
        if opened.skipped:
            notes.append(f"{len(opened.skipped)} items could not be used; {out / SKIPPED} lists them with the reason")
        return _go(Run(out), config, opened, method, first=0, notes=notes)


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


def check_apart(out: Path, config: Config) -> None:
    """A run beside its data, never in it or around it: what is read must not be written to, and not replaced."""
    source, folder = Path(config.data.source), Path(config.data.folder).expanduser()
    named = config.data.source in NAMES
    data = folder if named else source
    if _contains(out, data):
        how = "is the data itself" if _contains(data, out) else "lies around the data"
    elif not named and _contains(data, out):
        how = "lies inside the data"
    else:
        return
    raise InputError(f"--out {out} {how}, {data}: choose a folder apart from it")


def _contains(outer: Path, inner: Path) -> bool:
    """Whether a path is `outer` or below it, whatever the two are called; they need not be there."""
    if not outer.exists():
        return False  # nothing is in what is not there yet
    inner = inner.resolve()
    return any(path.exists() and path.samefile(outer) for path in (inner, *inner.parents))


def _chosen(config: Config, opened: Opened, given: set[str]) -> tuple[dict, list[str]]:
    from sao.automatic import choose_options_and_time

    chosen, reasons = choose_options_and_time(config, opened.dataset, given=given)
    return chosen.model_dump(mode="json"), reasons


def _create(out: Path, config: Config, opened: Opened, overwrite: bool) -> None:
    others = {}
    if (launch := processes.launch_id()) is not None:
        others[LAUNCH] = launch
    if opened.skipped:
        others[SKIPPED] = tsv_text((item.name, item.reason) for item in opened.skipped)
    Run.create(out, config, facts_of(opened), overwrite, others)


@contextmanager
def _held(run: Run) -> Iterator[None]:
    """The main process holds the folder for all of them."""
    with ExitStack() as stack:
        processes.main_only(lambda: stack.enter_context(run.held()))
        yield


def resume(out: Path, source: str | None = None, changed: Config | None = None) -> int:
    """Go on with a run, with the data at `source` and the options of `changed` where they are given."""
    run = Run.open(out)
    with _held(run):
        return _resume(run, source, changed)


def _resume(run: Run, source: str | None, changed: Config | None) -> int:
    before = run.config
    stored = before if changed is None else changed
    if source is not None:
        stored = with_data(stored, source=source)
    config, opened = open_run_data(run, stored, source is None)
    processes.main_only(lambda: run.prepare(facts_of(opened)))
    method = prepared(config, opened)
    notes: list[str] = []
    first = 0
    if checkpoint.steps_in(run.checkpoints):
        first = checkpoint.load_newest(run.checkpoints, method, notes.append)
    else:  # it was stopped before the first, and starts as it started then
        begin(method)
    samples = len(opened.dataset.train)
    notes += described_changes(before, stored, samples, first)
    if stored != before:
        processes.main_only(lambda: run.change(stored))
    processes.main_only(lambda: run.cut_metrics(first))
    total = config.steps_for(samples)
    if first >= total:
        notes.append(f"{run.folder} is complete: all {total} steps are done")
    else:
        notes.append(f"going on after step {first} of {total}")
    return _go(run, config, opened, method, first, notes)


def open_run_data(run: Run, config: Config | None = None, moved: bool = True) -> tuple[Config, Opened]:
    """The data of a run, which must be what it began with, and the configuration with the path that leads there.

    It is looked for where it may be by now; with `moved` False it is where `config` says.
    """
    config = run.config if config is None else config
    if moved:
        config = run.with_data_found(config)
    opened = processes.node_first(lambda: open_config_data(config))
    run.check_same(facts_of(opened))
    return config, opened


def facts_of(opened: Opened) -> DataFacts:
    return DataFacts.of(opened.dataset, None if opened.standardiser is None else opened.standardiser.to_dict())


def _go(run: Run, config: Config, opened: Opened, method: Method, first: int, notes: list[str]) -> int:
    log = Log(run.folder if distributed.is_main() else None, config.log.tensorboard, first)
    started = time.monotonic()
    try:
        for note in notes:
            log.say(note)
        log.say(describe(config, opened, method))
        train(run, config, opened.dataset, method, log, first)
        processes.main_only(lambda: print_summary(run, config, opened.dataset, method, log, time.monotonic() - started))
    except Interrupted as stop:
        log.say(str(stop))
        return 130
    except KeyboardInterrupt:  # the second Ctrl-C, or one while the table is made
        log.say(f"interrupted; go on with: {typed('resume', run.folder)}")
        return 130
    except Diverged as error:
        log.note(str(error))
        processes.say_once(str(error))
        return 3
    except distributed.Lost as error:
        log.note(str(error))
        raise distributed.Lost(f"{error}; go on with: {typed('resume', run.folder)}") from None
    except BrokenPipeError:
        raise
    except OSError as error:  # a full disk, or a folder that went away
        go_on = f"go on with: {typed('resume', run.folder)}"
        raise InputError(f"{run.folder} cannot be written ({error.strerror}); {go_on}") from None
    finally:
        log.close()
    return 0


def open_config_data(config: Config, download: bool = True) -> Opened:
    about = config.data
    return open_data(about.source, folder=about.folder, labels=about.labels, download=download, **_reading(config))


def _open_object(config: Config, data: Readable) -> Opened:
    return open_path(data, use_labels=config.data.labels, **_reading(config))


def _reading(config: Config) -> dict[str, Any]:
    """How data is read, wherever it is."""
    about = config.data
    options: dict[str, Any] = {"size": about.size, "fit": about.fit, "strict": about.strict, "held_out": about.held_out}
    options |= {"crop": about.crop, "seed": config.seed, "progress": Bar("reading", "items") if distributed.is_main() else None}
    return options


def prepared(config: Config, opened: Opened) -> Method:
    set_threads(config.train.threads)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        method = new_method(config, opened.dataset, choose_device(config.train.device))
    for warning in caught if distributed.is_main() else []:
        warn(str(warning.message))
    return method


def describe(config: Config, opened: Opened, method: Method) -> str:
    dataset = opened.dataset
    shape = "x".join(str(n) for n in dataset.train.shape)
    parameters = sum(p.numel() for o in method.optimisers.values() for g in o.param_groups for p in g["params"])
    processes = f", {distributed.world_size()} processes" if distributed.world_size() > 1 else ""
    return (
        f"{config.method.name} on {dataset.name}: {len(dataset.train)} samples of {shape}, {len(dataset.test)} held out; "
        f"{parameters / 1e6:.2f} M trained parameters; {config.steps_for(len(dataset.train))} steps of {config.train.batch} "
        f"on {next(method.parameters()).device.type} ({torch.get_num_threads()} threads{processes})"
    )


def price(config: Config, automatic: dict[str, str] | None) -> int:
    from sao.commands.pricing import price_run

    return price_run(config, automatic)
