"""sao reproduce figure2: train, measure, draw, write down."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path

from sao.data.named import spirals
from sao.files import write_text
from sao.reproduce.figure2.measure import Learnt, Sizes, measured
from sao.reproduce.figure2.panels import save_figure
from sao.reproduce.figure2.runs import CHANGES, METHOD, WITHOUT_SMOOTHNESS, Job, job, train_all, trained
from sao.reproduce.figure2.table import Row, table
from sao.reproduce.runs import check_out
from sao.training.log import clock

FULL = Sizes()


def reproduce(
    out: Path,
    seeds: Sequence[int],
    controls: bool,
    options: Mapping[str, str],
    command: str,
    processes: int = 1,
    sizes: Sizes | None = None,
) -> list[Row]:
    """The figure of the first seed, and the numbers of every run; returns these.

    Panel (e) compares with a network without smoothness, so that control is always trained; `controls` adds the others.
    """
    started, sizes = time.monotonic(), sizes or FULL
    variants = list(CHANGES) if controls else [METHOD, WITHOUT_SMOOTHNESS]
    jobs = [job(variant, seed, out / "runs", options) for seed in seeds for variant in variants]
    check_out(out)
    seconds: dict[str, float] = {}
    for done, spent in train_all(jobs, processes):
        seconds[done.name] = spent
        print(f"trained {done.name} in {clock(spent)}", flush=True)
    rows, drawn = [], None
    for one in jobs:
        learnt = measured(trained(one), one.config, spirals(seed=one.config.seed), sizes)
        drawn = drawn or learnt  # the first is the method's own, of the first seed
        rows.append(Row(one.variant, one.config.seed, seconds.get(one.name, 0.0), learnt.numbers))
    assert drawn is not None
    _write(out, rows, drawn, jobs[0], command, sizes)
    print(table(rows))
    print(f"{out / 'figure2.png'} and {out / 'figure2.json'}; {clock(time.monotonic() - started)} in all", flush=True)
    return rows


def _write(out: Path, rows: list[Row], drawn: Learnt, first: Job, command: str, sizes: Sizes) -> None:
    beside = next(row for row in rows if row.variant == WITHOUT_SMOOTHNESS).numbers["e"]["transport_cosine"]
    save_figure(drawn, beside, out)
    content = {
        "command": command,
        "date": date.today().isoformat(),
        "panels": drawn.numbers | {"e": drawn.numbers["e"] | {"transport_cosine_without_smoothness": beside}},
        "runs": [asdict(row) for row in rows],
        "sizes": asdict(sizes),
        "config": first.config.model_dump(mode="json"),
    }
    write_text(out / "figure2.json", json.dumps(content, indent=1) + "\n")
    write_text(out / "figure2.md", f"`{command}`, {content['date']}\n\n{table(rows)}\n")
