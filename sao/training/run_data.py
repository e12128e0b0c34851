"""The data of a run: opened as its configuration says, and known again when the run goes on."""

from pathlib import Path
from typing import Any

from sao.config import Config
from sao.core import distributed
from sao.data.files.open import Opened, open_data, open_path
from sao.data.files.reading import Readable
from sao.data.named import NAMES
from sao.errors import InputError
from sao.runtime import launch as processes
from sao.training.bar import Bar
from sao.training.run_folder import DataFacts, Run


def open_config_data(config: Config, download: bool = True) -> Opened:
    about = config.data
    return open_data(about.source, folder=about.folder, labels=about.labels, download=download, **_reading(config))


def open_object(config: Config, data: Readable) -> Opened:
    return open_path(data, use_labels=config.data.labels, **_reading(config))


def _reading(config: Config) -> dict[str, Any]:
    """How data is read, wherever it is."""
    about = config.data
    options: dict[str, Any] = {"size": about.size, "fit": about.fit, "strict": about.strict, "held_out": about.held_out}
    options |= {"crop": about.crop, "seed": config.seed, "progress": Bar("reading", "items") if distributed.is_main() else None}
    return options


def open_run_data(run: Run, config: Config | None = None, moved: bool = True) -> tuple[Config, Opened]:
    """The data of a run, as it began with it, and the configuration that leads there; `moved`: it may be elsewhere by now."""
    config = run.config if config is None else config
    if moved:
        config = run.with_data_found(config)
    opened = processes.node_first(lambda: open_config_data(config))
    run.check_same(facts_of(opened))
    return config, opened


def facts_of(opened: Opened) -> DataFacts:
    return DataFacts.of(opened.dataset, None if opened.standardiser is None else opened.standardiser.to_dict())


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
