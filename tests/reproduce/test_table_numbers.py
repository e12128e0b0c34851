"""Tables of studies and sweeps to the letter, from results that are given to them."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch
from scipy.stats import ttest_rel
from tiny import fake

from sao import config as configuration
from sao.cli import reproduce as command
from sao.data.dataset import Dataset, Images
from sao.errors import InputError
from sao.evaluation.features import Features
from sao.evaluation.result import Metric, write_json
from sao.reproduce import figure1, figure2, known, measure, study, table, table1, tables
from sao.reproduce.figure2 import Row as Panel
from sao.reproduce.figure2_measure import arm_histogram, cosines, direction_agreement, shared_neighbours, square_grid
from sao.reproduce.rows import Row, StudyRun, Table, controls, runs_of
from sao.sweeps import table as sweep_table
from sao.sweeps.grid import Grid, SweepRun, _changed, axis, grid_of

ROWS = (Row("a", "The first", paper={"digits": {"svm": 0.8764, "fid": 12.344}}), Row("b", "The second"))
TABLE = Table("t", "cpu", "A title", ROWS, {"digits": "digits"}, ("digits",), ("a note",))


def a_run(
    row: Row = ROWS[0], seed: int = 0, data: str = "digits", folder: Path = Path("x"), tried: str | None = None
) -> StudyRun:
    return StudyRun(row, data, tiny.config(seed=seed), folder / f"{row.name}-{data}-{seed}-{tried}", Path("y"), tried)


def found(**values: float) -> dict[str, Metric]:
    return {name: Metric(name, value) for name, value in values.items()}


def test_a_row_is_the_mean_and_the_deviation_of_a_sample_over_its_seeds():
    done = [
        (a_run(seed=0), found(svm=0.5, kmeans=0.25)),
        (a_run(seed=1), found(svm=0.75)),
        (a_run(seed=2), found(diverged_at_step=70.0, svm=0.125)),
        (a_run(ROWS[1], seed=0), found(svm=0.9)),
        (a_run(data="mnist"), found(svm=0.1)),
    ]
    line = table.summarised(ROWS[0], "digits", done)
    assert line == {
        "row": "a",
        "title": "The first",
        "data": "digits",
        "seeds": [0, 1, 2],
        "diverged": {"2": 70},
        "metrics": {
            "svm": {"mean": 0.625, "std": pytest.approx(0.25 / 2**0.5), "values": [0.5, 0.75]},
            "kmeans": {"mean": 0.25, "std": 0.0, "values": [0.25]},
        },
        "paper": {"svm": 0.8764, "fid": 12.344},
    }
    assert table.seeds_of(line) == "0, 1, 2 (diverged at step 70)"
    assert table._rows({"fid": "FID", "svm": "SVM", "kmeans": "k-means"}, [line]) == [
        "| row | seeds | SVM | k-means |",
        "|---|---|---|---|",
        "| The first | 0, 1, 2 (diverged at step 70) | 62.5 ± 17.7 (87.6) | 25.0 |",
    ]


@pytest.mark.parametrize(("name", "values", "paper", "said"), [
    ("minutes", [1.5], None, "1.50"), ("minutes", [1.0, 2.0], None, "1.50 ± 0.71"), ("knn5", [0.12345], 0.5, "12.3 (50.0)"),
    ("purity_swapped_equal_k_chance", [0.5], None, "50.0"), ("fid", [0.5], 12.344, "0.50 (12.34)"),
    ("nmi", [], 0.7277, "– (72.8)"), ("svm", [0.5, 0.5], 0.898, "50.0 ± 0.0 (89.8)"), ("svm", [], None, "–"),
])  # fmt: skip
def test_a_cell_has_shares_in_percent_and_the_papers_number_in_brackets(name, values, paper, said):
    std = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    own = {name: {"mean": float(np.mean(values)), "std": std, "values": values}} if values else {}
    assert table._cell({"metrics": own, "paper": {} if paper is None else {name: paper}}, name) == said


def test_a_search_shows_what_each_rate_was_worth_and_which_was_taken():
    searches = [{"row": "a", "data": "digits", "scores": {"1e-3": 0.5, "3e-3": 0.75, "1e-2": 0.75}}]
    assert table._search([]) == ""
    assert table._search(searches).splitlines()[-3:] == [
        "| row | data | tried |",
        "|---|---|---|",
        "| a | digits | 1e-3: 50.0, **3e-3: 75.0**, 1e-2: 75.0 |",
    ]


def test_notes_of_a_table_depend_on_what_is_in_it():
    reference = Row("supervised", "with labels", kind="reference")
    done = [(a_run(ROWS[1]), found(svm=0.5))]
    assert len(table._notes(done)) == 3
    assert table._notes([(a_run(), found(svm=0.5))])[3].startswith("in brackets: the paper's number")
    compared = [*done, (a_run(reference), found(probe=0.8766, frechet_classifier=1.0))]
    assert table._notes(compared)[3] == (
        "…_classifier on digits: in the features of the row 'supervised', a classifier with test accuracy 87.7 (linear probe); "
        "not comparable with FID"
    )


def test_a_table_on_disk_has_every_run_in_its_order(tmp_path):
    runs = [a_run(row, seed, folder=tmp_path) for row in ROWS for seed in (0, 1)]
    for value, run in zip((0.5, 0.75, 0.25), runs, strict=False):
        run.folder.mkdir()
        write_json(run.evaluation, [Metric("svm", value), Metric("fid", float("nan"))])
    table.write_table(TABLE, runs, tmp_path, "sao reproduce t", {("a", "digits"): {"1e-3": 0.5}})
    content = json.loads((tmp_path / "t.json").read_text())
    assert [(line["row"], line["seeds"]) for line in content["rows"]] == [("a", [0, 1]), ("b", [0])]
    assert [(one["row"], one["seed"], one["data"]) for one in content["runs"]] == [
        ("a", 0, "digits"),
        ("a", 1, "digits"),
        ("b", 0, "digits"),
    ]
    assert content["search"] == [{"row": "a", "data": "digits", "scores": {"1e-3": 0.5}}]
    assert (content["command"], content["scale"], content["notes"]) == ("sao reproduce t", "cpu", ["a note"])
    lines = (tmp_path / "t.md").read_text().splitlines()
    assert lines[0] == "# A title (scale: cpu)"
    assert lines[2].startswith("`sao reproduce t`, 20")
    rows = {"| The first | 0, 1 | 62.5 ± 17.7 (87.6) |", "| The second | 0 | 25.0 |"}
    assert {"- a note", "## digits", *rows} <= set(lines)


@pytest.mark.parametrize(("cores", "said"), [(1, "1 core, P"), (8, "8 cores, P")])
def test_the_machine_of_a_table(monkeypatch, cores, said):
    monkeypatch.setattr(table, "usable_cores", lambda: cores)
    monkeypatch.setattr(table, "processor_name", lambda: "P")
    assert table.facts_of(TABLE, "c")["machine"] == said


def test_curves_are_of_the_metric_of_that_name(tmp_path):
    assert table.validated(tmp_path, "eval/probe") == []
    folder = tmp_path / "run"
    run = tiny.Run.create(folder, tiny.config(), tiny.DataFacts("d", (1, 8, 8), 20))
    run.metrics.write_text('{"step": 3, "eval/kmeans_n20": 0.5, "eval/probe_n20": 0.25}\n{"step": 6, "eval/probe_n20": 0.75}\n')
    assert table.validated(folder, "eval/probe") == [(3, 0.25), (6, 0.75)]
    assert table.validated(folder, "eval/kmeans") == [(3, 0.5)]


def test_runs_and_trials_have_names():
    assert a_run(seed=3).name == "a on digits, seed 3"
    assert a_run(tried="1e-3").name == "a on digits, learning rate 1e-3"


def test_what_is_said_of_a_finished_run(monkeypatch, tmp_path):
    monkeypatch.setattr(study, "note_origin", lambda run: None)
    run = a_run(folder=tmp_path)
    run.folder.mkdir()
    for metrics, said in (
        ([Metric("kmeans", 0.12345), Metric("svm", 0.9876), Metric("probe", 0.5)], "svm 0.988, kmeans 0.123"),
        ([Metric("diverged_at_step", 70.0)], "diverged at step 70"),
        ([Metric("svm", float("nan")), Metric("probe", 0.5)], ""),
    ):
        monkeypatch.setattr(study, "_metrics", lambda run, metrics=metrics: metrics)
        assert study.finish_run(run) == said


def test_references_come_first_and_those_that_learn_from_others_last(tmp_path, capsys):
    rows = [Row("late", "", needs="a"), ROWS[0], Row("supervised", "", kind="reference"), ROWS[1]]
    runs = [a_run(row, folder=tmp_path) for row in rows]
    runs[3].folder.mkdir()
    runs[3].evaluation.write_text("[]")
    order: list[str] = []
    assert study.finish_each(runs, 1, lambda: order.append("written"), lambda run: order.append(run.row.name) or "fine") == 3
    assert order == ["supervised", "written", "a", "written", "late", "written"]
    assert capsys.readouterr().out.splitlines() == [
        "4 runs, 1 of them done already",
        "supervised on digits, seed 0: fine; left: 2",
        "a on digits, seed 0: fine; left: 1",
        "late on digits, seed 0: fine; left: 0",
    ]
    assert study.finish_each([a_run(folder=tmp_path, tried="1")], 1, finish=lambda run: "") == 1
    assert capsys.readouterr().out.startswith("1 trials of learning rates, 0 of them done already\n")


def test_the_best_rate_needs_all_trials_and_a_diverged_one_is_worth_nothing(tmp_path):
    row = replace(ROWS[0], rates=("1", "2", "3"))
    trials = [a_run(row, folder=tmp_path, tried=rate) for rate in row.rates]
    results = [Metric("svm", 0.5)], [Metric("diverged_at_step", 3)], [Metric("svm", 0.5), Metric("knn1", 0.9)]
    for trial, metrics in zip(trials, results, strict=True):
        assert study.judged(trials) == {}
        trial.folder.mkdir()
        configuration.save(trial.config, trial.folder / "config.yaml")
        write_json(trial.evaluation, metrics)
    scores = study.judged(trials)
    assert scores == {("a", "digits"): {"1": 0.5, "2": 0.0, "3": 0.5}}
    assert study.chosen_rates(scores) == {("a", "digits"): {"method.optimiser.learning_rate": "1"}}


def test_a_trial_is_a_third_as_long_and_looked_at_once(tmp_path):
    row = replace(ROWS[0], changes={"method": "simclr"}, rates=("1e-3", "2e-3"))
    options = {"train.steps": "100"}
    first, second = study.trials_of(TABLE, [row], ["digits"], options, tmp_path)
    assert (first.config.train.steps, first.tried, second.tried) == (33, "1e-3", "2e-3")
    assert first.folder == tmp_path / "search" / "a-digits-1e-3"
    assert (first.config.log.evaluate_every, first.config.log.sample_every, first.config.log.checkpoint_every) == (
        None,
        None,
        500,
    )
    assert second.config.by_name()["method.optimiser.learning_rate"] == 2e-3
    assert study.trials_of(TABLE, [row], ["digits"], {"train.steps": "2"}, tmp_path)[0].config.train.steps == 1
    by_hand = {"method.optimiser.learning-rate": "1"}
    assert study.trials_of(TABLE, [row], ["digits"], by_hand, tmp_path) == []
    assert study.trials_of(TABLE, [replace(row, without=("digits",))], ["digits"], {}, tmp_path) == []


def test_a_fifth_of_the_training_set_is_held_back():
    images = Images(np.arange(50, dtype=np.uint8)[:, None, None, None].repeat(8, 1).repeat(8, 2), np.arange(50) % 2)
    found = study.within_training_set(Dataset("d", images, images.select(np.arange(3))))
    assert (len(found.train), len(found.test)) == (40, 10)


def test_a_study_is_priced_by_the_runs_that_are_left(monkeypatch, capsys, tmp_path):
    seen = []
    step = fake(seconds=2.0, trial=fake(batch=16))
    price = fake(note="data        d", samples=100, step=step, checkpoint=5e8)
    monkeypatch.setattr(study, "price", lambda config: seen.append(config) or price)
    raw, rival = Row("raw", "", kind="raw"), Row("rival", "", kind="rival", needs="a")
    runs = [a_run(folder=tmp_path), a_run(seed=1, folder=tmp_path), a_run(raw), a_run(rival), a_run(ROWS[1], folder=tmp_path)]
    runs[4].folder.mkdir()
    runs[4].evaluation.write_text("[]")
    study.price_study(runs, 4)
    assert capsys.readouterr().out.splitlines() == [
        "data        d",
        "measured    steps of batch 16",
        "a on digits, seed 0: 8 steps of 2.00 s, 0m 16s",
        "a on digits, seed 1: 8 steps of 2.00 s, 0m 16s",
        "raw on digits, seed 0: nothing to train",
        "rival on digits, seed 0: 8 steps of 2.00 s, 0m 16s, as long as a",
        "b on digits, seed 0: done already",
        "5 runs: 0m 48s of training left, 0m 12s with 4 at a time that do not slow each other down",
        "2.0 GB of checkpoints; the evaluation of each run comes on top",
    ]
    assert len(seen) == 1
    study.price_study(runs[:1], 1)
    assert "at a time" not in capsys.readouterr().out


def test_origins_of_known_runs_are_kept(tmp_path):
    run = a_run(folder=tmp_path)
    record = {"row": "a", "data": "digits", "seed": 0, "processor": "P", "date": "2020-02-02"}
    record["config"] = run.config.model_dump(mode="json")
    record["metrics"] = [{"name": "svm", "value": 0.5, "std": None, "protocol": {}}]
    file = tmp_path / "t.json"
    file.write_text(json.dumps({"runs": [{**record, "row": "b"}, {**record, "data": "mnist"}, record]}))
    runs = [run, a_run(seed=1, folder=tmp_path)]
    assert [one.name for one, _ in known.known_runs(file, runs)] == ["a on digits, seed 0"]
    assert known.take_known(file, runs) == 1
    again = known.record_of(run)
    assert (again["processor"], again["date"], again["metrics"]) == ("P", "2020-02-02", record["metrics"])
    assert known.known_runs(file, runs) == []  # it is done now
    others = [a_run(folder=tmp_path / "b"), a_run(Row("c", "", needs="a"))]  # the weights of the first are needed
    assert known.known_runs(file, others) == []


def test_every_number_of_the_papers_table_1():
    """Percent by SVM and by k-means on CIFAR-10, CIFAR-100 and ImageNet-10, and millions of parameters."""
    assert the_papers(table1.table1("paper"), ("svm", "kmeans", "parameters_encoder")) == printed("""
        dino         89.7 63.9 11.5   65.6 36.7 11.5   87.8 68.0 11.5
        nnclr        91.7 69.3 11.5   69.7 40.4 11.5   91.4 66.8 11.5
        simclr       90.6 75.3 11.5   65.6 41.3 11.5   89.0 65.7 11.5
        byol         93.1 75.0 11.5   70.6 42.8 11.5   90.4 67.3 11.5
        swav         89.1 64.5 11.5   65.0 35.2 11.5   90.0 61.9 11.5
        mae          82.3 37.0 20.4   57.1 17.9 20.4   88.4 45.8 20.4
        ddpm         91.1 78.0 41.8   62.5 36.3 41.8
        ours         89.8 80.1 11.5   63.3 38.2 11.5   91.2 75.4 11.5
        untrained    42.9 22.0 11.5   18.3 8.9 11.5    48.2 28.3 11.5
        supervised   95.1 95.1 11.5   75.9 73.6 11.5   96.4 96.3 11.5
    """)


def test_every_number_of_the_papers_other_tables():
    assert the_papers(tables.table2("paper"), ("kmeans", "svm", "probe", "knn1", "knn5")) == printed("""
        simclr       14.2 21.8 21.8 14.7 15.1   2.1 4.5 5.4 2.7 2.5
        ours         76.5 84.5 83.2 79.7 82.2   22.5 52.2 51.6 37.5 37.4
        simclr-f     17.5 32.8 32.1 23.3 25.5   4.1 10.3 10.9 6.0 5.5
        ours-f       76.2 85.7 85.8 80.9 84.5   30.8 52.0 56.5 41.0 42.9
        simclr-fc    27.8 72.7 72.2 64.9 67.2   12.2 35.1 34.3 30.8 29.1
        ours-fc      80.0 89.3 88.4 87.7 89.2   37.4 63.2 62.0 55.0 56.1
        simclr-fcj   78.0 90.7 90.2 88.1 89.5   41.7 65.2 65.2 59.2 61.4
    """)
    assert the_papers(tables.table3("paper"), ("nmi", "purity", "purity_swapped")) == printed("""
        self-conditioned   33.26 - 11.73
        ours               72.77 81.52 -
    """)
    assert the_papers(tables.table4("paper"), ("is", "fid", "kmeans", "svm", "parameters_d", "parameters_g")) == printed("""
        stylegan2       9.82 3.60 28.96 76.50 20.7 19.9
        biggan          8.22 17.50 29.69 69.31 4.2 4.3
        hinge           8.13 18.54 36.41 77.19 11.5 4.9
        bhattacharyya   8.39 17.83 70.76 87.9 11.5 4.9
        jsd             8.55 16.97 80.55 88.32 11.5 4.9
        full-spectral   7.23 26.41 55.38 83.9 11.5 4.9
        full            8.73 13.63 80.11 89.76 11.5 4.9
    """)
    assert the_papers(tables.table5("paper"), ("probe",)) == printed("genrep 55.0\nours 59.9")
    assert [row.name for row in tables.samples("paper").rows] == ["full", "jsd", "hinge", "biggan", "supervised"]


def the_papers(shown: Table, metrics: tuple[str, ...]) -> dict[str, list[float | None]]:
    """Of every row with such numbers, in the order of the data sets and as they are printed."""
    units = {"is": 1.0, "fid": 1.0, "parameters_encoder": 1e6, "parameters_d": 1e6, "parameters_g": 1e6}
    found: dict[str, list[float | None]] = {}
    for row in (row for row in shown.rows if row.paper and not row.on_request):
        known = [row.paper[data] for data in shown.data if data in row.paper]
        assert set().union(*known) <= set(metrics)
        assert len(known) == len(row.paper)
        numbers = [(one.get(name), units.get(name, 0.01)) for one in known for name in metrics]
        found[row.name] = [None if value is None else round(value / unit, 6) for value, unit in numbers]
    return found


def printed(text: str) -> dict[str, list[float | None]]:
    lines = [line.split() for line in text.strip().splitlines()]
    return {name: [None if word == "-" else float(word) for word in words] for name, *words in lines}


@pytest.mark.parametrize("own", [None, 7])
def test_each_number_of_clusters_in_table_3_is_that_of_the_measures_beside_it(own):
    data = tiny.few()
    clusters = fake(
        own_clusters=own, parameters=lambda: iter([torch.zeros(1)]), clusters_of=lambda x: x.flatten(1).argmax(1) % 7
    )
    features = Features(data.test.inputs(slice(None)).flatten(1), data.test.labels)
    found = {metric.name: metric for metric in measure.clusterings(features, clusters, data, 20, seed=0)}
    assert found.keys() == {"k", "k_equal_k", *measure.CLUSTERED}
    assert (found["k"].value, found["k_equal_k"].value) == (own or 10, 20)
    for name in ("nmi", "purity", "purity_swapped"):
        for which in ("", measure.EQUAL):
            assert found[name + which].protocol["k"] == found["k" + which].value


def test_controls_are_the_same_in_every_table():
    assert [(row.name, row.kind) for row in controls("cpu")] == [
        ("raw", "raw"), ("patches", "patches"), ("untrained", "untrained"), ("supervised", "reference"),
    ]  # fmt: skip
    assert [dict(row.recipe) for row in controls("paper")][3] == {"train.epochs": "100"}


def test_the_line_below_a_panel():
    panel = figure1.Panel("t", np.zeros((1, 2)), None, [], {"svm": 0.89764, "kmeans": 0.5})
    assert figure1.below(panel) == "SVM 89.8, k-means 50.0"
    assert figure1.below(replace(panel, numbers={})) == "no labels, or too few samples to score"


def test_colours_begin_again_after_twenty_classes():
    assert len({figure1._colour(code) for code in range(20)}) == 20
    assert figure1._colour(20) == figure1._colour(10)


def test_the_table_of_figure_2():
    def numbers(value: float) -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = {}
        for place, (panel, name) in enumerate(figure2.COLUMNS.values()):
            found.setdefault(panel, {})[name] = 40.0 if name == "bins_hit" else value + place / 100
        return found

    rows = [Panel("m", 0, 1.0, numbers(0.5)), Panel("c", 0, 1.0, numbers(0.25)), Panel("m", 1, 1.0, numbers(0.75))]
    lines = figure2.table(rows).splitlines()
    columns = ["run", "seeds", "on an arm", "parts hit (of 40)", "1-NN", "linear", "neighbours kept", "transport cosine"]
    assert lines[0] == f"| {' | '.join(columns)} | update cosine within | between |"
    means = " | ".join(f"0.{mean}5 ± 0.125" for mean in range(64, 70))
    assert lines[2] == f"| m | 0, 1 | 0.625 ± 0.125 | 40 ± 0.000 | {means} |"
    assert lines[3] == "| c | 0 | 0.250 | 40 | 0.270 | 0.280 | 0.290 | 0.300 | 0.310 | 0.320 |"


def test_numbers_of_figure_2_by_hand():
    np.testing.assert_allclose(square_grid(2, 3.0), [[-1.5, -1.5], [1.5, -1.5], [-1.5, 1.5], [1.5, 1.5]])
    np.testing.assert_allclose(cosines(np.array([[2.0, 0], [0, 3]]), np.array([[5.0, 0], [1, 1]])), [1, 0.5**0.5])
    directions = np.array([[1.0, 0], [0, 2.0], [1, 0], [-1, 0]])
    within, between = direction_agreement(directions, np.array([0, 0, 1, 1]))
    assert (within, between) == pytest.approx(((0 + -1) / 2, (1 + -1 + 0 + 0) / 4))
    line = np.arange(5.0)[:, None]
    assert shared_neighbours(line, line**2, 1) == pytest.approx(1.0)
    assert shared_neighbours(line, line[::-1] ** 3, 1) < 1
    assert arm_histogram(np.zeros((0, 2))).shape == (2, 20)


def test_words_and_seeds_are_separated_by_commas():
    assert command.words_in("--rows", " a, b ,,c") == ["a", "b", "c"]
    assert command.words_in("--rows", None) is None
    assert command.seeds_in("2, 0,2") == [2, 0]
    for text in ("", "1,", "-1", "a", "1.0", "²"):
        with pytest.raises(InputError, match="--seeds takes whole numbers"):
            command.seeds_in(text)
    with pytest.raises(InputError, match="--rows is empty"):
        command.words_in("--rows", ", ")
    assert command.options_of(fake(steps=3, jobs=None), {"a": "b"}) == {"a": "b", "train.steps": "3"}
    with pytest.raises(InputError, match=r"^--jobs must be at least 1, got 0$"):
        command.options_of(fake(steps=None, jobs=0), {})


def test_so_many_runs_go_at_a_time(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setattr(command, "usable_cores", lambda: 6)
    assert (command.at_a_time("cpu"), command.at_a_time("paper")) == (6, 1)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    assert (command.at_a_time("cpu"), command.at_a_time("paper")) == (3, 3)


@pytest.fixture
def swept(tmp_path) -> tuple[Grid, list[SweepRun]]:
    """Two combinations with three seeds, of which the last run is not done."""
    grid = Grid("digits", {"train.batch": ["16", "32"]}, [0, 1, 2], {})
    runs = []
    for one, seed in product(grid.combinations(), grid.seeds):
        name = grid.run_name(one, seed)
        runs.append(SweepRun(name, grid.name(one), seed, tmp_path / name, tiny.config(), None))
    for run, value in zip(runs, (0.5, 0.6, 0.7, 0.75, 0.8), strict=False):
        (run.folder / "eval").mkdir(parents=True)
        metrics = [Metric("svm", value), Metric("raw/svm", 0.5), Metric("nmi", float("nan"))]
        write_json(run.folder / "eval" / "summary.json", metrics)
    return grid, runs


def test_a_sweep_has_the_mean_and_the_deviation_of_each_combination(swept, tmp_path):
    grid, runs = swept
    sweep_table.write_table(tmp_path, grid, runs, "sao sweep", [])
    assert (tmp_path / "table.csv").read_text("utf-8-sig").splitlines() == [
        "train.batch,metric,mean,deviation,runs",
        f"16,svm,{np.mean([0.5, 0.6, 0.7])},{np.std([0.5, 0.6, 0.7], ddof=1)},3",
        "16,raw/svm,0.5,0.0,3",
        f"32,svm,{np.mean([0.75, 0.8])},{np.std([0.75, 0.8], ddof=1)},2",
        "32,raw/svm,0.5,0.0,2",
    ]
    content = json.loads((tmp_path / "table.json").read_text())
    assert [one["name"] for one in content["combinations"]] == ["batch=16", "batch=32"]
    assert content["combinations"][1]["options"] == {"train.batch": "32"}
    assert content["combinations"][1]["metrics"]["svm"]["by_seed"] == {"0": 0.75, "1": 0.8}
    assert sweep_table.spread({4: 0.5}) == (0.5, None)


def test_a_sweep_on_the_screen(swept):
    grid, runs = swept
    grid.diverged["batch=32,seed=2"] = "step 3: loss is NaN"

    def row(metric: str, difference: float, decided: bool = True) -> dict[str, object]:
        return {"metric": metric, "difference": difference, "decided": decided}

    by_run = [
        {"seed": 0, "reason": None, "rows": [row("svm", 0.25), row("knn5", -0.5)]},
        {"seed": 1, "reason": None, "rows": [row("svm", -0.1, False), row("knn5", -0.25)]},
        {"seed": 2, "reason": "the data of one was not at hand", "rows": []},
    ]
    across = [{"metric": "svm", "seeds": 3, "difference": 0.125, "interval": None, "p": 0.0456, "decided": True}]
    tests = [{"first": "batch=16", "second": "batch=32", "by_run": by_run, "over_seeds": across}]
    lines = sweep_table.as_markdown(grid, runs, tests).splitlines()
    assert lines[:9] == [
        "mean ± deviation over seeds 0, 1, 2",
        "|          | svm           |",
        "|----------|---------------|",
        "| batch=16 | 0.600 ± 0.100 |",
        "| batch=32 | 0.775 ± 0.035 |",
        "batch=32,seed=2 diverged: step 3: loss is NaN",
        "",
        "batch=32 against batch=16",
        "seed 2 is not tested run against run: the data of one was not at hand",
    ]
    assert lines[9:13] == [
        "| metric | difference | better | worse  | p over seeds |",
        "|--------|------------|--------|--------|--------------|",
        "| svm    | +0.125     | 1 of 2 | 0 of 2 | 0.046 (3)    |",
        "| knn5   | -0.375     | 0 of 2 | 2 of 2 | –            |",
    ]
    assert lines[14].startswith("better, worse: in so many runs, sample by sample on the same held-out samples")
    assert sweep_table.as_markdown(grid, [], []).splitlines()[1] == "nothing was measured"


@pytest.mark.parametrize(("seeds", "tested"), [([0, 1], 0), ([0, 1, 2], 2), ([0, 1, 2, 3], 2)])
def test_three_seeds_are_tested_across(seeds, tested):
    first = {name: {seed: 0.5 + seed / 100 for seed in seeds} for name in ("svm", "knn1", "raw/svm", "alone")}
    second = {name: {seed: 0.75 - seed**2 / 100 for seed in [*seeds, 9]} for name in ("svm", "knn1", "raw/svm")}
    rows = sweep_table._across_seeds(first, second, 2)
    assert [(row["metric"], row["seeds"]) for row in rows] == [("svm", len(seeds)), ("knn1", len(seeds))][:tested]
    for row in rows:
        ours, theirs = ([values["svm"][seed] for seed in seeds] for values in (second, first))
        assert row["difference"] == pytest.approx(np.mean(ours) - np.mean(theirs))
        assert row["p"] == pytest.approx(min(1, 4 * ttest_rel(ours, theirs).pvalue))  # two metrics, two combinations
        assert row["decided"] == (row["p"] < 0.05)


def test_values_of_an_axis_are_separated_by_commas():
    assert axis("--train.batch=16, 32") == ("train.batch", ["16", "32"])
    assert axis("encoder.widths=[4,8],[8]") == ("encoder.widths", ["[4,8]", "[8]"])
    for text, said in (
        ("train.batch", "--over takes OPTION=VALUE,VALUE"),
        ("train.batch=16", r"--over train.batch has one value: give several, or set it for all runs with --train.batch 16"),
        ("train.batch=16,", "--over train.batch has an empty value"),
        ("train.batch=16,32,16", "--over train.batch has the value 16 twice: leave one out"),
        ("=1,2", "--over takes OPTION=VALUE,VALUE"),
    ):
        with pytest.raises(InputError, match=f"^{said}"):
            axis(text)


@pytest.mark.parametrize(("change", "said"), [
    ({}, None), ({"seeds": [0, 1, 2]}, None), ({"seeds": [1]}, "seed 0 is in it and left out here"),
    ({"over": {"a": ["1", "2", "3"]}}, None), ({"over": {"a": ["3"]}}, "a 1, 2 is in it and left out here"),
    ({"over": {}}, "over a, not over seeds alone"), ({"over": {"a": ["1", "2"], "b": ["1"]}}, "over a, not over a and b"),
    ({"preset": "own"}, "of digits, not of own"), ({"auto": True}, "without --auto"),
    ({"options": {"c": "4"}}, "c was 3, and is 4 here"), ({"options": {}}, "c was 3, and is not given here"),
    ({"options": {"c": "3", "d": "1"}}, "d was not given, and is 1 here"), ({"options": {"c": "3", "log.every": "1"}}, None),
])  # fmt: skip
def test_what_makes_it_another_sweep(change, said):
    before = Grid("digits", {"a": ["1", "2"]}, [0, 1], {"c": "3"})
    assert _changed(before, replace(before, **change)) == said


def test_contradictions_of_a_grid():
    for over, seeds, options, said in (
        (["seed=1,2"], [0], {}, "seeds are given with --seeds 1,2"),
        (["train.batch=1,2", "train.batch=3,4"], [0], {}, "--over train.batch is there twice"),
        (["train.batch=1,2"], [0], {"train.batch": "3"}, "--over train.batch and --train.batch contradict each other"),
        ([], [0, 1], {"seed": "3"}, "--seed is for one run"),
        ([], [0], {}, "one run is no sweep"),
    ):
        with pytest.raises(InputError, match=said):
            grid_of("digits", over, seeds, options)
    grid = grid_of("digits", ["a.x=1,2", "b.y=3,4"], [0], {})
    assert [grid.name(one) for one in grid.combinations()] == ["x=1,y=3", "x=1,y=4", "x=2,y=3", "x=2,y=4"]


@pytest.mark.parametrize(("quick", "rows"), [(True, 10_000), (False, None)])
def test_a_quick_run_is_fitted_to_ten_thousand_rows(monkeypatch, quick, rows):
    plans = []
    monkeypatch.setattr(measure, "_representation", lambda run, method, dataset, plan: plans.append(plan) or {})
    monkeypatch.setattr(measure, "measure", lambda found, plan, seed: SimpleNamespace(metrics=[]))
    run = replace(a_run(Row("raw", "", kind="raw")), quick=quick)
    assert measure.measured(run, None, None) == []  # pyright: ignore[reportArgumentType]
    assert [plan.rows for plan in plans] == [rows]


@pytest.mark.parametrize(("quick", "judged"), [(True, 0), (False, 1)])
def test_images_of_a_quick_run_do_not_pass_through_inception(monkeypatch, quick, judged, tmp_path):
    seen = []
    monkeypatch.setattr(measure, "save_samples", lambda *_: None)
    monkeypatch.setattr(measure, "compare_in_classifier", lambda *_: [])
    monkeypatch.setattr(measure, "evaluate_generation", lambda *_, **__: seen.append(1) or [])
    monkeypatch.setattr(measure, "Model", lambda *_: SimpleNamespace(sample=lambda count, seed: None))
    monkeypatch.setattr(measure, "DataFacts", SimpleNamespace(of=lambda dataset: None))
    images = Images(np.zeros((2, 32, 32, 3), np.uint8))
    run = replace(a_run(folder=tmp_path), quick=quick)
    measure._generation(run, torch.nn.Linear(1, 1), Dataset("x", images, images))  # pyright: ignore[reportArgumentType]
    assert len(seen) == judged


def test_runs_at_the_scale_of_a_processor_are_quick(tmp_path):
    for made, quick in ((table1.table1("cpu"), True), (table1.table1("paper"), False)):
        assert {run.quick for run in runs_of(made, made.rows, ["cifar10"], [0], {}, tmp_path)} == {quick}


def test_a_wrong_option_of_a_study_leaves_no_folder(tmp_path, capsys):
    asked = ("reproduce", "table1", "--rows", "ours", "--data", "digits", "--method.bank", "x", "--out", str(tmp_path / "out"))
    assert "method.bank" in tiny.refused(capsys, *asked)
    assert not (tmp_path / "out").exists()
