"""sao sweep: ordinary runs of a grid, gone on with after a kill, and one table of them."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
from scipy.stats import ttest_rel

from sao.cli.main import main
from sao.evaluation.comparison import over_seeds
from sao.evaluation.evaluator import Plan
from sao.evaluation.result import Metric, as_grid
from sao.sweeps.grid import grid_of
from sao.training.run_folder import Run

WORDS = tiny.words(method="vicreg", train__steps=4, log__evaluate_minutes=1)
OVER = ["--over", "method.covariance=1,50"]


@pytest.fixture(scope="module")
def few(tmp_path_factory) -> str:
    return str(tiny.save_few(tmp_path_factory.mktemp("data") / "few.npz"))


@pytest.fixture
def quick(monkeypatch):
    """Neighbours alone: a whole evaluation takes longer than these trainings. What steps cost is a test of its own."""
    monkeypatch.setattr("sao.training.summary.SUMMARISED", Plan(("knn1", "knn5", "effective_rank"), minutes=10))
    monkeypatch.setattr("sao.report.side_by_side.TESTED", ("knn5",))
    monkeypatch.setattr("sao.cli.pricing._price", lambda config, data: priced(config))


def priced(config) -> SimpleNamespace:
    return SimpleNamespace(training=2.0, report=1.0, steps=config.train.steps, step=SimpleNamespace(seconds=0.5))


def swept(capsys, out: Path, *words: str) -> str:
    """What a sweep says."""
    return tiny.said(capsys, "sweep", *WORDS, "--out", out, *words)


def refused(capsys, out: Path, *words: str) -> str:
    return tiny.refused(capsys, "sweep", *WORDS, "--out", out, *words)


def states(out: Path) -> dict[str, int]:
    """When each file of each run was written last."""
    return {str(path): path.stat().st_mtime_ns for path in out.glob("*/**/*") if path.is_file() and path.name != "lock"}


def test_every_combination_and_seed_is_a_run_and_one_table_has_them_all(few, quick, tmp_path, capsys):
    out = tmp_path / "swept"
    words = ["--data", few, *OVER]
    said = swept(capsys, out, *words, "--seeds", "0,1")
    assert "4 runs: 2 combinations with 2 seeds each\n" in said
    assert "covariance=1: 4 steps of 0.5 s, 0m 03s a run, 2 to do" in said
    assert "about 0m 12s in all, and at most 4m 00s of evaluations on top" in said
    before = states(out)
    # More seeds extend it; nothing that is done is done again.
    said = swept(capsys, out, *words, "--seeds", "0,1,2", "--log.every", "2")
    assert "6 runs: 2 combinations with 3 seeds each, 4 of them done already" in said
    assert before.items() <= states(out).items()
    runs = {(value, seed): out / f"covariance={value},seed={seed}" for value in (1, 50) for seed in range(3)}
    values = {}
    for (value, seed), folder in runs.items():
        assert Run.open(folder).config.seed == seed
        values[value, seed] = {name: row["value"] for name, row in tiny.metrics(folder / "eval/summary.json").items()}
    table = json.loads((out / "table.json").read_text())
    rows = {(row["method.covariance"], row["metric"]): row for row in tiny.table(out / "table.csv")}
    assert {name for _, name in rows} == set(values[1, 0])  # baselines too
    for value in (1, 50):
        three = [values[value, seed]["knn5"] for seed in range(3)]
        row = rows[str(value), "knn5"]
        assert float(row["mean"]) == pytest.approx(np.mean(three))
        assert float(row["deviation"]) == pytest.approx(np.std(three, ddof=1))
        assert row["runs"] == "3"
        assert f"| covariance={value} " in said
        assert f"{np.mean(three):.3f} ± {np.std(three, ddof=1):.3f}" in said
    (pair,) = table["tests"]
    assert (pair["first"], pair["second"]) == ("covariance=1", "covariance=50")
    for run in pair["by_run"]:  # on the same samples, as the runs themselves were measured
        (row,) = run["rows"]
        assert run["samples"] == 110
        assert (row["first"], row["second"]) == (values[1, run["seed"]]["knn5"], values[50, run["seed"]]["knn5"])
    across = {row["metric"]: row for row in pair["over_seeds"]}
    assert set(across) == {"knn1", "knn5", "effective_rank"}
    ours, theirs = ([values[value, seed]["effective_rank"] for seed in range(3)] for value in (50, 1))
    assert across["effective_rank"]["p"] == pytest.approx(min(1, 3 * ttest_rel(ours, theirs).pvalue))
    # What is not the same sweep any more is refused, and leaves all as it is.
    before = states(out)
    for more, reason in (
        (["--seeds", "0,1"], "seed 2 is in it and left out here"),
        (["--seeds", "0,1,2", "--train.batch", "8"], "train.batch was 16, and is 8 here"),
    ):
        assert f"holds another sweep: {reason}; choose another --out" in refused(capsys, out, *words, *more)
    said = refused(capsys, out, "--data", few, "--over", "method.variance=1,50", "--seeds", "0,1,2")
    assert "over method.covariance, not over method.variance" in said
    assert states(out) == before


def test_a_sweep_that_was_killed_goes_on_where_it_was(quick, tmp_path, capsys):
    """In the second run, when it saves its checkpoint of step 4; each has one of step 2 before."""
    out = tmp_path / "swept"
    words = ["sweep", *tiny.words(method="vicreg", train__steps=4), *OVER, "--log.checkpoint_every", "2", "--out", str(out)]
    killed = tiny.Command(tmp_path, *words, die=("sao.training.checkpoint", "save", 4))
    assert killed.wait() == -9
    first = out / "covariance=1,seed=0"
    before = states(first)
    assert not Run(out / "covariance=50,seed=0").evaluated
    assert "going on after step 2 of 4" in tiny.said(capsys, *words)
    assert states(first) == before
    # The same as by hand, without a stop.
    alone = tmp_path / "alone"
    given = tiny.words(method="vicreg", train__steps=4, method__covariance=50)
    assert main(["train", *given, "--out", str(alone)]) == 0
    assert tiny.rows(alone) == tiny.rows(out / "covariance=50,seed=0")


def test_a_run_that_diverges_is_recorded_and_the_others_go_on(quick, tmp_path, capsys):
    out = tmp_path / "swept"
    words = ["--over", "method.optimiser.learning_rate=1e38,1e-3", "--log.evaluate_minutes", "1e-9"]
    assert "learning_rate=1e38,seed=0 diverged: step" in swept(capsys, out, *words)
    assert list(json.loads((out / "table.json").read_text())["diverged"]) == ["learning_rate=1e38,seed=0"]
    assert Run(out / "learning_rate=1e-3,seed=0").evaluated
    before = states(out)
    swept(capsys, out, *words)
    assert states(out) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--over", "method.covarance=1,2"], "method vicreg has no option covarance (did you mean --method.covariance?)"),
        (["--over", "method.covariance"], "--over takes OPTION=VALUE,VALUE"),
        (["--over", "method.covariance="], "--over method.covariance has an empty value"),
        (["--over", "method.covariance=1,,2"], "--over method.covariance has an empty value"),
        (["--over", "method.covariance=1"], "has one value: give several, or set it for all runs with --method.covariance 1"),
        (["--over", "method.covariance=1,1"], "has the value 1 twice"),
        (["--over", "method.covariance=1,x"], "method.covariance: Input should be a valid number"),
        ([*OVER, *OVER], "--over method.covariance is there twice"),
        (["--over", "train.batch=8,16"], "--over train.batch and --train.batch contradict each other"),
        (["--over", "seed=0,1"], "seeds are given with --seeds 0,1"),
        ([*OVER, "--seed", "3"], "--seed is for one run: give --seeds"),
        ([*OVER, "--seeds", ""], "--seeds takes whole numbers"),
        ([], "one run is no sweep: give --over OPTION=VALUE,VALUE, or several --seeds"),
        ([*OVER, "--overwrite"], "sao sweep does not take --overwrite"),
    ],
)
def test_what_is_typed_wrong_is_one_line_and_nothing_is_written(words, said, tmp_path, capsys):
    assert said in refused(capsys, tmp_path / "swept", *words)
    assert not (tmp_path / "swept").exists()


def test_a_value_that_does_not_fit_the_data_is_refused_before_anything_is_written(tmp_path, capsys):
    batch = WORDS.index("--train.batch")
    words = WORDS[:batch] + WORDS[batch + 2 :]
    said = tiny.refused(capsys, "sweep", *words, "--over", "train.batch=4000,16", "--out", tmp_path / "swept")
    assert "train.batch is 4000 but there are only" in said
    assert not (tmp_path / "swept").exists()


def test_a_folder_that_is_no_sweep_is_left_alone(tmp_path, capsys):
    wrong = '{"preset": "digits", "over": 3, "seeds": 4, "options": 5, "auto": 1, "diverged": 2}'
    for name, text in (("notes.txt", "mine"), ("grid.json", wrong)):
        (tmp_path / name).write_text(text)
        assert "exists and is not a sweep: choose another --out" in refused(capsys, tmp_path, *OVER)


def test_a_dry_run_prices_the_grid_and_writes_nothing(tmp_path, capsys):
    words = [*OVER, "--over", "method.view.jitter=[0,0,0,0],null", "--dry-run"]
    said = swept(capsys, tmp_path / "swept", *words)
    assert "4 runs: 4 combinations with 1 seed each" in said
    assert said.count("a run, 1 to do") == 4
    assert "covariance=1,jitter=null: 4 steps of " in said
    assert not (tmp_path / "swept").exists()


def test_no_two_runs_share_a_folder_whatever_the_values_are():
    grid = grid_of("conf/own.yaml", ["data.source=a/b,a b,a_b", "encoder.widths=[4, 8],[4,16]"], [0], {})
    names = [grid.run_name(combination, 0) for combination in grid.combinations()]
    assert len(set(names)) == 6
    assert not any("/" in name or " " in name for name in names)
    assert grid_of("conf/own.yaml", [], [0, 1], {}).run_name({}, 1) == "own,seed=1"
    same = grid_of("own", ["data.size=8,16", "method.size=1,2"], [0], {})
    assert same.run_name({"data.size": "8", "method.size": "1"}, 0) == "data.size=8,method.size=1,seed=0"


def test_the_test_over_seeds_is_students():
    ours, theirs = [0.7, 0.72, 0.75, 0.71], [0.68, 0.71, 0.7, 0.69]
    found, expected = over_seeds(ours, theirs), ttest_rel(ours, theirs)
    interval = expected.confidence_interval(0.95)
    assert [found.p, found.low, found.high] == pytest.approx([expected.pvalue, interval.low, interval.high])
    assert over_seeds(ours, theirs, comparisons=5).p == pytest.approx(min(1, 5 * expected.pvalue))
    assert over_seeds([0.5, 0.5, 0.5], [0.4, 0.4, 0.4]).p == 1  # three seeds that agree exactly prove nothing
    assert over_seeds(ours, ours).p == 1


def test_a_grid_shows_deviations_where_they_are_asked_for():
    metrics = [Metric("a/knn5", 0.5, 0.1), Metric("a/svm", 0.25), Metric("b/knn5", 0.75, 0.2)]
    assert "| a | 0.500 ± 0.100 | 0.250 |" in as_grid(metrics, spread=True)
    assert "±" not in as_grid(metrics)
