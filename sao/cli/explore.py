"""sao explore: one HTML page of a folder of images, without training."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from sao.cli.flags import add_channels, add_overwrite
from sao.cli.output import check_shown, shown_channels, warn, writable
from sao.errors import InputError, printable

PAGE = "report.html"
SHOWN = 3  # files that could not be used


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="a folder or archive of images")
    parser.add_argument("-o", "--output", metavar="DIR", help="folder for report.html (default: explored/NAME)")
    parser.add_argument("--model", metavar="NAME|RUN", help="whose features are compared (default: those that suit the images)")
    parser.add_argument("--clusters", type=int, help="number of groups (default: 5 to 20, by the number of images)")
    add_channels(parser)
    add_overwrite(parser)


def run(arguments: Namespace) -> None:
    source = arguments.folder
    folder = Path(arguments.output or Path("explored") / (Path(source).resolve().name or "images"))
    target = folder / PAGE
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} exists and is not a folder: choose another -o")
    if arguments.clusters is not None and not 2 <= arguments.clusters <= 100:
        raise InputError(f"--clusters is {arguments.clusters}: give between 2 and 100")
    channels = shown_channels(arguments.channels)
    writable(target, arguments.overwrite)
    from sao.data.files.open import data_exists

    if not data_exists(source):
        raise InputError(f"there is no file or folder {source}: give a folder of images")
    from sao.report.build import MOST_POINTS, Limits, write_exploration
    from sao.report.explore import explored, open_folder
    from sao.runtime.interrupt import interruptible
    from sao.training.bar import Bar
    from sao.training.log import Stages

    opened = open_folder(source, arguments.model, Bar("reading", "images"), warn)
    for item in opened.skipped[:SHOWN]:
        print(printable(f"skipped {item.name}: {item.reason}"), file=sys.stderr)
    if len(opened.skipped) > SHOWN:
        print(f"… and {len(opened.skipped) - SHOWN} more files were skipped", file=sys.stderr)
    check_shown(channels, opened.images.shape[0], source)
    stages = Stages("exploring", every=5.0, of=6)
    try:
        stages("price of a training")
        about = explored(source, opened, MOST_POINTS)
        limits = Limits(clusters=arguments.clusters, channels=channels)
        found = interruptible(lambda: write_exploration(target, about, limits, stages))
    finally:
        stages.end()
    copies = sum(len(group["copies"]) for group in found["duplicates"] or [])
    print(f"{len(opened.images)} images, compared by {opened.embedded_by}")
    print(f"{len(found['groups'])} groups; odd images: {found['odd']['count']}; images that are there already: {copies}")
    print(f"look at       {target}, {target.stat().st_size / 1e6:.1f} MB: any browser opens it, without a network")
    print(f"next          {about.train}")
    print(f"              {about.cost}")
