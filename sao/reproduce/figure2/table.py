"""Rows of numbers as a table for people: mean ± standard deviation over the seeds."""

from dataclasses import dataclass

import numpy as np

from sao.reproduce.figure2.measure import Numbers

COLUMNS = {  # heading → panel and name
    "on an arm": ("b", "share_on_arms"),
    "parts hit (of 40)": ("b", "bins_hit"),
    "1-NN": ("c", "nearest_neighbour_accuracy"),
    "linear": ("c", "linear_accuracy"),
    "neighbours kept": ("d", "shared_neighbours_with_data"),
    "transport cosine": ("e", "transport_cosine"),
    "update cosine within": ("f", "update_cosine_within"),
    "between": ("f", "update_cosine_between"),
}


@dataclass(frozen=True)
class Row:
    """One run."""

    variant: str
    seed: int
    seconds: float
    numbers: Numbers


def table(rows: list[Row]) -> str:
    """Markdown, one line for each variant in the order in which they first occur."""
    variants = list(dict.fromkeys(row.variant for row in rows))
    lines = [f"| run | seeds | {' | '.join(COLUMNS)} |", "|---|---|" + "---|" * len(COLUMNS)]
    for variant in variants:
        own = [row for row in rows if row.variant == variant]
        cells = [_cell([row.numbers[panel][name] for row in own]) for panel, name in COLUMNS.values()]
        lines.append(f"| {variant} | {', '.join(str(row.seed) for row in own)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(values: list[float]) -> str:
    mean = f"{np.mean(values):.3f}".removesuffix(".000") if all(value > 1 for value in values) else f"{np.mean(values):.3f}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values):.3f}"
