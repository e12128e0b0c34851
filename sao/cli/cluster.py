"""sao cluster: assignments with their cosine, a picture of each cluster's most central images, and folders of the groups."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sao.cli.flags import DATA, MANIFOLDS, add_feature, add_overwrite, add_run, add_seed, count_or, labels_in
from sao.cli.output import warn, writable
from sao.errors import InputError, printable
from sao.runtime.csv_files import write_csv
from sao.runtime.files import written

if TYPE_CHECKING:  # torch comes with it
    from sao.data.dataset import Samples
    from sao.data.labels import LabelFile
    from sao.report.cluster_sheet import ClusterSheet


def add_options(parser: ArgumentParser) -> None:
    add_run(parser, nargs="?")
    parser.add_argument("data", metavar="DATA", nargs="?", help=DATA)
    parser.add_argument("--features", metavar="F.npz", help="features and names, instead of RUN and DATA")
    parser.add_argument("-k", required=True, help="number of clusters, or auto to have one proposed")
    add_feature(parser)
    parser.add_argument("--manifold", choices=MANIFOLDS, help="clusters along the manifold instead of k-means")
    parser.add_argument("-o", "--output", required=True, help="folder for assignments.csv and pictures")
    parser.add_argument(
        "--names", metavar="L.csv", help="a table of name,label: a group is called what most of its labelled members are"
    )
    parser.add_argument("--copy-to", metavar="DIR", help="copy the images into a folder for each group")
    parser.add_argument("--link", action="store_true", help="with --copy-to: links instead of copies")
    add_seed(parser)
    add_overwrite(parser)


def run(arguments: Namespace) -> None:
    folder = Path(arguments.output)
    table, picture = folder / "assignments.csv", folder / "clusters.png"
    k = count_or("auto", "-k", arguments.k, "clusters")  # None: one is to be proposed
    _check(arguments)
    for target in (table, picture):
        writable(target, arguments.overwrite)
    from sao.data.files.cache import Cache
    from sao.data.files.open import image_files
    from sao.evaluation.manifold import check_algorithm, proposed_clusters
    from sao.report.cluster_sheet import ClusterSheet
    from sao.training.log import Stages

    if arguments.manifold is not None:
        check_algorithm(arguments.manifold)
    labels = labels_in(arguments.names)
    files = None if arguments.copy_to is None else image_files(Path(arguments.data), Cache().folder)
    features, samples = _features(arguments)
    stages = Stages("clustering", of=2 if k is None else 1)
    if k is None:
        stages("how many clusters")
        proposal = proposed_clusters(features, arguments.seed)
        k = proposal.k
        print(proposal)
    stages(f"{len(features)} samples into {k}")
    sheet = ClusterSheet.of(features, samples, k, arguments.seed, arguments.manifold)
    stages.end()
    names = None if labels is None else _names(sheet, labels)
    with ExitStack() as stack:  # both or none
        _write_table(stack.enter_context(written(table)), sheet, names)
        if sheet.pixels is not None:
            sheet.picture().save(stack.enter_context(written(picture)))
    counts, strange = sheet.counts, int(sheet.outliers.sum())
    print(f"{len(features)} samples in {k} clusters of {counts.min()} to {counts.max()}; {table}")
    if strange:
        print(f"{strange} samples look like outliers, far from all others; the column outlier in {table} marks them")
    if sheet.pixels is not None:
        without = ", without outliers" if strange else ""
        print(f"each row of {picture} shows the most central images of a cluster{without}")
    if files is not None:
        _copy(arguments, sheet, names, files)


def _check(arguments: Namespace) -> None:
    if (arguments.run is None) == (arguments.features is None) or (arguments.run is None) != (arguments.data is None):
        raise InputError("give RUN and DATA, or --features F.npz, one of the two")
    if arguments.copy_to is not None and arguments.features is not None:
        raise InputError("--copy-to needs the files themselves: give RUN and their folder instead of --features")
    if arguments.link and arguments.copy_to is None:
        raise InputError("--link is for --copy-to DIR: say where to")
    if arguments.copy_to is not None:
        from sao.data.files.grouped import check_target

        check_target(Path(arguments.copy_to), Path(arguments.data), arguments.overwrite)


def _features(arguments: Namespace) -> "tuple[np.ndarray, Samples]":
    if arguments.features is not None:
        from sao.data.dataset import Vectors
        from sao.evaluation.features import named_features

        values, names = named_features(Path(arguments.features))
        return values, Vectors(values, names=names)
    import sao
    from sao.cli.inputs import open_for
    from sao.training.bar import Bar

    model = sao.load(arguments.run, report=warn)
    samples = open_for(model, arguments.data)
    return model.embed(samples, feature=arguments.feature, progress=Bar("embedding", "samples")), samples


def _names(sheet: "ClusterSheet", labels: "LabelFile") -> list[str | None]:
    """What most labelled members of each group are called; None where there are none."""
    found = labels.assign(list(map(str, sheet.names)))
    print(found.note)
    names: list[str | None] = []
    for cluster, count in enumerate(sheet.counts):
        votes = np.bincount(found.codes[(sheet.clusters == cluster) & (found.codes >= 0)], minlength=len(found.class_names))
        names.append(found.class_names[votes.argmax()] if votes.any() else None)
        if votes.any():
            said = f"group {cluster} of {count}: {names[-1]}, as {votes.max()} of {votes.sum()} labelled members say"
            print(printable(said))
    unnamed = sum(name is None for name in names)
    if unnamed:
        print(f"{unnamed} of {len(names)} groups have no labelled member, and no name")
    return names


def _write_table(path: Path, sheet: "ClusterSheet", names: Sequence[str | None] | None) -> None:
    rows = zip(sheet.names, sheet.clusters, sheet.cosines, sheet.outliers, strict=True)
    cells = ([name, int(c), f"{cosine:.6f}", int(odd)] for name, c, cosine, odd in rows)
    header = ["name", "cluster", "cosine", "outlier"]
    if names is not None:
        header, cells = [*header, "group"], ([*row, names[row[1]] or ""] for row in cells)
    write_csv(path, header, cells)


def _copy(arguments: Namespace, sheet: "ClusterSheet", names: Sequence[str | None] | None, files: dict[str, str]) -> None:
    """Groups of one name go into one folder."""
    from sao.data.files.grouped import write_groups

    width = len(str(sheet.k - 1))
    called = [(names[c] if names is not None else None) or f"group-{c:0{width}d}" for c in range(sheet.k)]
    target = Path(arguments.copy_to)
    samples = list(map(str, sheet.names))
    if missing := next((name for name in samples if name not in files), None):
        raise InputError(f"{missing} is no file of its own, so it cannot be copied: leave out --copy-to")
    groups = [called[cluster] for cluster in sheet.clusters]
    folders = write_groups(target, [files[n] for n in samples], groups, samples, arguments.link, arguments.overwrite)
    what = "links to them" if arguments.link else "copies"
    print(f"{len(samples)} images as {what} in {len(folders)} folders of {target}; the originals are where they were")
