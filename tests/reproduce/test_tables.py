"""Tables 2 and 4 on 8x8 digits with a few steps, as a person types them: killed, gone on with, and complete in the end."""

import json
import shlex
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import tiny
from PIL import Image

from sao.cli.main import main
from sao.config import save
from sao.data.augmentation import Augmentation
from sao.errors import InputError
from sao.methods import NonFiniteError, simclr
from sao.methods.encoders import BigGANOptions
from sao.methods.hinge import HingeGAN
from sao.reproduce import study
from sao.reproduce.known import known_runs
from sao.reproduce.rows import Row, StudyRun, chosen_rows, config_of, runs_of
from sao.reproduce.table import SHARES, VALIDATED, validated, write_curves, write_table
from sao.reproduce.table1 import table1
from sao.reproduce.tables import PAPER, table2, table3, table4, table5
from sao.training import checkpoint
from sao.training.run_folder import Run

CONTROLS = ["raw", "patches", "untrained", "supervised"]
# Of table 4: every kind but the untrained, which has a test of its own.
ROWS = ["stylegan2", "full", "raw", "patches", "supervised"]
REFERENCE_RUN = "runs/supervised-digits-seed0"  # the same in every table of these options
OWN = ("train.steps", "train.threads")  # the command itself says these
SMALL = {name: value for name, value in (tiny.OPTIONS | tiny.GAN).items() if name not in OWN}
SMALL |= {"log.checkpoint_every": "1", "log.evaluate_every": "3"}


def words(target: str, out: Path, *more: str) -> list[str]:
    small = [word for name, value in SMALL.items() for word in (f"--{name}", value)]
    return ["reproduce", target, "--data", "digits", "--steps", "3", "--jobs", "1", "--out", str(out), *small, *more]


def write_result(run: StudyRun, **values: float) -> None:
    """As if it had been trained and evaluated."""
    run.folder.mkdir(parents=True, exist_ok=True)
    save(run.config, run.folder / "config.yaml")
    rows = [{"name": name, "value": value, "std": None, "protocol": {}} for name, value in values.items()]
    run.evaluation.write_text(json.dumps(rows))


def lines(out: Path, name: str) -> dict[str, dict]:
    return {line["row"]: line for line in json.loads((out / f"{name}.json").read_text())["rows"]}


@pytest.fixture(scope="module")
def ablation(tmp_path_factory) -> Path:
    """Table 4, killed while its second run trains, gone on with in the same words."""
    folder = tmp_path_factory.mktemp("table4")
    out = folder / "out"
    asked = words("table4", out, "--rows", ",".join(ROWS))
    killed = tiny.Command(folder, *asked, die=("sao.training.checkpoint", "save", 5))
    assert killed.wait() == -signal.SIGKILL
    done = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/eval.json")}
    assert [path.parent.name for path in done] == ["supervised-digits-seed0"]
    assert len(Run(out / "runs/stylegan2-digits-seed0").rows()) == 2
    assert main(asked) == 0
    assert all(path.stat().st_mtime_ns == then for path, then in done.items()), "a run that was done was made again"
    return out


def test_every_row_has_its_numbers_and_those_that_generate_have_more(ablation):
    found = lines(ablation, "table4")
    assert list(found) == ROWS
    for name, line in found.items():
        assert {"kmeans", "svm", "probe", "knn1", "knn5"} <= line["metrics"].keys()
        assert all(value["values"] == [value["mean"]] for value in line["metrics"].values())
        generated = {"frechet_classifier", "precision_classifier", "recall_classifier"} <= line["metrics"].keys()
        assert generated == (name not in CONTROLS)
        assert (ablation / f"runs/{name}-digits-seed0/samples.png").exists() == generated
        assert ("minutes" in line["metrics"]) == (name not in ("raw", "patches", "untrained"))
    assert found["full"]["metrics"]["svm"]["mean"] > 0.9
    with Image.open(ablation / "samples.png") as sheet:
        assert sheet.width > 700, "a column for each that generates"


def test_curves_show_how_each_row_came_about(ablation, tmp_path):
    for name in VALIDATED:
        ((step, value),) = validated(ablation / "runs/full-digits-seed0", name)
        assert step == 3
        assert 0.1 < value < 1
    with Image.open(ablation / "curves.png") as curves:
        assert curves.width > 500
    write_curves([], tmp_path / "curves.png")
    table, options = table4("cpu"), {"data.folder": "data"}
    unvalidated = runs_of(table, table.rows, ["digits"], [0], options, tmp_path)[0]
    unvalidated.folder.mkdir()
    (unvalidated.folder / "config.yaml").touch()
    (unvalidated.folder / "sao-run.json").write_text('{"sao": "0.2", "format": 3}')
    (unvalidated.folder / "metrics.jsonl").write_text('{"step": 3, "time/seconds": 1.0}\n')
    write_curves([unvalidated], tmp_path / "curves.png")
    assert not (tmp_path / "curves.png").exists(), "nothing to show"


def test_a_study_without_its_data_leaves_no_empty_table(tmp_path, monkeypatch, capsys):
    def missing(config):
        raise InputError("it is not there")

    monkeypatch.setattr(study, "open_config_data", missing)
    assert tiny.refused(capsys, *words("table4", tmp_path / "out", "--rows", "raw")) == "sao: it is not there\n"
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.slow
def test_every_row_of_the_ablation_is_trained_and_measured(tmp_path):
    names = [row.name for row in table4("cpu").rows]
    assert main(words("table4", tmp_path / "out", "--rows", ",".join(names))) == 0
    found = lines(tmp_path / "out", "table4")
    assert list(found) == names
    assert all({"kmeans", "svm", "probe", "knn1", "knn5"} <= line["metrics"].keys() for line in found.values())


def test_rows_are_the_configurations_that_they_are_named_for(ablation):
    table, options = table4("cpu"), SMALL | {"train.steps": "3"}
    configs = {run.row.name: run.config for run in runs_of(table, table.rows, ["digits"], [0], options, ablation)}
    assert list(configs) == ["stylegan2", "biggan", "hinge", "bhattacharyya", "jsd", "full-spectral", "full", *CONTROLS]
    assert Run(ablation / "runs/full-digits-seed0").config.method == configs["full"].method
    methods = {name: config.model_dump()["method"] for name, config in configs.items()}
    names = ["stylegan2", "biggan", "hinge", *["structural"] * 4, *["structural"] * 2, "random", "supervised"]
    assert [methods[name]["name"] for name in configs] == names
    assert configs["biggan"].encoder == BigGANOptions(width=64)
    assert methods["bhattacharyya"]["distance"] == "bhattacharyya"
    assert [methods[name]["cluster_weight"] for name in ("jsd", "bhattacharyya", "full")] == [0, 0, 3]
    assert [methods[name]["smoothness_weight"] for name in ("hinge", "full-spectral", "full")] == [5, 0, 5]
    assert methods["full-spectral"]["spectral_normalisation"]
    assert {config.train.steps for config in configs.values()} == {3}


def test_the_killed_run_went_on_where_it_was(ablation):
    run = Run(ablation / "runs/stylegan2-digits-seed0")
    assert [row["step"] for row in run.rows() if "discriminator/gradient_norm" in row] == [1, 2, 3]
    assert [path.name for path in checkpoint.steps_in(run.checkpoints)][-1] == "step-00000003"


def test_a_second_seed_adds_runs_and_repeats_none(ablation, capsys):
    before = {path: path.stat().st_mtime_ns for path in ablation.glob("runs/*/eval.json")}
    rows = ["--rows", "raw,full", "--seeds", "0,1"]
    assert main(words("table4", ablation, *rows)) == 0
    assert "5 runs, 3 of them done already" in capsys.readouterr().out
    assert all(path.stat().st_mtime_ns == then for path, then in before.items())
    found = lines(ablation, "table4")
    assert {name: line["seeds"] for name, line in found.items() if len(line["seeds"]) > 1} == {"full": [0, 1], "raw": [0, 1]}
    assert list(found) == ROWS
    svm = found["full"]["metrics"]["svm"]
    assert svm["mean"] == pytest.approx(sum(svm["values"]) / 2)
    assert svm["std"] == pytest.approx(abs(svm["values"][0] - svm["values"][1]) / 2**0.5)
    text = (ablation / "table4.md").read_text()
    assert "| full, L_reg | 0, 1 | " in text
    assert " ± " in text


def test_runs_of_an_earlier_table_are_not_made_again(ablation, tmp_path, capsys):
    """Those of the same options alone; the classifier of generated images is, because its weights are needed."""
    there = json.loads((ablation / "table4.json").read_text())
    record = next(one for one in there["runs"] if (one["row"], one["seed"]) == ("raw", 0))
    record["processor"], record["config"]["data"]["folder"] = "of another machine", "/x"
    svm = next(metric for metric in record["metrics"] if metric["name"] == "svm")
    svm["value"] = 0.123
    earlier, out = tmp_path / "earlier.json", tmp_path / "out"
    earlier.write_text(json.dumps(there))
    asked = ["--rows", "raw,patches", "--known", str(earlier)]
    assert main(words("table4", out, *asked, "--dry-run")) == 0
    assert "0 runs" in capsys.readouterr().out
    assert main(words("table4", out, *asked)) == 0
    said = capsys.readouterr().out
    assert f"2 of 2 runs are known from {earlier}" in said
    assert lines(out, "table4")["raw"]["metrics"]["svm"]["mean"] == 0.123
    made = {one["row"]: one for one in json.loads((out / "table4.json").read_text())["runs"]}
    assert made["raw"]["processor"] == "of another machine"
    assert {"processor", "commit", "date", "config", "metrics"} <= made["patches"].keys()
    table = table4("cpu")
    options = {"train.steps": "3", **SMALL}
    wanted = runs_of(table, [row for row in table.rows if row.name in ROWS], ["digits"], [0], options, tmp_path / "none")
    assert {run.row.name for run, _ in known_runs(earlier, wanted)} == {*ROWS} - {"supervised"}
    assert main(words("table4", tmp_path / "other", *asked, "--train.batch", "9")) == 0
    assert f"0 of 2 runs are known from {earlier}" in capsys.readouterr().out


def test_runs_of_another_tables_folder_are_evaluated_and_not_trained_again(ablation, tmp_path, capsys):
    out, run = tmp_path / "out", "runs/ours-digits-seed0"
    asked = words("table3", out, "--rows", "ours", "--known", str(ablation))
    assert main([*asked, "--dry-run"]) == 0
    assert "0 runs: " in capsys.readouterr().out
    assert main(asked) == 0
    assert f"1 of 1 runs are known from {ablation}" in capsys.readouterr().out
    for name in ("metrics.jsonl", "origin.json"):
        assert (out / run / name).read_bytes() == (ablation / "runs/full-digits-seed0" / name).read_bytes()
    assert "nmi" in lines(out, "table3")["ours"]["metrics"]
    assert main(words("table3", tmp_path / "other", "--rows", "ours", "--known", str(ablation), "--train.batch", "9")) == 0
    assert f"0 of 1 runs are known from {ablation}" in capsys.readouterr().out
    tiny.refused(capsys, *words("table3", tmp_path / "none", "--rows", "ours", "--known", str(tmp_path)))
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("text", ["[]", "{}", '{"runs": [1]}', '{"runs": [{"config": {}, "metrics": [3]}]}', "nothing"])
def test_a_file_without_runs_is_refused(text, tmp_path, capsys):
    (tmp_path / "table4.json").write_text(text)
    tiny.refused(capsys, *words("table4", tmp_path / "out", "--rows", "raw", "--known", str(tmp_path / "table4.json")))
    assert not (tmp_path / "out").exists()


def test_runs_of_other_options_are_not_shown_beside_those_of_this_command(ablation, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(ablation / "runs/full-digits-seed0", out / "runs/full-digits-seed0")
    shutil.copytree(ablation / "runs/raw-digits-seed0", out / "runs/raw-digits-seed0")
    assert main(words("table4", out, "--rows", "untrained", "--train.batch", "8")) == 0
    assert list(lines(out, "table4")) == ["untrained"]
    assert main(words("table4", out, "--rows", "raw")) == 0
    assert list(lines(out, "table4")) == ["full", "raw"]


def test_both_families_of_table2_are_trained_and_measured(ablation, tmp_path, capsys):
    out = tmp_path / "out"
    shutil.copytree(ablation / REFERENCE_RUN, out / REFERENCE_RUN)
    asked = words("table2", out, "--rows", "simclr-fcj,ours")
    killed = tiny.Command(tmp_path, *asked, die=("sao.reproduce.study", "measured", 1))
    assert killed.wait() == -signal.SIGKILL
    trained = tiny.rows(out / "runs/ours-digits-seed0")
    assert trained[-1]["step"] == 3, "killed between training and evaluation"
    assert main(asked) == 0
    assert "3 runs, 1 of them done already" in capsys.readouterr().out
    assert tiny.rows(out / "runs/ours-digits-seed0") == trained
    found = lines(out, "table2")
    assert list(found) == ["ours", "simclr-fcj", "supervised"]
    ours, views = found["ours"]["metrics"], found["simclr-fcj"]["metrics"]
    assert {"kmeans", "svm", "probe", "knn1", "knn5", "minutes", "parameters_d"} <= ours.keys() & views.keys()
    judged = {f"{name}_classifier" for name in ("frechet", "precision", "recall")}
    assert ours.keys() - views.keys() == {"parameters_g", *judged}
    assert all(0 < found[name]["metrics"]["minutes"]["mean"] < 1 for name in found)


def test_other_options_in_the_same_folder_are_refused(ablation, capsys):
    asked = words("table4", ablation, "--method.discriminator_optimiser.learning_rate", "0.5")
    assert "other options" in tiny.refused(capsys, *asked)


@pytest.mark.slow
def test_asked_to_stop_a_study_saves_its_runs_and_leaves_no_process_behind(tmp_path):
    asked = words("table2", tmp_path / "out", "--jobs", "2", "--rows", "simclr,simclr-f", "--steps", "100000")
    command = tiny.Command(tmp_path, *asked, "--log.checkpoint_every", "100000", "--log.evaluate_every", "null")
    runs = [Run(tmp_path / f"out/runs/{name}-digits-seed0") for name in ("simclr", "simclr-f")]
    command.wait_for(lambda: all(tiny.lines_of(run.metrics) > 0 for run in runs))
    command.send(signal.SIGINT)
    assert command.wait() == 130
    assert "sao: stopped; the same command goes on from here\n" in command.errors.read_text()
    assert "Traceback" not in command.errors.read_text()
    made = [tiny.lines_of(run.metrics) for run in runs]
    assert [int(checkpoint.steps_in(run.checkpoints)[-1].name.split("-")[1]) for run in runs] == made


def test_a_run_that_diverges_is_recorded_and_the_study_goes_on(ablation, tmp_path, monkeypatch, capsys):
    def diverge(method, batch, number):
        if number == 1:
            raise NonFiniteError("discriminator/adversarial_hinge")

    tiny.before_step(monkeypatch, HingeGAN, diverge)
    shutil.copytree(ablation / REFERENCE_RUN, tmp_path / "out" / REFERENCE_RUN)
    asked = words("table4", tmp_path / "out", "--rows", "hinge,raw")
    assert main(asked) == 0
    found = lines(tmp_path / "out", "table4")
    assert found["hinge"]["diverged"] == {"0": 2}
    assert found["hinge"]["metrics"] == {}
    assert found["raw"]["metrics"]
    assert "0 (diverged at step 2)" in (tmp_path / "out/table4.md").read_text()
    capsys.readouterr()
    assert main(asked) == 0
    assert "3 of them done already" in capsys.readouterr().out


@pytest.mark.parametrize("target", ["table2", "table4"])
def test_a_dry_run_prices_each_kind_of_step_once(target, tmp_path, capsys, monkeypatch):
    prices = []
    measured = study.price(tiny.config())
    monkeypatch.setattr(study, "price", lambda config: prices.append(config) or measured)
    assert main(words(target, tmp_path / "out", "--dry-run", "--seeds", "0,1")) == 0
    said = capsys.readouterr().out
    assert len(prices) == {"table2": 8, "table4": 7}[target]
    assert said.count(": 3 steps of") == {"table2": 15, "table4": 13}[target]
    assert said.count("nothing to train") == 6  # raw, patches and untrained, with two seeds
    assert " of training" in said
    assert not (tmp_path / "out").exists()


def test_a_dry_run_prices_what_is_left(ablation, capsys):
    assert main(words("table4", ablation, "--dry-run", "--rows", "raw,full", "--seeds", "0,7")) == 0
    *runs, last, _ = capsys.readouterr().out.splitlines()
    said = [line.partition(": ")[2].partition(" of")[0] for line in runs if ", seed " in line]
    assert said == ["done already", "3 steps", "done already", "nothing to train", "done already"]
    assert last.startswith("5 runs: 0m 0")


# --- the paper ---------------------------------------------------------------------------------------------------------


def by_name(table, options=None) -> dict[str, StudyRun]:
    return {run.row.name: run for run in runs_of(table, table.rows, table.data[:1], [0], options or {}, Path("runs"))}


def test_the_scale_of_the_paper_has_its_settings():
    ablation = by_name(table4("paper"))
    full = ablation["full"].config
    method = tiny.structural_options(full)
    assert (full.train.epochs, full.train.batch, method.augmentation) == (1000, 500, Augmentation(flip=True, crop=0.5))
    assert method.discriminator_optimiser.learning_rate == method.generator_optimiser.learning_rate == 2e-4
    assert ablation["biggan"].config.encoder == BigGANOptions(width=256)
    assert all(run.config.data.size is None for run in ablation.values())
    views = by_name(table2("paper"))["simclr-fcj"].config
    assert isinstance(views.method, simclr.Options)
    optimiser = views.method.optimiser
    assert (optimiser.kind, optimiser.learning_rate, views.train.batch, views.train.epochs) == ("lars", 0.4, 256, 1000)
    assert (views.train.schedule, views.warmup_steps_for(50_000)) == ("cosine", 1950)
    assert [table2("paper").data, table4("paper").data] == [("cifar10", "cifar100"), ("cifar10",)]


def test_augmentations_grow_from_row_to_row():
    rows = by_name(table2("cpu"))
    for family, option in (("simclr", "view"), ("ours", "augmentation")):
        sets = {name: run.config.model_dump()["method"].get(option) for name, run in rows.items()}
        assert Augmentation(**sets[family]) == Augmentation()
        assert Augmentation(**sets[f"{family}-f"]) == Augmentation(flip=True)
        cropped = Augmentation(**sets[f"{family}-fc"])
        assert cropped == Augmentation(flip=True, crop=cropped.crop)
        assert cropped.crop is not None
        if family == "simclr":
            assert Augmentation(**sets["simclr-fcj"]) == cropped.model_copy(
                update={"jitter": (0.8, 0.8, 0.8, 0.2), "grey": 0.2}
            )


def test_the_paper_stands_in_brackets_and_an_empty_column_is_left_out(tmp_path):
    table = table4("cpu")
    (run,) = runs_of(table, [row for row in table.rows if row.name == "full"], ["cifar10"], [0], SMALL, tmp_path)
    write_result(run, svm=0.5, knn1=0.25, frechet_classifier=7.126, probe=0.9)
    write_table(table, [run], tmp_path, "sao")
    *_, heading, _, line = (tmp_path / "table4.md").read_text().splitlines()
    assert heading == "| row | seeds | SVM | 1-NN | Fréchet |"
    assert line == "| full, L_reg | 0 | 50.0 (89.8) | 25.0 | 7.13 |"


@pytest.mark.parametrize(
    "table", [make(scale) for make in (table1, table2, table3, table4, table5) for scale in ("cpu", "paper")]
)
def test_a_table_shows_at_most_seven_metrics_that_are_measured(table):
    measured = {"minutes", "fid", "frechet_classifier", "recall_classifier", *SHARES}
    assert set(table.columns) <= measured
    assert len(table.columns) <= 7


def test_tables_share_their_runs():
    """What one table has trained another evaluates."""

    def config(table, name: str, **found: str):
        row = next(row for row in table.rows if row.name == name)
        return config_of(
            table, row, "cifar10", 0, {}, {f"method.{key.replace('__', '.')}": value for key, value in found.items()}
        )

    first, *others = (make("cpu") for make in (table1, table2, table3, table4))
    assert all(config(other, "supervised").learns_as(config(first, "supervised")) for other in others)
    ours = config(first, "ours")
    assert all(
        config(make("cpu"), name).learns_as(ours) for make, name in ((table2, "ours-fc"), (table3, "ours"), (table4, "full"))
    )
    assert config(first, "simclr", optimiser__learning_rate="1e-3").learns_as(config(table2("cpu"), "simclr-fcj"))


def test_table2_has_all_seven_rows_of_the_paper():
    for table in (table2("cpu"), table2("paper")):
        assert [row.name for row in table.rows if row.paper] == list(PAPER)
    assert table2("paper").rows[5].paper["cifar100"]["knn5"] == pytest.approx(0.561)


def test_vicreg_stands_beside_simclr_with_the_same_views():
    for scale in ("cpu", "paper"):
        rows = by_name(table2(scale))
        for own, other in (("vicreg", "simclr"), ("vicreg-fcj", "simclr-fcj")):
            config, beside = rows[own].config, rows[other].config
            assert config.method.name == "vicreg"
            assert config.train == beside.train
            assert config.encoder == beside.encoder
            method, views = config.method.model_dump(), beside.method.model_dump()
            assert (method["view"], method["ema_decay"]) == (views["view"], views["ema_decay"])
    assert rows["vicreg"].config.method.model_dump()["optimiser"]["learning_rate"] == 0.3
    assert rows["vicreg"].row.paper == {}


def test_options_by_hand_replace_a_recipe_and_not_what_makes_a_row():
    runs = by_name(table2("paper"), {"method.optimiser.kind": "adamw", "train.steps": "7"})
    assert runs["simclr"].config.model_dump()["method"]["optimiser"]["kind"] == "adamw"
    assert {run.config.steps_for(50_000) for run in runs.values()} == {7}


def test_a_micro_batch_is_for_the_rows_that_can_use_it(tmp_path):
    table = table2("cpu")
    runs = runs_of(table, table.rows, ["digits"], [0], {"method.micro_batch": "8"}, tmp_path)
    taken = {run.row.name for run in runs if run.config.model_dump()["method"].get("micro_batch") == 8}
    assert taken == {"ours", "ours-f", "ours-fc", "patches", "raw"}


def test_the_reference_comes_with_rows_that_generate():
    assert [row.name for row in chosen_rows(table2("cpu"), ["simclr"])] == ["simclr"]
    assert [row.name for row in chosen_rows(table2("cpu"), ["ours"])] == ["ours", "supervised"]


BAD = {
    "table6": "",
    "table4": "--rows ful; --rows ,; --data imagenet; --scale paper --data fashion_mnist; --scale huge; --controls; "
    "--runs runs/x; --method.distance hinge; --data.source digits; --train.bach 3; --jobs 0",
    "table2": "--method.augmentation.flip true; --method.nothing true; --seeds x; --out /dev/null/table2 --data digits; "
    "--no-search; --search-on digits",
    "table1": "--search-on digits --no-search; --search-on nowhere",
    "figure1": "--dry-run",
    "figure2": "--rows full; --seeds ''; --steps 0; --data.source digits; --out /dev/null/figure2; --dry-run",
    "compare": "; --data nowhere; --data digits --scale cpu",
}


@pytest.mark.parametrize("given", [f"{target} {words}" for target, several in BAD.items() for words in several.split("; ")])
def test_bad_input_is_one_line(given, capsys):
    tiny.refused(capsys, "reproduce", *shlex.split(given))


def test_a_table_that_cannot_be_written_is_one_line(tmp_path, capsys):
    (tmp_path / "out/table4.md").mkdir(parents=True)
    assert "the same command goes on" in tiny.refused(capsys, *words("table4", tmp_path / "out", "--rows", "raw"))


# --- time and numbers --------------------------------------------------------------------------------------------------


def test_minutes_are_of_all_steps_and_of_no_evaluation(tmp_path):
    run = Run(tmp_path)
    # An evaluation of 100 s after step 20; stopped after step 30, then gone on with.
    seconds = [(10, 60.0), (20, 120.0), (30, 280.0), (40, 50.0), (50, 110.0)]
    rows = [{"step": step, "time/seconds": spent} for step, spent in seconds]
    rows += [{"step": 60, "time/seconds": ""}, {"step": "70", "time/seconds": 300.0}]  # damaged
    run.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run.training_seconds() == pytest.approx(50 * 6)


def pictures(samples) -> set[bytes]:
    return {image.tobytes() for image in np.asarray(samples.pixels)}


@pytest.mark.parametrize("tried", [None, "0.01"])
def test_a_trial_sees_no_test_row_and_a_run_of_the_table_all_of_them(tried, monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(study, "_method", lambda run, dataset: seen.append(dataset))
    monkeypatch.setattr(study, "measured", lambda run, method, dataset: seen.append(dataset) or [])
    run = StudyRun(Row("x", "x"), "digits", tiny.config(), tmp_path, tmp_path, tried)
    assert study._metrics(run) == []
    trained, measured = seen
    assert trained is measured
    test = pictures(tiny.dataset().test)
    assert pictures(measured.test) == test if tried is None else not pictures(measured.test) & test
    assert not pictures(trained.train) & test
