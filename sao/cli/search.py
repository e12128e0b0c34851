"""sao search: the images of a folder that are most like others."""

from argparse import ArgumentParser, Namespace
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sao.cli.flags import DATA, add_feature, add_overwrite, add_run
from sao.cli.output import warn, writable_folder
from sao.errors import InputError, counted, printable
from sao.runtime.csv_files import write_csv
from sao.runtime.files import written

if TYPE_CHECKING:  # torch comes with it
    import PIL.Image

    from sao.data.dataset import Samples
    from sao.search.index import Neighbours
    from sao.training.model import Model

    Part = tuple[str | list[str], Samples]  # where it comes from, and what it holds

TABLE, PICTURE = "neighbours.csv", "neighbours.png"
SHOWN_QUERIES, SHOWN = 10, 5  # in the terminal
DRAWN_QUERIES, DRAWN = 50, 20  # in the picture
SIDE = 64  # pixels of an image in it


def add_options(parser: ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("queries", metavar="QUERY", nargs="+", help="images, or folders of them")
    parser.add_argument("--in", dest="gallery", required=True, metavar="DATA", help=f"where to search: {DATA}")
    parser.add_argument("-k", type=int, default=20, help="neighbours of each query (default: 20)")
    add_feature(parser)
    parser.add_argument("-o", "--output", help="folder for neighbours.csv and neighbours.png (default: none are written)")
    add_overwrite(parser)


def run(arguments: Namespace) -> None:
    if arguments.k < 1:
        raise InputError(f"-k is {arguments.k}: give a number of neighbours, at least 1")
    target = None if arguments.output is None else Path(arguments.output)
    if target is not None:
        writable_folder(target, arguments.overwrite, r"neighbours\.(csv|png)")
    import sao
    from sao.cli.inputs import check_there, open_for
    from sao.training.bar import Bar
    from sao.training.model import names_of

    for query in arguments.queries:
        check_there(query)
    model = sao.load(arguments.run, report=warn)
    gallery = open_for(model, arguments.gallery)
    parts = _queries(model, arguments.queries)
    asked = np.concatenate([model.embed(samples, arguments.feature) for _, samples in parts])
    index = model.index(gallery, arguments.feature, Bar("embedding", "samples"))
    if index.stored:
        print(f"the features of {printable(arguments.gallery)} are those of an earlier search: it and the weights are the same")
    names = [name for _, samples in parts for name in names_of(samples)]
    found = index.search(asked, arguments.k, names)
    _print(found)
    if target is None:
        print("-o DIR writes all of it as a table, and a picture")
        return
    with ExitStack() as stack:  # both or none
        header = ["query", "rank", "name", "distance"]
        write_csv(stack.enter_context(written(target / TABLE)), header, _rows(found))
        picture = _picture(found, parts, (arguments.gallery, gallery))
        if picture is not None:
            picture.save(stack.enter_context(written(target / PICTURE)))
    about = f"; each row of {target / PICTURE} is a query and its neighbours" if picture is not None else ""
    some = f" (the first {DRAWN_QUERIES} queries)" if about and len(found) > DRAWN_QUERIES else ""
    print(f"{target / TABLE}{about}{some}")


def _queries(model: "Model", paths: list[str]) -> "list[Part]":
    """Single images first, all of them needed; then folders and other data."""
    from sao.cli.inputs import open_for
    from sao.data.files.decode import is_picture

    files = [path for path in paths if Path(path).is_file() and is_picture(Path(path))]
    parts: list[Part] = [(files, model.samples(files))] if files else []
    return parts + [(path, open_for(model, path)) for path in paths if path not in files]


def _rows(found: "Neighbours"):
    for query, names, distances in zip(found.queries, found.names, found.distances, strict=True):
        for rank, (name, distance) in enumerate(zip(names, distances, strict=True), 1):
            yield query, rank, name, f"{distance:.6f}"


def _print(found: "Neighbours") -> None:
    for query, names, distances in list(zip(found.queries, found.names, found.distances, strict=True))[:SHOWN_QUERIES]:
        print(query)
        for name, distance in list(zip(names, distances, strict=True))[:SHOWN]:
            print(f"  {distance:.3f}  {name}")
        if len(names) > SHOWN:
            print(f"  … and {len(names) - SHOWN} more")
    if len(found) > SHOWN_QUERIES:
        print(f"… and {counted(len(found) - SHOWN_QUERIES, 'more query', 'more queries')}")


def _picture(found: "Neighbours", queries: "list[Part]", gallery: "Part") -> "PIL.Image.Image | None":
    """A row for each query: itself, a gap, its neighbours; None of vectors."""
    from sao.data.dataset import Images
    from sao.training.pictures import grid

    if not isinstance(gallery[1], Images):
        return None
    shown, k = min(DRAWN_QUERIES, len(found)), min(DRAWN, found.rows.shape[1])
    asked = np.concatenate([_tiles(part, np.arange(min(shown, len(part[1])))) for part in queries])[:shown]
    rows = found.rows[:shown, :k]
    near = _tiles(gallery, rows.ravel()).reshape(shown, k, SIDE, SIDE, 3)
    gap = np.full((shown, 1, SIDE, SIDE, 3), 255, np.uint8)
    return grid(np.concatenate([asked[:, None], gap, near], axis=1).reshape(-1, SIDE, SIDE, 3), columns=k + 2)


def _tiles(part: "Part", rows: np.ndarray) -> np.ndarray:
    """(n, SIDE, SIDE, 3): the files themselves where there are files, else what the network sees."""
    from PIL import Image

    from sao.data.dataset import Images
    from sao.data.named import NAMES
    from sao.search.files import pictures_by_name
    from sao.training.model import names_of
    from sao.training.pictures import as_shown

    source, samples = part
    assert isinstance(samples, Images)
    names = names_of(samples)
    named = source in NAMES or samples.levels is not None
    files = {} if named else pictures_by_name(source, {names[row] for row in rows}, SIDE)

    def tile(row: int) -> np.ndarray:
        if names[row] in files:
            return files[names[row]]
        pixels = as_shown(np.asarray(samples.bytes[row]))
        picture = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).convert("RGB")
        return np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.NEAREST))

    return np.stack([tile(row) for row in rows.tolist()])
