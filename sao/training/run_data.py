"""The data of a run: opened as its configuration says, and known again when the run goes on."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from sao.config import Config
from sao.core import distributed
from sao.data.dataset import PixelRange, Standardiser
from sao.data.files.open import Opened, open_data, open_path
from sao.data.files.reading import Readable
from sao.data.labels import LabelFile, label_dataset, parsed_labels, read_labels
from sao.data.named import NAMES
from sao.errors import InputError
from sao.runtime import launch as processes
from sao.runtime.files import read_text
from sao.training.bar import Bar
from sao.training.device import choose_device
from sao.training.run_folder import DataFacts, Run

LABELS = "labels.csv"  # in a run: those it began with
LARGEST_ON_CPU = 32  # pixels a side; twice as many take four times as long


def open_config_data(config: Config, download: bool = True, labels: LabelFile | None = None, **options: Any) -> Opened:
    """What a configuration names; `labels` take the place of those in its label file. `options` are more of `ReadOptions`."""
    about = config.data
    if labels is None and about.label_file is not None:
        labels = read_labels(about.label_file)
    # Without them the split is the same however many samples get a label later.
    by_folder = about.labels and labels is None
    reading = {**_reading(config), **options}
    opened = open_data(about.source, folder=about.folder, labels=by_folder, download=download, **reading)
    return opened if labels is None else with_labels(opened, labels)


def with_labels(opened: Opened, labels: LabelFile) -> Opened:
    """With the labels of a file and no others."""
    dataset, note = label_dataset(opened.dataset, labels)
    return replace(opened, dataset=dataset, notes=[*opened.notes, note], labelled=note)


def open_object(config: Config, data: Readable, **options: Any) -> Opened:
    return open_path(data, use_labels=config.data.labels, **_reading(config), **options)


def open_to_choose(config: Config, data: Readable | None = None, download: bool = True) -> tuple[Config, Opened]:
    """The data for which options will be chosen, no larger than a processor learns in minutes, and its size set for good."""
    on_cpu = choose_device(config.train.device).type == "cpu"
    capped: dict[str, Any] = {"largest": LARGEST_ON_CPU} if on_cpu and config.data.size is None else {}
    opened = open_config_data(config, download, **capped) if data is None else open_object(config, data, **capped)
    shape = opened.dataset.train.shape
    if capped and len(shape) == 3 and shape[-1] == LARGEST_ON_CPU and config.data.source not in NAMES:
        sized = config.data.model_copy(update={"size": LARGEST_ON_CPU})
        config = config.model_copy(update={"data": sized})  # a run that goes on reads the same
    return config, opened


def _reading(config: Config) -> dict[str, Any]:
    """How data is read, wherever it is."""
    about = config.data
    options: dict[str, Any] = {"size": about.size, "fit": about.fit, "strict": about.strict, "held_out": about.held_out}
    options |= {"axes": about.axes, "pages": about.pages, "range": about.range, "channels": about.channels}
    options |= {"crop": about.crop, "seed": config.seed, "progress": Bar("reading", "items") if distributed.is_main() else None}
    return options


def open_run_data(run: Run, config: Config | None = None, moved: bool = True) -> tuple[Config, Opened]:
    """The data of a run, as it began with it, and the configuration that leads there; `moved`: it may be elsewhere by now."""
    config = run.config if config is None else config
    if moved:
        config = run.with_data_found(config)
    labels = _run_labels(run, config)
    opened = processes.node_first(lambda: open_config_data(config, labels=labels))
    if opened.pixel_range is not None and run.known_facts is not None and run.known_facts.pixel_range is None:
        # Version 0.2 reduced all images to 8 bits.
        opened = processes.node_first(lambda: open_config_data(config, labels=labels, bits=8))
    run.check_same(facts_of(opened))
    return config, opened


def _run_labels(run: Run, config: Config) -> LabelFile | None:
    """As they were when the run began, whatever has become of the file since."""
    if config.data.label_file is None:
        return None
    try:
        return parsed_labels(read_text(run.folder / LABELS, inside=run.folder), LABELS)
    except FileNotFoundError:
        return None  # a run of a study, which keeps none
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"{run.folder / LABELS} cannot be read: {error}") from None


def facts_of(opened: Opened) -> DataFacts:
    known = (opened.standardiser, opened.pixel_range)
    return DataFacts.of(opened.dataset, *(None if one is None else one.to_dict() for one in known))


def reading_of(config: Config, facts: DataFacts) -> dict[str, Any]:
    """How other data is brought into the form that a run was trained on: options of `open_for_embedding` and `open_path`."""
    about = config.data
    standardiser = None if facts.standardiser is None else Standardiser.from_dict(facts.standardiser)
    options = {"shape": facts.shape, "standardiser": standardiser, "fit": about.fit, "axes": about.axes, "pages": about.pages}
    return options | ({} if facts.pixel_range is None else {"pixel_range": PixelRange.from_dict(facts.pixel_range)})


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
