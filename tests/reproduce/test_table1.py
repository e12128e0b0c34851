"""Table 1 and Figure 1 on 8x8 digits with a few steps, and what the rows are at the scale of the paper."""

import json
import pickle
import signal
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from PIL import Image
from test_tables import CONTROLS, lines, words, write_result

from sao.cli.main import main
from sao.config import load_preset
from sao.data.dataset import Dataset, Images
from sao.methods import METHODS
from sao.reproduce.rows import StudyRun, chosen_rows, runs_of
from sao.reproduce.study import Study, chosen_rates, judged, trials_of, within_training_set
from sao.reproduce.table1 import DATA, FIGURE1, PAPER, TITLES, TWO_VIEWS, table1
from sao.reproduce.table1 import RATES as TRIED
from sao.training.run_folder import Run

NARROW = {name: value for method in ("byol", "mae", "ddpm") for name, value in tiny.METHODS[method].items()}
ROWS = [*FIGURE1, "mae", "byol-bn", "raw"]
SMALL = [word for name, value in NARROW.items() if name != "encoder" for word in (f"--{name}", value)]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("table1") / "out"
    assert main(words("table1", out, *SMALL, "--no-search", "--rows", ",".join(ROWS))) == 0
    return out


@pytest.mark.slow
def test_every_row_is_trained_and_measured(tmp_path):
    every = [*TITLES, "ours", *CONTROLS]
    assert main(words("table1", tmp_path / "out", *SMALL, "--no-search", "--rows", ",".join(every))) == 0
    found = lines(tmp_path / "out", "table1")
    assert list(found) == every
    assert all({"kmeans", "svm"} <= line["metrics"].keys() for line in found.values())


def test_rows_have_their_numbers(made):
    found = lines(made, "table1")
    assert found.keys() == set(ROWS)
    for name, line in found.items():
        assert {"kmeans", "svm"} <= line["metrics"].keys()
        assert not any(key.endswith("_classifier") for key in line["metrics"]), "images are judged in Table 4"
        assert ("parameters_encoder" in line["metrics"]) == (name not in ("raw", "patches", "untrained"))
        assert line["title"].endswith("(check that the code runs)") == (name in ("mae", "ddpm"))
    same = {name: found[name]["metrics"]["parameters_encoder"]["mean"] for name in FIGURE1}
    assert len(set(same.values())) == 1, "one backbone for all"
    assert "_classifier" not in (made / "table1.md").read_text()


def test_rows_are_the_learners_that_they_are_named_for(made):
    table = table1("cpu")
    configs = {run.row.name: run.config for run in runs_of(table, table.rows, ["digits"], [0], {}, made)}
    for name in TITLES:
        config = configs[name]
        assert config.method.name == name.removesuffix("-same")
        assert (config.method.model_dump().get("same_views") is True) == (name == "nnclr-same")
    plain = Run(made / "runs/byol-bn-digits-seed0").config
    assert plain.encoder is not None
    assert plain.encoder.model_dump()["norm"] == "batch"


# --- the search for learning rates ---------------------------------------------------------------------------------------


def rates_of(run: Run) -> set[float]:
    method = run.config.method.model_dump()
    return {value["learning_rate"] for name, value in method.items() if name.endswith("optimiser")}


def test_learning_rates_are_searched_for_before_the_table_is_made(tmp_path, capsys):
    out = tmp_path / "out"
    asked = words("table1", out, *SMALL, "--rows", "simclr,byol")
    killed = tiny.Command(tmp_path, *asked, die=("sao.reproduce.study", "measured", 3))
    assert killed.wait() == -signal.SIGKILL
    done = {path: path.stat().st_mtime_ns for path in out.glob("search/*/eval.json")}
    assert len(done) == 2
    assert not (out / "runs").exists()
    assert main(asked) == 0
    assert "6 trials of learning rates, 2 of them done already" in capsys.readouterr().out
    assert all(path.stat().st_mtime_ns == then for path, then in done.items())
    searched = {one["row"]: one["scores"] for one in json.loads((out / "table1.json").read_text())["search"]}
    for name in ("simclr", "byol"):
        assert list(searched[name]) == list(TRIED)
        for rate, score in searched[name].items():
            (metric,) = json.loads((out / f"search/{name}-digits-{rate}/eval.json").read_text())
            assert (metric["name"], metric["value"]) == ("svm", score)
            assert rates_of(Run(out / f"search/{name}-digits-{rate}")) == {float(rate)}
        best = max(searched[name], key=lambda rate: searched[name][rate])
        assert rates_of(Run(out / f"runs/{name}-digits-seed0")) == {float(best)}
        assert f"| {name} | digits | " in (out / "table1.md").read_text()
        assert f"**{best}: " in (out / "table1.md").read_text()
    trial, whole = Run(out / "search/byol-digits-1e-3"), Run(out / "runs/byol-digits-seed0")
    assert (trial.config.train.steps, whole.config.train.steps) == (1, 3)
    assert trial.facts.samples == whole.facts.samples - round(0.2 * whole.facts.samples)


def test_trials_see_nothing_but_the_training_set():
    pixels = np.arange(50, dtype=np.uint8)[:, None, None, None]
    labels = np.arange(50) % 5
    dataset = Dataset("x", Images(pixels, labels), Images(pixels[:3] + 200, labels[:3]))
    inner = within_training_set(dataset)
    seen = [part.pixels[:].flatten().tolist() for part in (inner.train, inner.test) if isinstance(part, Images)]
    assert sorted(seen[0] + seen[1]) == list(range(50))
    assert len(seen[1]) == 10
    for part, rows in zip((inner.train, inner.test), seen, strict=True):
        assert part.labels is not None
        assert part.labels.tolist() == [row % 5 for row in rows], "each with its own label"
        assert np.bincount(part.labels).tolist() == [len(rows) // 5] * 5


def test_the_best_rate_is_taken_once_all_were_tried(tmp_path):
    table = table1("cpu")
    trials = trials_of(table, chosen_rows(table, ["simclr", "byol", "ours"]), ["digits"], {}, tmp_path)
    assert [trial.tried for trial in trials] == [*TRIED, *TRIED], "ours has the rates of its preset"
    scores = {"simclr": (0.5, None, 0.4), "byol": (0.2, 0.3, 0.3)}
    values = [value for row in scores.values() for value in row]
    for trial, value in list(zip(trials, values, strict=True))[:-1]:
        write_result(trial, **({"diverged_at_step": 3} if value is None else {"svm": value}))
    assert chosen_rates(judged(trials)) == {("simclr", "digits"): {"method.optimiser.learning_rate": "3e-4"}}
    write_result(trials[-1], svm=0.3)
    assert chosen_rates(judged(trials))["byol", "digits"] == {"method.optimiser.learning_rate": "1e-3"}, "the first of equals"


def test_rates_of_one_data_set_can_serve_all(tmp_path):
    table = table1("cpu")
    asked = Study(table, chosen_rows(table, ["byol"]), ["fashion_mnist", "cifar10"], [0], {}, tmp_path, search_on="cifar10")
    assert {trial.data for trial in asked.trials()} == {"cifar10"}
    for trial, value in zip(asked.trials(), (0.1, 0.2, 0.4), strict=True):
        write_result(trial, svm=value)
    rates = {run.data: run.config.model_dump()["method"]["optimiser"]["learning_rate"] for run in asked.runs()}
    assert rates == {"fashion_mnist": 3e-3, "cifar10": 3e-3}


def test_rates_of_a_finished_table_serve_another(tmp_path, capsys):
    """The file is that of the repository, in which CIFAR-10 was searched: BYOL's best rate there is not its recipe's."""
    file = Path(__file__).parents[2] / "results/table1/table1.json"
    asked = f"reproduce table1 --rates {file} --rows byol --data digits --steps 1 --out {tmp_path}".split()
    assert main([*asked, "--train.batch", "8"]) == 0
    assert rates_of(Run(tmp_path / "runs/byol-digits-seed0")) == {3e-3}
    assert not (tmp_path / "search").exists()
    assert "3e-3: 41.7" in (tmp_path / "table1.md").read_text()

    def refused(content: str, *more: str) -> str:
        other = tmp_path / "other.json"
        other.write_text(content)
        return tiny.refused(capsys, *asked[:3], other, *asked[4:], *more)

    def searched(row: str, scores: object) -> str:
        return json.dumps({"search": [{"row": row, "data": "digits", "scores": scores}]})

    for content in ("{}", "no JSON", searched("byol", {"1e-3": "high"}), searched("byol", [1])):
        assert "holds no search" in refused(content)
    assert "without a search" in refused('{"search": []}')
    assert "other rows or rates" in refused(searched("byol", {"5": 0.1}))
    missing = searched("dino", {"1e-3": 0.1})
    assert "no learning rates of byol on digits" in refused(missing)
    assert "give one of them" in refused(missing, "--no-search")


@pytest.mark.parametrize("scale", ["cpu", "paper"])
def test_every_run_can_be_sent_to_a_process(scale, tmp_path):
    table = table1(scale)
    runs = runs_of(table, table.rows, table.data, [0], {}, tmp_path)
    assert pickle.loads(pickle.dumps(runs)) == runs


def test_a_rate_by_hand_is_not_searched_for(tmp_path):
    table = table1("cpu")
    options = {"method.optimiser.learning-rate": "0.5"}
    study = Study(table, chosen_rows(table, ["byol", "ours"]), ["digits"], [0], options, tmp_path)
    assert study.trials() == []
    assert {trial.row.name for trial in Study(table, study.rows, ["digits"], [0], {}, tmp_path).trials()} == {"byol"}
    assert study.runs()[0].config.model_dump()["method"]["optimiser"]["learning_rate"] == 0.5


def test_every_learner_of_the_cpu_scale_has_the_same_choice():
    rows = {row.name: row for row in table1("cpu").rows}
    assert {rows[name].rates for name in TITLES} == {("3e-4", "1e-3", "3e-3")}
    assert not any(row.rates for row in table1("paper").rows)
    assert {rows[name].recipe["train.schedule"] for name in (*TITLES, "supervised")} == {"cosine"}


# --- the scale of the paper ----------------------------------------------------------------------------------------------


def runs(name: str) -> dict[str, StudyRun]:
    """At the scale of the paper, by data set."""
    table = table1("paper")
    (row,) = [row for row in table.rows if row.name == name]
    return {run.data: run for run in runs_of(table, [row], list(table.data), [0], {}, Path("runs"))}


def of(name: str, key: str) -> list[object]:
    """An option on CIFAR-10, CIFAR-100 and ImageNet-10."""
    return [run.config.by_name()[key] for run in runs(name).values()]


# Learning rate and weight decay on CIFAR and on ImageNet.
RATES = {
    "simclr": ((0.4, 1e-4), (0.3, 1e-4)),
    "nnclr": ((0.4, 1e-5), (0.4, 1e-5)),
    "nnclr-same": ((0.4, 1e-5), (0.4, 1e-5)),
    "byol": ((1.0, 1e-5), (0.5, 1e-6)),
    "swav": ((0.6, 1e-6), (0.6, 1e-6)),
    "dino": ((0.3, 1e-6), (0.3, 1e-6)),
}


PUBLISHED = {"train.epochs": 1000, "train.batch": 256, "train.schedule": "cosine", "train.warmup_epochs": 10}
PUBLISHED |= {"method.optimiser.kind": "lars", "method.ema_decay": None, "encoder.norm": "group"}


@pytest.mark.parametrize("name", TWO_VIEWS)
def test_the_scale_of_the_paper_has_the_published_settings(name):
    for data, run in runs(name).items():
        rate, decay = RATES[name][data == "imagenet10"]
        expected = PUBLISHED | {"method.optimiser.learning_rate": rate, "method.optimiser.weight_decay": decay}
        assert expected.items() <= run.config.by_name().items()


@pytest.mark.parametrize("name", ["byol", "nnclr", "swav", "dino", "mae", "ddpm"])
def test_the_presets_are_the_rows_of_cifar10(name):
    """A run of a preset is a run of the table; how often it is looked at is not a part of that."""
    preset, run = load_preset(name).model_dump(), runs(name)["cifar10"].config.model_dump()
    for one in (preset, run):
        del one["log"], one["train"]["threads"]
        one["method"].pop("sampling_steps", None)  # of images that the table does not look at
        one["method"].pop("sampling_variance", None)
        one["encoder"].pop("multipliers", None)  # null is the same
    assert preset == run


def test_transformers_and_diffusion_have_the_sizes_of_the_paper():
    for name, expected in (("mae", (21.3e6, 21.3e6, 21.6e6)), ("ddpm", (35.7e6, 35.7e6))):  # no number for ImageNet-10
        for run, parameters in zip(runs(name).values(), expected, strict=True):
            size = run.config.data.size or 32
            assert run.config.encoder is not None
            with torch.device("meta"):
                encoder = run.config.encoder.build((3, size, size))
            assert sum(p.numel() for p in encoder.parameters()) == pytest.approx(parameters, rel=0.02)


def test_imagenet_has_views_and_sizes_of_its_own():
    for name in ("nnclr", "byol", "dino"):
        assert [of(name, f"method.{view}.blur") for view in ("view", "second_view")] == [[0, 0, 1.0], [0, 0, 0.1]]
        assert [of(name, f"method.{view}.solarise") for view in ("view", "second_view")] == [[0] * 3, [0.2] * 3]
    assert of("byol", "method.predictor_size") == [4096, 4096, 8192]
    assert of("simclr", "method.hidden_size") == [2048, 2048, 4096]
    assert of("simclr", "method.projection_size") == [256, 256, 512]
    for name in TITLES:
        crops = [None, None, {"nnclr-same": 0.5, "mae": 0.08}.get(name)]
        assert of(name, "data.crop") == crops[: 2 if name == "ddpm" else 3]
    warm_ups = [run.config.method.model_dump()["warm_up"] for run in runs("dino").values()]
    assert warm_ups == [None, None, {"temperature": 0.04, "epochs": 50}]


def test_the_networks_with_batchnorm_are_the_usual_ones():
    for option, value in (("norm", "batch"), ("widths", None), ("blocks", 2)):
        assert of("byol-bn", f"encoder.{option}") == [value] * 3


def test_networks_with_batchnorm_are_made_where_they_are_asked_for():
    table = table1("cpu")
    assert [row.name for row in chosen_rows(table, None)] == [*TWO_VIEWS, "ours", *CONTROLS]
    assert [row.name for row in chosen_rows(table, ["byol-bn"])] == ["byol-bn"]
    assert [row.name for row in chosen_rows(table, ["ours"])] == ["ours"], "nothing is compared in the features of another row"


def test_the_papers_numbers_stand_beside_ours():
    rows = {row.name: row for row in table1("paper").rows}
    for name, (first, _, last, _) in PAPER.items():
        assert rows[name].paper["cifar10"]["svm"] == pytest.approx(first[0] / 100)
        assert set(rows[name].paper) == set(DATA) - (set() if last else {"imagenet10"})
    assert rows["mae"].paper["imagenet10"]["kmeans"] == pytest.approx(0.458)
    assert rows["nnclr-same"].paper == {}


def test_both_scales_are_priced(capsys):
    asked = ["reproduce", "table1", "--dry-run", "--rows", "byol,raw", "--data", "digits", "--method.hidden_size", "16"]
    assert main([*asked, "--train.steps", "1100"]) == 0
    said = capsys.readouterr().out
    assert said.count(": 366 steps of") == 3
    assert "byol on digits, learning rate 3e-3: 366 steps of" in said
    assert "byol on digits, seed 0: 1100 steps of" in said
    assert "raw on digits, seed 0: nothing to train" in said


@pytest.mark.parametrize("name", [*TWO_VIEWS, "mae", pytest.param("ours", marks=pytest.mark.slow)])
def test_every_row_of_every_scale_can_be_built(name):
    """On a device without memory, for the paper's sizes too."""
    for scale in ("cpu", "paper"):
        table = table1(scale)
        rows = [row for row in table.rows if row.name in (name, f"{name}-bn")]
        for run in runs_of(table, rows, list(table.data), [0], {}, Path("runs")):
            size = run.config.data.size or 32
            with torch.device("meta"):
                method = run.config.build_method((3, size, size), 50_000, 10)
            assert type(method).__module__ == METHODS[run.config.method.name].__module__


# --- Figure 1 ------------------------------------------------------------------------------------------------------------


def test_figure1_draws_the_runs_of_table1(made, capsys):
    assert main(words("figure1", made, *SMALL, "--no-search")) == 0
    assert "4 runs, 4 of them done already" in capsys.readouterr().out
    with Image.open(made / "figure1-digits.png") as figure:
        assert figure.width > 4 * figure.height / 2
    assert (made / "figure1-digits.svg").read_text().count("<use ") > 4 * 300, "a point for each held-out digit"
    panels = json.loads((made / "figure1-digits.json").read_text())["panels"]
    assert [panel["title"] for panel in panels] == [{**TITLES, "ours": "ours"}[name] for name in FIGURE1]
    found = lines(made, "table1")
    for name, panel in zip(FIGURE1, panels, strict=True):
        assert panel["svm"] == pytest.approx(found[name]["metrics"]["svm"]["mean"])
        assert panel["kmeans"] == pytest.approx(found[name]["metrics"]["kmeans"]["mean"])


def test_figure1_draws_any_run(made, tmp_path, capsys):
    run, _ = tiny.trained(tmp_path / "run", method="simclr")
    given = f"{run.folder},{made / 'runs/byol-digits-seed0'}"
    assert main(["reproduce", "figure1", "--runs", given, "--out", str(tmp_path / "out")]) == 0
    panels = json.loads((tmp_path / "out/figure1.json").read_text())["panels"]
    assert [panel["title"] for panel in panels] == ["run", "byol-digits-seed0"]
    assert all(0.1 < panel["svm"] <= 1 for panel in panels)
    assert (tmp_path / "out/figure1.svg").exists()
    assert "is not a run" in tiny.refused(capsys, "reproduce", "figure1", "--runs", tmp_path)
    for option, value in (("--scale", "paper"), ("--data", "cifar10"), ("--method.temperature", "0.5")):
        said = tiny.refused(capsys, "reproduce", "figure1", "--runs", tmp_path, option, value)
        assert f"{option} is for rows that are trained" in said
