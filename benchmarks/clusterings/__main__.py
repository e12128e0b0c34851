"""Clusters without labels: ours, in two widths, beside raw inputs, PCA and deep clustering, all judged alike.

python benchmarks/clusterings [--data digits,mnist] [--rows ours,raw] [--seeds 2,3,4] [--steps N] [--jobs N] [--out DIR]
    [--dry-run] [--any.option VALUE]

Runs are ordinary run folders in --out: a killed study goes on where it was. The extra `clustering` has what the rivals need.
"""

import argparse
import shlex
import sys
from pathlib import Path

from sao.cli.main import split_options
from sao.cli.reproduce import at_a_time, guarded, options_of, seeds_in, words_in
from sao.errors import InputError
from sao.runtime.processor import choose_how_threads_wait, keep_freed_memory


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser("clusterings", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--out", default="runs/clustering", help="folder for runs and results (default: runs/clustering)")
    made.add_argument("--data", help="data sets, for example digits,mnist (default: all)")
    made.add_argument("--rows", help="some of the rows, by name")
    made.add_argument("--seeds", default="2,3,4", help="default: 2,3,4; settings were chosen on 0 and 1")
    made.add_argument("--steps", type=int, help="steps of each run (default: the recipe's)")
    made.add_argument("--jobs", type=int, help="runs at a time (default: one for each core)")
    made.add_argument("--dry-run", action="store_true", help="make two steps of each kind and price the study")
    return made


def run(arguments: argparse.Namespace, options: dict[str, str]) -> None:
    from benchmark import benchmark, check_installed  # torch comes with it, after it is said how threads wait
    from study import make

    from sao.reproduce.rows import check_options, chosen_data, chosen_rows
    from sao.reproduce.study import Study, price_study

    seeds, options = seeds_in(arguments.seeds), options_of(arguments, options)
    table = benchmark()
    data = chosen_data(table, words_in("--data", arguments.data))
    rows = chosen_rows(table, words_in("--rows", arguments.rows), data)
    check_options(table, rows, options)
    check_installed(rows)
    study = Study(table, rows, data, seeds, options, Path(arguments.out))
    processes = arguments.jobs or at_a_time("cpu")
    if arguments.dry_run:
        price_study(study.runs(), processes)
    else:
        make(study, shlex.join(["python", "benchmarks/clusterings", *sys.argv[1:]]), processes)


def main(words: list[str] | None = None) -> int:
    keep_freed_memory()
    choose_how_threads_wait()
    try:
        words, options = split_options(sys.argv[1:] if words is None else words)
        arguments = parser().parse_args(words)
        return guarded(lambda: run(arguments, options))
    except InputError as error:
        print(f"clusterings: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
