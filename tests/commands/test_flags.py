"""Every flag of every command arrives where it acts: the work itself is stood in for, and never begun."""

import argparse
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from sao.cli.main import build_parser, main


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> dict[str, str]:
    """What stands for the words in capitals below."""
    folder = tmp_path_factory.mktemp("places")
    tiny.draw_pictures(folder / "DATA", 12, (8, 8))
    draws = np.random.default_rng(0)
    np.savez(
        folder / "F.npz",
        features=draws.normal(size=(40, 4)),
        names=[f"{i}.png" for i in range(40)],
        y=draws.integers(2, size=40),
    )
    (folder / "L.csv").write_text("name,label\n0.png,a\n1.png,b\n")
    return {"RUN": str(tiny.untrained(folder / "run").folder)} | {
        name: str(folder / name) for name in ("DATA", "F.npz", "L.csv")
    }


def value_at(arguments: dict[str, Any], place: str) -> Any:
    """config.train.batch: an attribute of an attribute of an argument; of dictionaries a value."""
    first, *others = place.split(".")
    found = arguments.get(first)
    for name in others:
        found = found[name] if isinstance(found, dict) else getattr(found, name)
    return found


def told(wanted: Any, places: dict[str, str]) -> Any:
    if isinstance(wanted, dict):
        return {key: told(value, places) for key, value in wanted.items()}
    return places.get(wanted, wanted) if isinstance(wanted, str) else wanted


EMBED, INDEX = "sao.training.model.Model.embed", "sao.training.model.Model.index"
REPRESENTED, MEASURED = "sao.cli.evaluating.representations", "sao.cli.evaluating._measured"
SHEET, PRICED, STARTED = "sao.report.cluster_sheet.ClusterSheet.of", "sao.cli.pricing.price_run", "sao.training.trainer.start"
RESUMED, BENCHED, STUDY = "sao.training.trainer.resume", "sao.cli.bench.measure", "sao.reproduce.study.Study.make"
FIGURE2, DRAWN = "sao.reproduce.figure2.reproduce", "sao.reproduce.figure1.draw"
PRICED_STUDY, COMPARED = "sao.reproduce.study.price_study", "sao.reproduce.study.reproduce"
LABELS = {"0.png": "a", "1.png": "b"}
# The words of a command, the function that is looked at, and some of its arguments.
ARRIVALS: list[tuple[str, str, dict[str, Any]]] = [
    ("eval RUN --metrics knn1 --rows 50 --budget 3 --seed 7 --manifold spectral --feature layers --weights raw", REPRESENTED,
     {"plan.rows": 50, "plan.minutes": 3.0, "plan.metrics": ("knn1",), "plan.strict": True, "plan.manifold": "spectral",
      "seed": 7, "feature": "layers", "facts.weights": "raw", "facts.step": 8, "pretrained": None}),
    ("eval RUN --metrics knn1 --budget none --rows all", REPRESENTED,
     {"plan.rows": None, "plan.minutes": None, "seed": 0, "feature": "backbone", "facts.weights": "ema"}),
    ("eval RUN --metrics knn1 --manifold umap", REPRESENTED, {"plan.manifold": "umap"}),
    ("eval RUN --metrics knn1 --weights raw", "sao.load", {"folder": "RUN", "weights": "raw"}),
    ("eval RUN --pretrained timm:x", "sao.cli.evaluating.pretrained", {"asked": "timm:x", "shape": (1, 8, 8)}),
    ("eval RUN --metrics knn1 --data DATA", "sao.cli.evaluating.open_split_for", {"data": "DATA", "model.step": 8}),
    ("eval RUN --metrics memorised --samples 5 --seed 7", "sao.training.model.Model.sample", {"n": 5, "seed": 7}),
    ("eval RUN --metrics fid --samples 5 --inception none --seed 7", "sao.cli.evaluating.evaluate_generation",
     {"weights": "none", "download": False, "seed": 7}),
    ("eval --features F.npz --seed 7 --rows 30 --metrics knn1 --labels L.csv", "sao.cli.evaluating.load_labelled_features",
     {"path": "F.npz", "labels.labels": LABELS}),
    ("eval --features F.npz --seed 7 --rows 30 --metrics knn1 --budget 2 --manifold umap", MEASURED,
     {"seed": 7, "plan.rows": 30, "plan.metrics": ("knn1",), "plan.minutes": 2.0, "plan.manifold": "umap"}),
    ("embed RUN DATA --feature layers -o out.npz", EMBED, {"feature": "layers"}),
    ("cluster RUN DATA -k 3 --feature embedding -o out", EMBED, {"feature": "embedding"}),
    ("cluster RUN DATA -k 3 --manifold umap --seed 7 -o out", SHEET, {"k": 3, "seed": 7, "manifold": "umap"}),
    ("cluster --features F.npz -k 3 --manifold umap --seed 7 -o out", SHEET, {"k": 3, "seed": 7, "manifold": "umap"}),
    ("cluster --features F.npz -k auto --seed 7 -o out", "sao.evaluation.manifold.proposed_clusters", {"seed": 7}),
    ("cluster --features F.npz -k 2 --names L.csv -o out", "sao.cli.cluster._names", {"labels.labels": LABELS}),
    ("cluster RUN DATA -k 2 -o out --copy-to groups --link --overwrite", "sao.data.files.grouped.write_groups",
     {"target": "groups", "link": True, "overwrite": True}),
    ("search RUN DATA --in DATA --feature embedding", EMBED, {"feature": "embedding"}),
    ("search RUN DATA --in DATA --feature embedding", INDEX, {"feature": "embedding"}),
    ("search RUN DATA --in DATA -k 3", "sao.search.index.Index.search", {"k": 3}),
    ("duplicates DATA --model RUN", "sao.cli.duplicates._features", {"model": "RUN", "folder": "DATA"}),
    ("duplicates --features F.npz", "sao.evaluation.features.named_features", {"path": "F.npz"}),
    ("explore DATA --model RUN", "sao.report.explore.open_folder", {"path": "DATA", "model": "RUN"}),
    ("explore DATA --model RUN --clusters 3 --channels 1", "sao.report.build.write_exploration",
     {"limits.clusters": 3, "limits.channels": (0,), "target": "explored/DATA/report.html"}),
    ("report RUN --labels L.csv", "sao.cli.report._opened", {"labels.labels": LABELS}),
    ("sample RUN -n 5 --seed 7 -o out.npy", "sao.training.model.Model.sample", {"n": 5, "seed": 7}),
    ("sample RUN -n 5 --seed 7 --interpolate -o out.npy", "sao.cli.sample._interpolated", {"lines": 5, "seed": 7}),
    ("export RUN --feature embedding --any-size -o out.onnx", "sao.export.whole_encoder",
     {"feature": "embedding", "any_size": True}),
    ("export RUN --generator --overwrite -o out", "sao.export.write", {"whole.kind": "generator", "overwrite": True}),
    ("export RUN --data DATA -o out", "sao.cli.export._samples", {"data": "DATA"}),
    ("ship RUN --half -o out", "sao.export.ship.write_copy", {"half": True}),
    ("ship RUN --licence mine -o out", "sao.export.card.card_of", {"licence": "mine"}),
    ("train --data DATA --out out --overwrite --minutes 3 --why --labels L.csv --seed 7 --train.batch 3", STARTED,
     {"out": "out", "overwrite": True, "minutes": 3.0, "why": True, "config.data.source": "DATA",
      "config.data.label_file": "L.csv", "config.seed": 7, "config.train.batch": 3, "automatic": {"seed", "train.batch"}}),
    ("train --data DATA --start-from RUN", STARTED, {"config.train.start_from": "RUN", "config.encoder.widths": (4, 8)}),
    ("train digits --auto --dry-run --minutes 3", PRICED, {"automatic": set(), "minutes": 3.0}),
    ("train digits", STARTED, {"automatic": None, "overwrite": False, "why": False, "minutes": None, "out": "runs/digits"}),
    ("sweep digits --over train.batch=8,16 --seeds 1,2 --out out --train.steps 3", "sao.cli.sweep._make",
     {"grid.over": {"train.batch": ["8", "16"]}, "grid.seeds": [1, 2], "out": "out", "grid.options": {"train.steps": "3"},
      "grid.preset": "digits", "grid.auto": False}),
    ("sweep digits --auto --labels L.csv --seeds 1,2 --data DATA --start-from RUN", "sao.sweeps.grid.grid_of",
     {"auto": True, "options": {"data.source": "DATA", "data.label_file": "L.csv", "train.start_from": "RUN"}}),
    ("resume RUN --data DATA --train.steps 20", RESUMED, {"source": "DATA", "changed.train.steps": 20, "out": "RUN"}),
    ("bench digits --batch 8 --steps 3 --against spirals --no-literal", BENCHED,
     {"config.train.batch": 8, "steps": 3, "literal": False, "other.train.batch": 8, "other.data.source": "spirals"}),
    ("bench --data DATA", BENCHED,
     {"config.data.source": "DATA", "steps": 5, "literal": True, "other": None, "shape": (1, 8, 8)}),
    ("reproduce figure2 --controls --seeds 3,4 --steps 5 --jobs 2 --out out --train.batch 64", FIGURE2,
     {"out": "out", "seeds": [3, 4], "controls": True, "options": {"train.steps": "5", "train.batch": "64"}, "processes": 2}),
    ("reproduce table1 --scale cpu --data fashion_mnist --rows simclr --seeds 3,4 --jobs 2 --no-search --out out", STUDY,
     {"self.data": ["fashion_mnist"], "self.seeds": [3, 4], "self.search": False, "self.out": "out", "processes": 2}),
    ("reproduce table1 --data fashion_mnist,mnist --search-on mnist --rows simclr", STUDY,
     {"self.search_on": "mnist", "self.search": True}),
    ("reproduce table2 --dry-run --jobs 2 --seeds 3", PRICED_STUDY, {"processes": 2}),
    ("reproduce figure1 --runs RUN --out out", DRAWN, {"out": "out"}),
]  # fmt: skip
# Flags that whole commands are tested with elsewhere.
ELSEWHERE = {
    "presets": {"name"}, "options": {"group"}, "cache": {"clear", "older_than"}, "doctor": set(),
    "eval": {"output"}, "embed": {"overwrite"}, "sample": {"overwrite"},
    "search": {"output", "overwrite"}, "duplicates": {"output", "overwrite"}, "explore": {"output", "overwrite"},
    "report": {"output", "points", "layout", "clusters", "channels"}, "bench": {"json"}, "sweep": {"dry_run"},
    "reproduce": {"rates", "known"},
}  # fmt: skip


@pytest.mark.parametrize(("words", "function", "expected"), ARRIVALS, ids=[words for words, *_ in ARRIVALS])
def test_a_flag_arrives(words, function, expected, places, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for where in ("sao.evaluation.manifold", "sao.cli.evaluating"):
        monkeypatch.setattr(f"{where}.check_algorithm", lambda name: None)  # UMAP may not be installed
    monkeypatch.setattr("sao.cli.sweep._forecast", lambda grid, runs: None)
    monkeypatch.setattr("sao.report.explore.training_price", lambda *given: ("", ""))
    arrived = tiny.arrival(monkeypatch, function, lambda: main([places.get(word, word) for word in words.split()]))
    found = {place: value_at(arrived, place) for place in expected}
    assert {place: str(one) if isinstance(one, Path) else one for place, one in found.items()} == told(expected, places)


def test_every_flag_of_every_command_is_looked_at():
    commands = next(action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)).choices
    for name, parser in commands.items():
        typed = {word for words, *_ in ARRIVALS if words.split()[0] == name for word in re.split(r"[ =]", words)}
        flags = {action.dest: action.option_strings for action in parser._actions if action.option_strings}
        seen = {dest for dest, strings in flags.items() if typed & set(strings)} | ELSEWHERE.get(name, set())
        assert flags.keys() - seen == {"help", "code"}, name
