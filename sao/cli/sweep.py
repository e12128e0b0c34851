"""sao sweep: every combination of some options with every seed, each an ordinary run, and one table of all of them."""

import os
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sao.cli.reproduce import guarded, seeds_in
from sao.cli.train import add_what_is_trained, planned, preset_of, run_name, typed_options
from sao.errors import InputError, counted

if TYPE_CHECKING:  # torch comes with it
    from sao.sweeps.grid import Grid, SweepRun


def add_options(parser: ArgumentParser) -> None:
    add_what_is_trained(parser)
    parser.add_argument(
        "--over",
        metavar="OPTION=VALUE,VALUE",
        action="append",
        help="an option and its values; several make a grid, and the first values are what the others are tested against",
    )
    parser.add_argument("--seeds", default="0", help="for example 0,1,2 (default: 0)")
    parser.add_argument("--out", help="folder of the runs and the table (default: runs/sweep-PRESET)")
    parser.add_argument("--dry-run", action="store_true", help="make two steps of each combination and price all runs")


def run(arguments: Namespace) -> int:
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError("sao sweep trains in one process, a run after another: leave torchrun out")
    options, seeds, preset = typed_options(arguments), seeds_in(arguments.seeds), preset_of(arguments)
    from sao.config import load_preset
    from sao.sweeps.grid import grid_of, recorded

    grid = grid_of(preset, arguments.over or [], seeds, options, arguments.auto)
    for combination in grid.combinations():  # what is wrong is said before anything is read or written
        load_preset(preset, options | combination)
    out = Path(arguments.out or f"runs/sweep-{run_name(arguments)}")
    grid = recorded(out, grid)
    runs = _runs(arguments, grid, out)
    _forecast(grid, runs)
    return 0 if arguments.dry_run else guarded(lambda: _make(out, grid, runs))


def _runs(arguments: Namespace, grid: "Grid", out: Path) -> "list[SweepRun]":
    from sao.config import load_preset
    from sao.sweeps.grid import SweepRun

    found = []
    for combination in grid.combinations():
        for seed in grid.seeds:
            config = load_preset(grid.preset, grid.options | combination | {"seed": str(seed)})
            config, automatic = planned(arguments, config, arguments.options.keys() | combination.keys() | {"seed"})
            name = grid.run_name(combination, seed)
            found.append(SweepRun(name, grid.name(combination), seed, out / name, config, automatic))
    return found


def _forecast(grid: "Grid", runs: "Sequence[SweepRun]") -> None:
    """How many runs, and about how long, from a few steps of each combination that are thrown away."""
    from sao.cli.pricing import price
    from sao.sweeps.run import finished
    from sao.training.log import clock

    left = [run for run in runs if run.name not in grid.diverged and not finished(run)]
    done = f", {len(runs) - len(left)} of them done already" if len(left) < len(runs) else ""
    what = f"{counted(len(grid.combinations()), 'combination')} with {counted(len(grid.seeds), 'seed')} each"
    print(f"{len(runs)} runs: {what}{done}", flush=True)
    seconds = evaluation = 0.0
    for combination in dict.fromkeys(run.combination for run in left):
        own = [run for run in left if run.combination == combination]
        one = price(own[0].config, own[0].automatic)  # what does not fit the data is an error here already
        each = one.training + one.report
        time = f"{one.steps} steps of {one.step.seconds:.3g} s, {clock(each)} a run"
        print(f"{combination}: {time}, {len(own)} to do", flush=True)
        seconds += each * len(own)
        evaluation += 60 * (own[0].config.log.evaluate_minutes or 0) * len(own)
    if left:
        print(f"about {clock(seconds)} in all, and at most {clock(evaluation)} of evaluations on top", flush=True)


def _make(out: Path, grid: "Grid", runs: "Sequence[SweepRun]") -> None:
    from sao.sweeps.run import finish_each
    from sao.sweeps.table import CSV, JSON, as_markdown, tested, write_table

    command = shlex.join(["sao", *sys.argv[1:]])
    finish_each(out, grid, runs, lambda: write_table(out, grid, runs, command))
    tests = tested(grid, runs)
    write_table(out, grid, runs, command, tests)
    print(f"\n{as_markdown(grid, runs, tests)}\n\nall numbers are in {out / CSV} and {out / JSON}")
