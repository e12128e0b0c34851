"""sao duplicates: groups of equal and near-equal images, with the one to keep. It changes none of them."""

from argparse import ArgumentParser, Namespace
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from sao.cli.flags import add_overwrite
from sao.cli.output import warn, writable_folder
from sao.errors import InputError, counted, printable
from sao.runtime.csv_files import write_csv
from sao.runtime.files import written

if TYPE_CHECKING:  # torch comes with it
    import numpy as np

    from sao.search.duplicates import Group, Known
    from sao.search.files import LookedThrough

TABLE, PAGE = "duplicates.csv", "duplicates.html"
SHOWN = 20  # groups in the terminal, and copies of each
SHOWN_COPIES = 3


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", nargs="?", help="a folder, an archive or a list of images")
    parser.add_argument("--features", metavar="F.npz", help="features and names as `sao embed` writes them, instead of images")
    parser.add_argument(
        "--model", metavar="NAME|RUN", help="whose features find candidates (default: one of sao that suits, or patches)"
    )
    parser.add_argument("-o", "--output", help="folder for duplicates.csv and duplicates.html (default: none are written)")
    add_overwrite(parser)


def run(arguments: Namespace) -> None:
    if (arguments.folder is None) == (arguments.features is None):
        raise InputError("give a folder of images, or --features F.npz, one of the two")
    if arguments.features is not None and arguments.model is not None:
        raise InputError("--model is for images: a file of features holds its own")
    target = None if arguments.output is None else Path(arguments.output)
    if target is not None:
        writable_folder(target, arguments.overwrite, r"duplicates\.(csv|html)")
    from sao.search.duplicates import Known, find_duplicates

    looked = None
    if arguments.features is not None:
        from sao.evaluation.features import named_features

        features, names = named_features(Path(arguments.features))
        known = Known(list(map(printable, names)), features=features)
        groups = find_duplicates(known)
    else:
        looked = _looked_through(arguments.folder, arguments.model)
        known = looked.known
        groups = looked.tell_equal_pixels(find_duplicates(known))
    _print(groups, known)
    if target is None:
        print("-o DIR writes all of it as a table, and a page with the images" if groups else "nothing was changed")
        return
    with ExitStack() as stack:  # both or none
        write_csv(stack.enter_context(written(target / TABLE)), *_table(groups, known, looked))
        if looked is not None:
            from sao.search.page import duplicates_page

            title = f"Duplicates in {printable(arguments.folder)}"
            page = duplicates_page(groups, looked, title, target)
            stack.enter_context(written(target / PAGE)).write_text(page, encoding="utf-8")
    print(f"{target / TABLE}" + (f", with pictures in {target / PAGE}" if looked is not None else ""))


def _looked_through(folder: str, model: str | None) -> "LookedThrough":
    """The images of a folder with features: of a model, or else of patches of the thumbnails."""
    from dataclasses import replace
    from statistics import median

    from sao.cli.inputs import check_there, say
    from sao.search.files import look_through
    from sao.search.suited import patches_of, suited_model
    from sao.training.bar import Bar

    check_there(folder)
    looked = look_through(folder, Bar("reading", "images"))
    say([], looked.skipped)
    name = model or suited_model(looked.images, int(median(map(min, looked.sizes))))
    features = patches_of(looked.images) if name is None else _features(name, folder, looked)
    return replace(looked, known=looked.known.with_features(features))


def _features(model: str, folder: str, looked: "LookedThrough") -> "np.ndarray":
    import sao
    from sao.data.files.open import open_for_embedding
    from sao.training.bar import Bar

    loaded = sao.load(model, report=warn)
    samples = open_for_embedding(folder, shape=loaded.facts.shape, fit=loaded.config.data.fit)[0]
    if list(samples.names or ()) != list(looked.known.names):
        raise InputError(f"files in {folder} changed while they were read: run it again")
    return loaded.embed(samples, progress=Bar("embedding", "images"))


def _table(groups: "list[Group]", known: "Known", looked: "LookedThrough | None"):
    header = ["group", "name", "keep", "kind", "distance", "why"]
    header += ["width", "height", "bytes"] if looked is not None else []

    def about(row: int) -> list[int]:
        return [] if looked is None else [*looked.sizes[row], looked.source.entries[looked.places[row]].size]

    rows = []
    for number, group in enumerate(groups, 1):
        rows.append([number, known.names[group.keep], 1, "", "", group.why, *about(group.keep)])
        rows += [
            [number, known.names[one.row], 0, one.kind, f"{one.distance:.4f}", "", *about(one.row)] for one in group.copies
        ]
    return header, rows


def _print(groups: "list[Group]", known: "Known") -> None:
    total = len(known.names)
    if not groups:
        print(f"no duplicates among {total} images")
        return
    copies = [copy for group in groups for copy in group.copies]
    counts = Counter(copy.kind for copy in copies)
    kinds = [f"{counts[kind]} {kind}" for kind in ("same bytes", "same pixels", "near") if counts[kind]]
    found = f"{counted(len(copies), 'copy', 'copies')} in {counted(len(groups), 'group')}"
    print(f"{found} among {total} images: {', '.join(kinds)}")
    for number, group in enumerate(groups[:SHOWN], 1):
        print(f"{number:4d}  keep {known.names[group.keep]} ({group.why})")
        for copy in group.copies[:SHOWN_COPIES]:
            print(f"           {known.names[copy.row]} ({copy.said})")
        if len(group.copies) > SHOWN_COPIES:
            print(f"           … and {len(group.copies) - SHOWN_COPIES} more")
    if len(groups) > SHOWN:
        print(f"… and {counted(len(groups) - SHOWN, 'more group')}")
