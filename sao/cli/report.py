"""sao report: one HTML file that shows a run, or several side by side."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from sao.cli.flags import add_channels, add_labels, labels_in
from sao.cli.output import check_shown, shown_channels, warn, writable
from sao.errors import InputError

if TYPE_CHECKING:  # torch comes with it
    from sao.data.labels import LabelFile
    from sao.report.build import Shown
    from sao.training.run_folder import Run


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", help="folders of trained runs")
    add_labels(parser)
    add_channels(parser)
    parser.add_argument("-o", "--output", help="HTML file (default: RUN/report.html; of several runs report.html)")
    parser.add_argument("--points", type=int, default=20_000, help="samples on the page (default: all, at most 20000)")
    parser.add_argument("--layout", choices=("tsne", "umap"), default="tsne", help="of the map (default: tsne)")
    parser.add_argument("--clusters", type=int, help="how many (default: as many as classes, 10 without labels)")


def run(arguments: Namespace) -> None:
    from sao.models import run_folder
    from sao.report.layout import check_umap
    from sao.training.run_folder import Run

    if not 10 <= arguments.points <= 20_000:
        raise InputError(f"--points is {arguments.points}: a map shows between 10 and 20000 samples")
    if arguments.clusters is not None and not 2 <= arguments.clusters <= 100:
        raise InputError(f"--clusters is {arguments.clusters}: give between 2 and 100")
    runs = [Run.open(run_folder(folder, warn)) for folder in arguments.runs]
    for one, given in zip(runs, arguments.runs, strict=True):
        if one.is_copy:
            raise InputError(f"{given} has no history and no data to report on: `sao eval`, `sample` and `embed` take it")
    channels = shown_channels(arguments.channels)
    for one, given in zip(runs, arguments.runs, strict=True):
        check_shown(channels, one.facts.shape[0] if len(one.facts.shape) == 3 else 0, given)
    target = Path(arguments.output or (runs[0].folder / "report.html" if len(runs) == 1 else "report.html"))
    if arguments.layout == "umap":
        check_umap()
    writable(target)
    from sao.report.build import STAGES, Limits, write_report
    from sao.runtime.interrupt import interruptible
    from sao.training.log import Stages

    labels = labels_in(arguments.labels)
    limits = Limits(arguments.points, clusters=arguments.clusters, umap=arguments.layout == "umap", channels=channels)
    stages = Stages("report", every=5.0, of=len(runs) * (1 + STAGES) + 1)
    try:
        shown = [_opened(one, name, stages, labels) for one, name in zip(runs, names_of(runs), strict=True)]
        interruptible(lambda: write_report(target, shown, limits, stages))
    finally:
        stages.end()
    print(f"{target}, {target.stat().st_size / 1e6:.1f} MB: open it in any browser, it needs no network")


def names_of(runs: "list[Run]") -> list[str]:
    """Each run by its folder's name; by as much of its path as tells it from the others."""
    paths = [one.folder.resolve() for one in runs]
    for length in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-length:]) for path in paths]
        if len(set(names)) == len(set(paths)):
            break
    return names


def _opened(run: "Run", name: str, stages, labels: "LabelFile | None" = None) -> "Shown":
    """A run whose data is gone is shown without its map."""
    import sao
    from sao.data.labels import label_dataset, with_class_for_unlabelled
    from sao.report.build import Shown
    from sao.training.run_data import open_run_data

    stages(f"opening {name}")
    model = sao.load(run.folder, report=warn)
    dataset = None
    try:
        dataset = open_run_data(run)[1].dataset
    except InputError as error:
        warn(f"the map of {name} is left out: {error}")
    if dataset is not None and labels is not None:
        dataset, note = label_dataset(dataset, labels)
        warn(note)
    return Shown(run, model, None if dataset is None else with_class_for_unlabelled(dataset), name)
