"""sao reproduce: a table or a figure of the paper, from training to the file."""

import os
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path

from sao.errors import InputError
from sao.runtime.machine import usable_cores

TABLE = {"scale", "data", "rows", "dry_run", "known"}
# And which of the flags each of them takes.
TARGETS = {
    "figure1": {"scale", "data", "rows", "no_search", "search_on", "rates", "runs"},
    "figure2": {"controls"},
    "table1": {*TABLE, "no_search", "search_on", "rates"},
    **dict.fromkeys(("table2", "table3", "table4", "table5", "samples"), TABLE),
    "compare": {"data", "rows", "dry_run"},
}


def add_options(parser: ArgumentParser) -> None:
    parser.set_defaults(takes_options=True)
    parser.add_argument(
        "target",
        metavar="TARGET",
        help="figure1: features of self-supervised systems, drawn; figure2: the double spirals, six panels and their numbers; "
        "table1: self-supervised systems; table2: augmentations; table3: clusters; table4: the objectives; "
        "table5: learning from a generator; samples: those of the appendix; "
        "compare: ours beside the two-view methods on your own images",
    )
    parser.add_argument("--out", help="folder for runs and results (default: runs/TARGET, for tables runs/TARGET-SCALE)")
    parser.add_argument("--seeds", default="0", help="for example 0,1,2; the first one is drawn (default: 0)")
    parser.add_argument("--controls", action="store_true", help="figure2: train every control too, for the table")
    parser.add_argument("--steps", type=int, help="steps of each run (default: the preset's)")
    parser.add_argument(
        "--jobs", type=int, help="runs at a time (default: one for each GPU, else for each core; one of --scale paper)"
    )
    parser.add_argument("--scale", choices=("cpu", "paper"), help="tables: what a processor can do, or the paper's settings")
    parser.add_argument("--data", help="tables: data sets, for example fashion_mnist,cifar10; compare: a path")
    parser.add_argument("--rows", help="tables: some of the rows, by name")
    parser.add_argument("--no-search", action="store_true", help="table1, figure1: take learning rates as they are")
    parser.add_argument(
        "--search-on", metavar="DATA", help="table1, figure1: search learning rates on this data set, and use them for all"
    )
    parser.add_argument(
        "--rates", metavar="FILE", help="table1, figure1: learning rates that an earlier search found, from its table1.json"
    )
    parser.add_argument(
        "--known",
        metavar="PATH",
        help="tables: the JSON file of an earlier table, or its folder, whose runs of the same options are not trained again",
    )
    parser.add_argument("--runs", help="figure1: run folders to draw, with commas; with --rows beside rows of table1")
    parser.add_argument("--dry-run", action="store_true", help="tables: make two steps of each kind and price the study")


def run(arguments: Namespace) -> int:
    if arguments.target == "clustering":  # until the release after 0.3
        raise InputError("clustering is a benchmark now, in the repository of sao: python benchmarks/clusterings")
    if arguments.target not in TARGETS:
        raise InputError(f"there is no {arguments.target!r} to reproduce; there is: {', '.join(TARGETS)}")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError("sao reproduce starts processes of its own: leave torchrun out, and give --jobs")
    for flag in ("scale", "data", "rows", "dry_run", "controls", "no_search", "search_on", "rates", "runs", "known"):
        if getattr(arguments, flag) not in (None, False) and flag not in TARGETS[arguments.target]:  # without effect
            raise InputError(f"sao reproduce {arguments.target} does not take --{flag.replace('_', '-')}")
    seeds, options = seeds_in(arguments.seeds), options_of(arguments, arguments.options)
    make = {"figure1": _figure1, "figure2": _figure2, "compare": _compare}.get(arguments.target, _table)
    return guarded(lambda: make(arguments, seeds, options))


def options_of(arguments: Namespace, options: dict[str, str]) -> dict[str, str]:
    """Options by hand, with --steps; --jobs is checked too."""
    for flag in ("steps", "jobs"):
        if (value := getattr(arguments, flag)) is not None and value < 1:
            raise InputError(f"--{flag} must be at least 1, got {value}")
    return options if arguments.steps is None else {**options, "train.steps": str(arguments.steps)}


def guarded(make: Callable[[], None]) -> int:
    """The exit code of a study, and a line about what ended it early."""
    from sao.training.loop import Diverged, Interrupted

    try:
        make()
    except (Interrupted, KeyboardInterrupt):
        print("sao: stopped; the same command goes on from here", file=sys.stderr)
        return 130
    except Diverged as error:
        print(f"sao: {error}", file=sys.stderr)
        return 3
    except OSError as error:  # a disk that is full or gone
        raise InputError(f"{error}; what is done is kept, and the same command goes on") from None
    return 0


def _figure2(arguments: Namespace, seeds: list[int], options: dict[str, str]) -> None:
    from sao.reproduce.figure2 import reproduce

    out = Path(arguments.out or "runs/figure2")
    reproduce(out, seeds, arguments.controls, options, _command(), arguments.jobs or usable_cores())


def _table(arguments: Namespace, seeds: list[int], options: dict[str, str]) -> None:
    study, processes = _study(arguments, arguments.target, seeds, options)
    if arguments.dry_run:
        from sao.reproduce.known import known_runs, trained_runs
        from sao.reproduce.study import price_study

        runs, known = study.runs(), []
        if study.known is not None:
            known = [run for run, _ in (trained_runs if study.known.is_dir() else known_runs)(study.known, runs)]
        price_study([*study.trials(), *(run for run in runs if run not in known)], processes)
    else:
        study.make(_command(), processes)


def _figure1(arguments: Namespace, seeds: list[int], options: dict[str, str]) -> None:
    """Of rows of Table 1, which are trained where they are not, and of runs that are there."""
    from sao.reproduce.figure1 import Source, draw
    from sao.reproduce.table1 import FIGURE1

    given = [Path(word) for word in words_in("--runs", arguments.runs) or []]
    if given and arguments.rows is None:
        unused = [flag for flag in ("scale", "data", "no_search", "search_on", "rates") if getattr(arguments, flag)]
        for name in [*(flag.replace("_", "-") for flag in unused), *options]:
            raise InputError(f"--{name} is for rows that are trained, and --runs alone trains none: leave it out")
        draw([Source(path, path.name) for path in given], Path(arguments.out or "runs/figure1"), "figure1", _command())
        return
    arguments.rows = arguments.rows or ",".join(FIGURE1)
    study, processes = _study(arguments, "table1", seeds[:1], options)
    order = words_in("--rows", arguments.rows) or []
    runs = sorted(study.make(_command(), processes), key=lambda run: order.index(run.row.name))
    for data in study.data:
        panels = [Source(run.folder, run.row.title) for run in runs if run.data == data and run.row.kind == "trained"]
        draw([*panels, *(Source(path, path.name) for path in given)], study.out, f"figure1-{data}", _command())


def _compare(arguments: Namespace, seeds: list[int], options: dict[str, str]) -> None:
    from sao.reproduce import study
    from sao.reproduce.compare import comparison

    if arguments.data is None:
        raise InputError("sao reproduce compare needs --data: a folder or archive of images, or an array of them")
    rows = words_in("--rows", arguments.rows)
    table, runs = comparison(arguments.data, rows, seeds, options, arguments.out)
    out, processes = runs[0].folder.parents[1], arguments.jobs or at_a_time("cpu")
    if arguments.dry_run:
        study.price_study(runs, processes)
    else:
        study.reproduce(table, runs, runs, out, _command(), processes)


def _study(arguments: Namespace, name: str, seeds: list[int], options: dict[str, str]):
    """What the command asks for of a table, and how many runs go at a time."""
    from sao.reproduce.known import check_known
    from sao.reproduce.rows import check_options, chosen_data, chosen_rows
    from sao.reproduce.study import Study, check_scores, read_scores
    from sao.reproduce.table1 import table1
    from sao.reproduce.tables import samples, table2, table3, table4, table5

    tables = {"table1": table1, "table2": table2, "table3": table3, "table4": table4, "table5": table5, "samples": samples}
    scale = arguments.scale or "cpu"
    table = tables[name](scale)
    data = chosen_data(table, words_in("--data", arguments.data))
    rows = chosen_rows(table, words_in("--rows", arguments.rows), data)
    check_options(table, rows, options)
    out = Path(arguments.out or f"runs/{table.name}-{scale}")
    search_on = None if arguments.search_on is None else chosen_data(table, [arguments.search_on])[0]
    if search_on is not None and arguments.no_search:
        raise InputError("--search-on names the data to search on, and --no-search says not to search: give one of them")
    if arguments.rates is not None and arguments.no_search:
        raise InputError("--rates names the learning rates to take, and --no-search says to take none: give one of them")
    scores = None
    if arguments.rates is not None:
        scores = read_scores(Path(arguments.rates), table)
        searched = {source for _, source in scores}
        search_on = search_on or (searched.pop() if len(searched) == 1 else None)
        check_scores(scores, rows, data if search_on is None else [search_on], arguments.rates)
    known = None if arguments.known is None else Path(arguments.known)
    if known is not None:
        check_known(known)
    study = Study(table, rows, data, seeds, options, out, not arguments.no_search, search_on, scores, known)
    return study, arguments.jobs or at_a_time(scale)


def at_a_time(scale: str) -> int:
    """Runs: one for each GPU. Without one, narrow networks have a core each, and the paper's have all cores to themselves."""
    import torch

    return torch.cuda.device_count() or (usable_cores() if scale == "cpu" else 1)


def _command() -> str:
    return shlex.join(["sao", *sys.argv[1:]])


def words_in(flag: str, text: str | None) -> list[str] | None:
    words = None if text is None else [word.strip() for word in text.split(",") if word.strip()]
    if words == []:
        raise InputError(f"{flag} is empty: give names with commas between them, or leave it out")
    return words


def seeds_in(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words):
        raise InputError(f"--seeds takes whole numbers with commas between them, for example 0,1,2; got {text!r}")
    return list(dict.fromkeys(int(word) for word in words))
