"""sao cluster: assignments with their cosine, and a picture of each cluster's most central images."""

from argparse import Namespace
from contextlib import ExitStack
from pathlib import Path

from sao.cli.output import warn, writable
from sao.errors import InputError
from sao.runtime.csv_files import write_csv
from sao.runtime.files import written


def run(arguments: Namespace) -> None:
    folder = Path(arguments.output)
    table, picture = folder / "assignments.csv", folder / "clusters.png"
    k = _count(arguments.k)
    for target in (table, picture):
        writable(target, arguments.overwrite)
    import sao
    from sao.cli.inputs import open_for
    from sao.evaluation.manifold import check_algorithm, proposed_clusters
    from sao.report.cluster_sheet import ClusterSheet
    from sao.training.bar import Bar
    from sao.training.log import Stages

    if arguments.manifold is not None:
        check_algorithm(arguments.manifold)
    model = sao.load(arguments.run, report=warn)
    samples = open_for(model, arguments.data)
    features = model.embed(samples, feature=arguments.feature, progress=Bar("embedding", "samples"))
    stages = Stages("clustering", of=2 if k is None else 1)
    if k is None:
        stages("how many clusters")
        proposal = proposed_clusters(features, arguments.seed)
        k = proposal.k
        print(f"{k} clusters: {proposal.reason}")
    stages(f"{len(features)} samples into {k}")
    sheet = ClusterSheet.of(features, samples, k, arguments.seed, arguments.manifold)
    stages.end()
    with ExitStack() as stack:  # both or none
        rows = zip(sheet.names, sheet.clusters, sheet.cosines, sheet.outliers, strict=True)
        cells = ((name, int(c), f"{cosine:.6f}", int(odd)) for name, c, cosine, odd in rows)
        write_csv(stack.enter_context(written(table)), ["name", "cluster", "cosine", "outlier"], cells)
        if sheet.pixels is not None:
            sheet.picture().save(stack.enter_context(written(picture)))
    counts, strange = sheet.counts, int(sheet.outliers.sum())
    print(f"{len(features)} samples in {k} clusters of {counts.min()} to {counts.max()}; {table}")
    if strange:
        print(f"{strange} samples look like outliers, far from all others; the column outlier in {table} marks them")
    if sheet.pixels is not None:
        without = ", without outliers" if strange else ""
        print(f"each row of {picture} shows the most central images of a cluster{without}")


def _count(given: str) -> int | None:
    """A number, or None where one is to be proposed."""
    if given == "auto":
        return None
    if not given.isdecimal() or int(given) < 1:
        raise InputError(f"-k is {given!r}: give a number of clusters, at least 1, or auto")
    return int(given)
