"""Tables 3 and 5, StyleGAN2-ADA's row of Table 4 and the samples of the appendix, on 8x8 digits with a few steps."""

import json
import shutil
import signal
from pathlib import Path

import pytest
import tiny
from PIL import Image
from test_tables import by_name, lines, words

from sao.cli.main import main
from sao.config import load_preset
from sao.evaluation import own_clusters as measures
from sao.methods import genrep, self_conditioned, stylegan2
from sao.reproduce.measure import CLUSTERED
from sao.reproduce.rows import chosen_rows, recipe_of, runs_of
from sao.reproduce.tables import APPENDIX, samples, table3, table4, table5
from sao.training.run_folder import Run

pytestmark = pytest.mark.slow

SMALL = ["--encoder.widths", "[4, 8]"]
NARROW = ["--method.width", "4", "--method.joint_width", "8", "--method.head_width", "8", "--method.hidden_size", "8"]


# --- Table 3 ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clustered(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("table3") / "out"
    own = ["--method.clustered", "100", "--method.recluster_every", "2", "--method.width", "4"]
    assert main(words("table3", out, *SMALL, *own, "--rows", "self-conditioned,ours,raw")) == 0
    return out


def test_clusters_stand_beside_their_level_of_chance(clustered):
    found = lines(clustered, "table3")
    assert list(found) == ["self-conditioned", "ours", "raw"], "no images are judged, so nothing else comes along"
    for name, line in found.items():
        numbers = {key: value["mean"] for key, value in line["metrics"].items()}
        assert set(CLUSTERED) <= numbers.keys()
        assert numbers["k"] == (20 if name == "self-conditioned" else 10)
        assert numbers["k_equal_k"] == 20
        for key in CLUSTERED:
            assert 0 < numbers[key] < 1
        assert numbers["purity_equal_k_chance"] < 0.3, "twenty clusters of nothing, ten classes"
    raw = {key: value["mean"] for key, value in found["raw"]["metrics"].items()}
    assert raw["purity"] > 0.6 > 0.3 > raw["purity_chance"]
    assert raw["purity_equal_k"] > raw["purity"]
    assert raw["purity_swapped_equal_k"] < raw["purity_swapped"]


def test_the_page_says_where_the_paper_cannot_be_right(clustered):
    text = (clustered / "table3.md").read_text()
    assert "cannot be its purity" in text
    assert "not of one kind" in text
    paper = {row.name: dict(row.paper.get("cifar10", {})) for row in table3("paper").rows}
    assert paper["self-conditioned"] == {"nmi": 0.3326, "purity_swapped": 0.1173}
    assert paper["ours"] == {"nmi": 0.7277, "purity": 0.8152}


def test_the_clusters_are_those_of_the_method(clustered, monkeypatch):
    """What k-means would find in the same features is another number."""
    from sao.data.named import digits
    from sao.training.model import load

    method = load(clustered / "runs/self-conditioned-digits-seed0").method
    assert isinstance(method, self_conditioned.SelfConditioned)
    test = digits().test
    expected = measures.own_clusters(method.clusters_of(test.inputs(slice(None))), test.labels, 20)
    found = lines(clustered, "table3")["self-conditioned"]["metrics"]
    for metric in expected:
        assert found[metric.name]["mean"] == pytest.approx(metric.value)
        assert found[f"{metric.name}_chance"]["mean"] == pytest.approx(metric.protocol["chance"])
        assert found[metric.name]["mean"] != found[f"{metric.name}_equal_k"]["mean"]


def test_table3_has_the_settings_of_its_authors():
    options = by_name(table3("paper"))["self-conditioned"].config
    assert isinstance(options.method, self_conditioned.Options)
    assert (options.method.clusters, options.method.recluster_every, options.method.clustered) == (100, 25_000, 25_000)
    assert (options.train.steps, options.train.epochs, options.train.batch) == (195_000, None, 64)
    assert options.encoder is None


# --- Table 5 ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def learnt(tmp_path_factory) -> Path:
    """Killed while GenRep trains, gone on with in the same words."""
    folder = tmp_path_factory.mktemp("table5")
    out = folder / "out"
    asked = words("table5", out, *SMALL, *NARROW, "--rows", "genrep")
    killed = tiny.Command(folder, *asked, die=("sao.training.checkpoint", "save", 8))
    assert killed.wait() == -signal.SIGKILL
    assert tiny.lines_of(out / "runs/genrep-digits-seed0/metrics.jsonl") == 2
    assert main(asked) == 0
    return out


def test_genrep_learns_from_the_generator_of_its_own_study(learnt):
    found = lines(learnt, "table5")
    assert list(found) == ["bigbigan", "genrep", "supervised"]
    assert {"probe", "svm", "minutes"} <= found["genrep"]["metrics"].keys()
    config = Run(learnt / "runs/genrep-digits-seed0").config
    assert isinstance(config.method, genrep.Options)
    assert config.method.generator == str(learnt / "runs/bigbigan-digits-seed0")
    assert json.loads(config.method.source)["method"]["name"] == "bigbigan"
    assert "copied from Figure 6" in (learnt / "table5.md").read_text()


def test_a_row_comes_with_the_row_that_it_learns_from():
    assert [row.name for row in chosen_rows(table5("cpu"), ["genrep-views"])] == ["bigbigan", "genrep-views", "supervised"]
    assert [row.name for row in chosen_rows(table5("cpu"), ["ours"])] == ["ours"]


def test_each_seed_learns_from_its_own_generator():
    table = table5("cpu")
    runs = runs_of(table, table.rows, ["digits"], [0, 1], {"method.generator.width": "8"}, Path("runs"))
    for run in runs:
        if isinstance(run.config.method, genrep.Options):
            source = json.loads(run.config.method.source)
            assert run.config.method.generator == f"runs/bigbigan-digits-seed{run.config.seed}"
            assert source["seed"] == run.config.seed
            assert source["method"]["generator"]["width"] == 8, "options by hand hold for the generator too"


def test_a_dry_run_prices_what_is_not_there_yet(tmp_path, capsys):
    assert main(words("table5", tmp_path / "out", *SMALL, *NARROW, "--rows", "genrep,genrep-views", "--dry-run")) == 0
    said = capsys.readouterr().out
    assert "genrep-views on digits, seed 0: 3 steps of" in said
    assert not (tmp_path / "out").exists()


def test_table5_has_the_settings_of_their_authors():
    runs = by_name(table5("paper"))
    plain, views = (runs[name].config.method for name in ("genrep", "genrep-views"))
    assert isinstance(plain, genrep.Options)
    assert isinstance(views, genrep.Options)
    assert (plain.pairs, plain.distance, plain.truncation, plain.temperature) == (130_000, 0.2, 2.0, 0.1)
    assert (plain.optimiser.kind, plain.optimiser.learning_rate) == ("sgd", 0.03)
    assert plain.view.crop is None
    assert views.view.crop is not None
    assert runs["bigbigan"].config.train.batch == 2048
    assert {row.name: row.paper for row in table5("paper").rows if row.paper} == {
        "genrep": {"imagenet100": {"probe": 0.55}},
        "ours": {"imagenet100": {"probe": 0.599}},
    }


def test_a_preset_is_a_recipe():
    for name in ("genrep", "bigbigan", "stylegan2", "self_conditioned"):
        expected = load_preset(name)
        found = load_preset("cifar10", {**recipe_of(name), "data.source": expected.data.source})
        assert found.method == expected.method
        assert found.train == expected.train


# --- Table 4 and the samples -------------------------------------------------------------------------------------------------


def test_stylegan2_has_its_row_and_the_settings_of_its_authors():
    run = by_name(table4("paper"))["stylegan2"]
    assert isinstance(run.config.method, stylegan2.Options)
    assert (run.config.method.width, run.config.train.batch, run.config.train.steps) == (512, 64, 1_562_500)
    paper = run.row.paper["cifar10"]
    assert (paper["is"], paper["fid"], paper["kmeans"]) == (9.82, 3.60, pytest.approx(0.2896))
    assert (paper["svm"], paper["parameters_d"], paper["parameters_g"]) == (pytest.approx(0.765), 20.7e6, 19.9e6)


@pytest.mark.parametrize("scale", ["cpu", "paper"])
def test_rows_that_minutes_do_not_suffice_for_are_marked(scale):
    rows = [row for table in (table3, table4, table5) for row in table(scale).rows]
    marked = {row.name for row in rows if row.title.endswith("(check that the code runs)")}
    assert marked == ({"stylegan2", "bigbigan", "genrep", "genrep-views"} if scale == "cpu" else set())


def test_samples_stand_side_by_side_in_the_order_of_the_appendix(tmp_path, capsys):
    out = tmp_path / "out"
    assert main(words("samples", out, *SMALL, "--rows", "full,hinge")) == 0
    with Image.open(out / "samples.png") as sheet:
        assert sheet.width > 700
    assert [row.name for row in samples("paper").rows] == [*APPENDIX, "supervised"]
    # A folder of Table 4 with the same options has these runs already.
    shutil.move(out / "runs", tmp_path / "table4" / "runs")
    capsys.readouterr()
    assert main(words("table4", tmp_path / "table4", *SMALL, "--rows", "full,hinge")) == 0
    assert "3 runs, 3 of them done already" in capsys.readouterr().out
