"""sao eval: every metric that the data allows, with its protocol, as a table and as JSON; ends in one plain sentence."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from sao.cli.flags import MANIFOLDS, add_feature, add_labels, add_run, add_seed, count_or, labels_in
from sao.cli.output import warn
from sao.errors import InputError


def add_options(parser: ArgumentParser) -> None:
    add_run(parser, nargs="?")
    parser.add_argument("--features", metavar="F.npz", help="x_train, y_train, x_test, y_test instead of a run")
    parser.add_argument("--data", help="other labelled data than the run's, prepared as the run's was")
    add_labels(parser)
    parser.add_argument("--rows", default="10000", help="at most so many samples of each split, or all (default: 10000)")
    parser.add_argument("--budget", default="10", help="minutes for the metrics, or none (default: 10)")
    parser.add_argument("--metrics", help="comma-separated names (default: all that the data allows)")
    add_feature(parser)
    parser.add_argument(
        "--manifold",
        choices=MANIFOLDS,
        default="spectral",
        help="how clusters along the manifold are found (default: spectral)",
    )
    parser.add_argument("--weights", choices=("ema", "raw"), default="ema", help="EMA weights, or as trained (default: ema)")
    parser.add_argument(
        "--pretrained",
        metavar="NAME",
        help="network to compare with: efficientnet_lite0, timm:NAME if its weights are here, or none (default: "
        "efficientnet_lite0 for colour images of at least 32x32 if it is installed)",
    )
    parser.add_argument("--samples", type=int, default=None, help="generated samples for generation metrics")
    parser.add_argument("--inception", metavar="FILE", help="standard weights for IS and FID; download; or none: a stand-in")
    add_seed(parser)
    parser.add_argument("-o", "--output", help="JSON file (default: RUN/eval/…); metrics are added to those in it")


def run(arguments: Namespace) -> None:
    if (arguments.run is None) == (arguments.features is None):
        raise InputError("give a run, or --features F.npz, one of the two")
    if arguments.data is not None and arguments.run is None:
        raise InputError("--data is for a run: a file of features holds its own")
    labels = labels_in(arguments.labels)
    if arguments.pretrained is not None and (arguments.run is None or arguments.metrics is not None):
        raise InputError("--pretrained is a row beside all baselines of a run: leave out --features and --metrics")
    if arguments.metrics is not None:
        arguments.metrics = [name.strip() for name in arguments.metrics.split(",") if name.strip()]
    arguments.rows = count_or("all", "--rows", arguments.rows, "samples")
    arguments.budget = _minutes(arguments.budget)
    from sao.cli import evaluating
    from sao.models import run_folder
    from sao.runtime import launch as processes
    from sao.training.run_folder import Run

    if arguments.features is not None:
        with processes.joined("cpu"):
            processes.main_only(lambda: evaluating.evaluate_file(Path(arguments.features), labels, arguments))
        return
    run = Run.open(run_folder(arguments.run, warn))
    if run.is_copy and arguments.data is None:
        raise InputError(f"{arguments.run} comes without its data: give --data with labelled data, or the name of a data set")
    if run.is_copy and arguments.output is None:
        raise InputError(f"nothing is written into {arguments.run}: give -o FILE.json for the numbers")
    train = run.config.train
    with processes.joined(train.device, train.timeout_seconds):
        evaluating.evaluate_run(run, labels, arguments)


def _minutes(given: str) -> float | None:
    """A number, or none."""
    if given == "none":
        return None
    try:
        minutes = float(given)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < float("inf"):
        raise InputError(f"--budget is {given!r}: give minutes, or none")
    return minutes
