"""What a run folder tells without its data: words, metrics, curves and pictures."""

import json
import math
import re
from pathlib import Path
from typing import Any

from sao.config import Config
from sao.evaluation.comparison import LEVEL
from sao.evaluation.result import read_json, read_summary
from sao.evaluation.suite import LABELLED
from sao.evaluation.verdict import claim_of
from sao.report.thumbnails import evenly, picture
from sao.runtime import files
from sao.training.data_facts import DataFacts
from sao.training.log import clock
from sao.training.run_folder import Run

MOST_POINTS = 400  # of a curve
MOST_PICTURES, PICTURE_BYTES = 24, 350_000
DIAGNOSTICS = ("gradient_norm", "jacobian_norm", "embedding_norm", "logdet_real", "logdet_fake")
METRIC_WORDS = {  # of a metric that is called otherwise than its name with spaces
    "svm": "linear SVM",
    "kmeans": "k-means",
    "kmeans_best": "k-means, best run",
    "kmeans_strict": "k-means, strict",
    "nmi": "NMI",
    "ari": "ARI",
    "manifold": "manifold clusters",
    "manifold_nmi": "manifold NMI",
    "manifold_ari": "manifold ARI",
    "knn1": "1 neighbour",
    "knn5": "5 neighbours",
    "probe": "linear probe",
    "probe_1pct": "probe, 1 % labels",
    "probe_10pct": "probe, 10 % labels",
    "clusters_agree": "agreement",
    "is": "Inception Score",
    "fid": "FID",
    "kid": "KID",
}
# Titles of charts of what is measured without labels.
EVALUATED = {
    "effective_rank": "Effective rank of the features",
    "clusters_agree": "Agreement of k-means between starts (ARI)",
    "memorised": "Share of generated samples too near to a training one",
}


KINDS = {1: "grey", 3: "colour"}  # by channels


def described(
    config: Config, facts: DataFacts, step: int, held_out: int | None, rows: list[dict], needs_labels: bool
) -> list[str]:
    """What was trained on what, in plain sentences."""
    images = len(facts.shape) == 3
    kind = "image" if images else "row"
    if images:
        channels, height, width = facts.shape
        form = f"{width}×{height} pixels in {KINDS.get(channels, f'{channels} channels')}"
    else:
        form = f"{facts.shape[0]} numbers"
    about = (type(config.method).__doc__ or config.method.name).strip().splitlines()[0].rstrip(".")
    batch, total = config.train.batch, config.steps_for(facts.samples)
    passes = step * batch / facts.samples
    sentences = [
        f"{about} ({config.method.name}), trained on {facts.samples:,} {kind}s of {form} from “{facts.name}”.",
        f"{'All' if step >= total else f'{step:,} of'} {total:,} steps of {batch} {kind}s are done: "
        f"{passes:.3g} {'pass' if passes == 1 else 'passes'} over the data{_duration(rows)}.",
    ]
    if config.train.start_from:
        sentences.append(f"It began with the weights of {config.train.start_from} ({config.train.start_weights}).")
    used = "which the method learns from" if needs_labels else "used for evaluation alone"
    labels = "There are no labels." if facts.classes is None else f"It has labels of {facts.classes} classes, {used}."
    if held_out is not None:
        labels += f" {held_out:,} {kind}s were held out of training."
    return [*sentences, labels]


def word_of(metric: str) -> str:
    return METRIC_WORDS.get(metric, metric.replace("_", " "))


def metrics(run: Run, step: int, feature: str = "backbone") -> list[dict[str, Any]]:
    """Of the table at the end of training and of `sao eval`, the later one where both measured the same at this step.

    `feature` is the usual one of the run, which the table is of.
    """
    last = run.config.steps_for(run.facts.samples)
    rows = read_summary(run.evaluations / "summary.json", step, last, run.folder)
    later = run.evaluations / f"step-{step:08d}-{feature}-ema.json"
    rows += read_json(later, run.folder) if later.exists() else []
    found = {row["name"]: row for row in rows}
    words = []
    for row in found.values():
        of, _, name = row["name"].rpartition("/")
        words.append({**row, "of": of or "learnt", "word": word_of(name), "key": name, "share": name in LABELLED})
    return words


def curves(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Charts, each a title and series: online metrics, rank, Jacobian norms, losses of each player, diagnostics."""
    series: dict[str, tuple[list[int], list[float]]] = {}
    for row in rows:
        for name, value in row.items():
            if name != "step" and isinstance(value, int | float) and math.isfinite(value):
                steps, values = series.setdefault(name, ([], []))
                steps.append(row["step"])
                values.append(float(f"{value:.5g}"))
    charts: dict[str, dict[str, Any]] = {}
    for name in sorted(series, key=_order):
        title, label, kind = _chart_of(name)
        if title is None:
            continue
        chosen = evenly(range(len(series[name][0])), MOST_POINTS)
        steps, values = ([part[i] for i in chosen] for part in series[name])
        chart = charts.setdefault(title, {"title": title, "kind": kind, "series": []})
        chart["series"].append({"name": label, "steps": steps, "values": values})
    return list(charts.values())


def _order(name: str) -> tuple[int, str]:
    """Evaluation first, then losses, then diagnostics."""
    return (0 if name.startswith("eval/") else 2 if name.rpartition("/")[2] in DIAGNOSTICS else 1), name


def _chart_of(name: str) -> tuple[str | None, str, str]:
    """Title of the chart that a scalar belongs to, its label there, and how it is drawn."""
    player, _, term = name.rpartition("/")
    if player == "time":
        return None, term, "lines"
    if player == "eval":
        if term.startswith("jacobian_norm_q"):
            return "Jacobian norm σ of held-out samples", f"{int(term[-2:])} %", "band"
        if counted := re.fullmatch(r"(.+)_n(\d+)", term):
            return f"Accuracy on {counted[2]} held-out samples", word_of(counted[1]), "lines"
        title = EVALUATED.get(term, f"{term[0].upper()}{term[1:]}".replace("_", " "))
        return title, word_of(term), "lines"
    words = term.replace("_", " ")
    if term.startswith("logdet_"):
        return "Log-determinants", words.removeprefix("logdet "), "lines"
    if term in DIAGNOSTICS:
        return f"{words[0].upper()}{words[1:]} while training", player or words, "lines"
    return f"Losses of the {player}" if player else "Losses", words, "lines"


def pictures(run: Run) -> list[dict[str, Any]]:
    """Generated samples over time: the same latents at steps from the first to the last."""
    paths = evenly(sorted(run.samples.glob("step-*.png")), MOST_PICTURES)

    def uri(path: Path) -> str:
        with files.opened(path, inside=run.folder) as file:
            return picture(file.read())

    while True:
        shown = [{"step": int(path.stem.removeprefix("step-")), "uri": uri(path)} for path in paths]
        if len(paths) <= 2 or sum(len(one["uri"]) for one in shown) <= PICTURE_BYTES:
            return shown
        paths = evenly(paths, len(paths) // 2)


def verdict(run: Run, step: int) -> dict[str, Any] | None:
    """The sentence that the last evaluation of this step ended in."""
    try:
        found = files.read_json(run.evaluations / "verdict.json", run.folder)
        whole = isinstance(found["sentence"], str) and found["better"] in (True, False, None)
        if not whole or found["step"] != step:
            return None
        claim, reasons = claim_of(found["sentence"])
        return found | {"claim": claim, "reasons": reasons}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def compared(measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the verdict rests on: each metric of the learnt features beside the best of what was not learnt."""
    found = [(row["word"], row["protocol"]["compared"]) for row in measured if "compared" in row["protocol"]]
    return [
        {"word": word, "decided": one["p"] < LEVEL, **{key: one[key] for key in ("with", "difference", "interval")}}
        for word, one in found
    ]


def options(config: Config) -> dict[str, str]:
    """By their dotted names, as a person would type them."""
    named = config.by_name().items()
    return {name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for name, value in named}


def _duration(rows: list[dict]) -> str:
    """Rows count the time since the run was started or resumed."""
    total = last = 0.0
    for row in rows:
        seconds = row.get("time/seconds")
        if isinstance(seconds, int | float):
            total, last = total + (seconds - last if seconds >= last else seconds), seconds
    return f", in {clock(total).removeprefix('0m ')}" if total else ""
